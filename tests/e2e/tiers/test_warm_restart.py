"""The cache outlives its daemon. After a drain or a kill, the next daemon finds the prefixes whose
bytes are intact."""

import contextlib
import os
import pathlib
import random
import struct
import subprocess
import sys
import time

import numpy as np
import pool_view
import pytest
from kv_engine import KvEngine, TOKENS_PER_BLOCK
from pagoda_client import Client, OperationError, handles
from pagoda.v1 import cache_pb2, types_pb2
from warm_daemon import SHM, WarmDaemon

PRIMARY, SECONDARY = 24, 16


class Engine(KvEngine):
    def __init__(self, daemon):
        super().__init__(Client(daemon.connect()))


def drain(daemon):
    assert daemon.terminate() == 0, daemon.log.read_text()


def kill(daemon):
    daemon.kill()


@pytest.fixture
def start_warm(tmp_path):
    with contextlib.ExitStack() as stack:
        def start(**cache):
            daemon = WarmDaemon(tmp_path, **{"primary": PRIMARY, "secondary": SECONDARY} | cache)
            stack.callback(lambda: [path.unlink() for path in daemon.files()])
            return stack.enter_context(daemon)

        yield start


class Float8Engine(Engine):
    """Numbers of 8 bits, and a scale for each layer, K or V, and head of a block. The scale is a
    number made of the tokens up to the block's first one."""

    def __init__(self, daemon):
        self.client = Client(daemon.connect())
        elements, scales = (pool for pool in self.client.pools() if pool.tier == types_pb2.TIER_PRIMARY)
        self.kv, self.scales = pool_view.map_pool(elements), pool_view.map_pool(scales)
        self.sequences = 0

    @staticmethod
    def value(tokens, position):
        return np.uint8(hash(tuple(tokens[:position + 1])) % 251)

    def run(self, tokens):
        self.sequences += 1
        added = self.client.add(self.sequences, tokens)
        self.client.wait(added.ready_ticket)
        blocks = handles(added.tables[0].blocks)
        for position in range(len(tokens)):
            scales = self.scales[blocks[position // TOKENS_PER_BLOCK].slot_index]
            first = position // TOKENS_PER_BLOCK * TOKENS_PER_BLOCK
            scale = Engine.value(tokens, first)
            if position < added.matched_tokens:
                assert (self.at(blocks, position) == self.value(tokens, position)).all(), (tokens, position)
                assert (scales == scale).all(), (tokens, position)
                continue
            self.at(blocks, position)[:] = self.value(tokens, position)
            if position == first:
                scales[:] = scale
        self.client.commit(self.sequences, len(tokens))
        self.client.free_sequence(self.sequences)
        return added.matched_tokens


@pytest.mark.parametrize("end", [drain, kill])
def test_fp8_and_its_scales_are_found_again(start_warm, end):
    daemon = start_warm(kv_dtype="fp8_e4m3")
    prompts = [[number] * 8 + [number, 7, 8] for number in range(10)]  # 30 blocks: some are offloaded.
    engine = Float8Engine(daemon)
    for prompt in prompts:
        assert engine.run(prompt) == 0
    daemon.wait_until_stamped()
    cached = daemon.cached()
    assert cached > PRIMARY, "both tiers hold blocks"
    del engine

    assert daemon.again(end) == (cached, cached)
    engine = Float8Engine(daemon)
    assert sum(engine.run(prompt) for prompt in prompts) >= 4 * len(prompts) * 2


@pytest.mark.parametrize("end", [drain, kill])
def test_prefixes_and_bytes_are_found_again(start_warm, end):
    daemon = start_warm()
    prompts = [[number] * 8 + [number, 7, 8] for number in range(10)]  # 30 blocks: some are offloaded.
    engine = Engine(daemon)
    for prompt in prompts:
        engine.run(prompt)
    if end is kill:
        daemon.wait_until_stamped()
    before = daemon.status()
    cached = daemon.cached()
    assert cached > PRIMARY, "both tiers hold blocks"
    del engine

    assert daemon.again(end) == (cached, cached)
    after = daemon.status()
    assert after.epoch != before.epoch
    assert after.sessions == 0
    assert daemon.cached() == cached
    engine = Engine(daemon)
    assert sum(engine.run(prompt) for prompt in prompts) >= 4 * len(prompts) * 2


def learned_tables(daemon):
    return [path for path in daemon.files() if path.name.endswith("-learned")]


def last_write(table):
    """The number of the last write (manager/restart/kept_table.h), and the sum of its counts
    (manager/policy/reuse_table.h)."""
    data = table.read_bytes()
    number, copy = max((struct.unpack_from("<Q", data, copy + 24)[0], copy) for copy in (0, len(data) // 2))
    (size,) = struct.unpack_from("<I", data, copy + 20)
    return number, np.frombuffer(data, "<f4", max(0, (size - 16 - 12) // 4), copy + 64 + 16).sum()


@pytest.mark.parametrize("end", [drain, kill])
def test_what_the_policy_learned_is_found_again(start_warm, end):
    daemon = start_warm(eviction_policy="learned")
    Engine(daemon).run(list(range(12)))
    (table,) = learned_tables(daemon)
    if end is kill:
        daemon.wait_until(lambda _: last_write(table)[1] > 0)
    left = 0

    def end_and_look(daemon):
        nonlocal left
        before, _ = last_write(table)
        end(daemon)
        left, counts = last_write(table)
        assert counts > 0
        assert end is kill or left > before, "a drain writes what was learned last"

    for _ in range(2):
        daemon.again(end_and_look)
        assert "window full: the eviction policy knows what the last run learned" in daemon.log.read_text()
        daemon.wait_until(lambda _: last_write(table)[0] > left and last_write(table)[1] > 0)


def test_a_cache_of_another_size_keeps_what_was_learned_and_no_blocks(start_warm):
    daemon = start_warm(eviction_policy="learned")
    Engine(daemon).run(list(range(12)))
    daemon.config["cache"]["primary"] = 2 * PRIMARY
    assert daemon.again(drain) == (0, 0)
    assert "window full: the eviction policy knows what the last run learned" in daemon.log.read_text()


def test_a_damaged_table_of_the_policy_is_ignored(start_warm):
    daemon = start_warm(eviction_policy="learned")
    Engine(daemon).run(list(range(12)))

    def end(daemon):
        drain(daemon)
        (table,) = learned_tables(daemon)
        table.write_bytes(b"x" * table.stat().st_size)

    assert daemon.again(end) == (3, 3), "the blocks are found"
    assert "the eviction policy begins anew, because the table that was left is damaged" in daemon.log.read_text()
    daemon.again(drain)
    assert "the eviction policy knows what the last run learned" in daemon.log.read_text()


def test_a_policy_that_learns_nothing_keeps_no_table(start_warm):
    daemon = start_warm(eviction_policy="learned")
    Engine(daemon).run(list(range(12)))
    daemon.config["cache"]["eviction_policy"] = "lru"
    assert daemon.again(drain) == (3, 3), "the blocks are found"
    assert learned_tables(daemon) == []
    assert "the eviction policy" not in daemon.log.read_text()


def test_the_end_without_warm_restart_leaves_nothing(start_warm):
    daemon = start_warm(warm_restart=False)
    Engine(daemon).run(list(range(12)))
    daemon.stop()
    assert daemon.files() == []


def test_memory_that_was_kept_goes_when_it_is_not_wanted_any_more(start_warm):
    daemon = start_warm(eviction_policy="learned")
    Engine(daemon).run(list(range(12)))
    daemon.config["cache"]["warm_restart"] = False
    Client.opened_here.clear()
    drain(daemon)
    assert len(daemon.files()) > 2
    daemon.start()
    assert daemon.cached() == 0
    assert not [path for path in daemon.files() if "stamps" in path.name or "learned" in path.name]


def test_another_layout_begins_anew(start_warm):
    daemon = start_warm()
    Engine(daemon).run(list(range(12)))
    daemon.config["cache"]["layers"] = {"count": 2, "num_kv_heads": 1, "head_dim": 16}  # The same number of bytes.
    assert daemon.again(drain) == (0, 0)
    assert "another cache, model or layout" in daemon.log.read_text()
    assert daemon.cached() == 0


def test_another_revision_of_the_model_begins_anew(start_warm):
    daemon = start_warm(model={"name": "org/tiny", "revision": "1"})
    Engine(daemon).run(list(range(12)))
    assert daemon.again(drain) == (3, 3), "the same model finds its blocks again"
    daemon.config["cache"]["model"]["revision"] = "2"
    assert daemon.again(drain) == (0, 0)
    assert daemon.cached() == 0


def run_to_its_end_and_leave_all(daemon):
    """A start that fails. It leaves each earlier file, and no new file. Returns the log."""
    before = {path.name: path.stat().st_ino for path in daemon.files() if not path.name.endswith(".lock")}
    assert daemon.run_to_its_end() == 1
    assert {path.name: path.stat().st_ino for path in daemon.files()} == before
    return daemon.log.read_text()


def test_a_start_that_fails_leaves_what_the_last_run_kept(start_warm):
    daemon = start_warm(secondary=0)
    engine = Engine(daemon)
    engine.run(list(range(12)))
    daemon.wait_until_stamped()
    del engine
    Client.opened_here.clear()
    drain(daemon)
    # The start fails at its last step but one. A folder is at the map socket's path, and a folder
    # is not the socket of a dead daemon.
    in_the_way = daemon.unix_socket.with_name(daemon.unix_socket.name + ".map")
    in_the_way.mkdir()
    assert str(in_the_way) in run_to_its_end_and_leave_all(daemon)
    # The start also takes memory for a new secondary tier. It leaves neither that nor its stamps.
    daemon.config["cache"]["secondary"] = SECONDARY
    assert str(in_the_way) in run_to_its_end_and_leave_all(daemon)
    in_the_way.rmdir()
    daemon.start()
    assert daemon.cached() == 3


def test_a_start_that_does_not_know_its_writers_fails_until_somebody_decides(start_warm):
    daemon = start_warm()
    engine = Engine(daemon)  # This process keeps its mapping for writing.
    engine.run(list(range(12)))
    daemon.wait_until_stamped()
    Client.opened_here.clear()
    kill(daemon)
    (table,) = [path for path in daemon.files() if path.name.endswith("-writers")]
    for harm in (lambda: os.truncate(table, table.stat().st_size // 2), lambda: table.write_bytes(bytes(table.stat().st_size)), lambda: None):
        harm()
        assert f"{table.name}, is damaged: end the processes, or remove the table" in run_to_its_end_and_leave_all(daemon)
    table.unlink()
    daemon.channels.clear()
    daemon.start()
    assert daemon.cached() == 0
    assert daemon.primary().in_flight_blocks == 0, "the pools are new, and the old writer maps the old pools"


def test_a_share_of_the_free_memory_keeps_its_size(start_warm):
    daemon = start_warm(primary="0.01%", secondary="0.01%")
    Engine(daemon).run(list(range(12)))
    sizes = [tier.capacity_blocks for tier in daemon.status().windows[0].tiers]
    ballast = SHM / f"pagoda-{daemon.config['cache']['name']}-ballast"
    ballast.write_bytes(bytes(64 << 20))
    found, _ = daemon.again(drain)
    assert found == 3
    assert [tier.capacity_blocks for tier in daemon.status().windows[0].tiers] == sizes


def test_what_an_old_client_may_write_is_not_handed_out(start_warm):
    daemon = start_warm()
    engine = Engine(daemon)
    engine.run(list(range(12)))
    daemon.wait_until_stamped()
    old_session = engine.client.session
    del engine
    writer = subprocess.Popen([sys.executable, "-B", "writing_client.py", f"unix:{daemon.unix_socket}"], stdout=subprocess.PIPE,
                              cwd=pathlib.Path(__file__).parent, text=True)
    try:
        slots = list(map(int, writer.stdout.readline().split()))
        assert len(slots) == 3
        assert daemon.again(kill) == (3, 3)
        assert daemon.primary().in_flight_blocks == PRIMARY - 3
        engine = Engine(daemon)
        assert engine.client.match(list(range(13))).matched_tokens == 12
        with pytest.raises(OperationError, match="BLOCKS_EXHAUSTED"):
            engine.run(list(range(13)))
    finally:
        writer.kill()
        writer.wait()
    # This process can write for a session of the last run until it acknowledges the end.
    engine.client.stub.CloseSession(cache_pb2.CloseSessionRequest(session=old_session), timeout=20)
    daemon.wait_until(lambda d: d.primary().in_flight_blocks == 0)
    assert engine.run(list(range(13))) == 12
    engine.run(list(range(100, 160)))
    assert engine.run(list(range(100, 160))) == 59


def test_daemons_killed_under_load_serve_no_wrong_block(start_warm):
    """The engine checks every token that matches."""
    daemon = start_warm()
    dice = random.Random(1)
    prompts = [[dice.randrange(3) for _ in range(dice.randrange(4, 30))] for _ in range(40)]
    found = matched = 0
    for _ in range(50):
        engine = Engine(daemon)
        end = time.monotonic() + dice.uniform(0.02, 0.12)
        while time.monotonic() < end:
            matched += engine.run(dice.choice(prompts))
        del engine
        found += daemon.again(kill)[0]
    assert found > 50 * 10
    assert matched > 50 * 10
