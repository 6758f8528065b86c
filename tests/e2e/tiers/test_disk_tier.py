"""A tier on disk outlives the daemon and its memory. It returns the bytes that it stored, and
nothing that was deleted."""

import contextlib
import os
import re
import time

import pytest
from kv_engine import KvEngine
from pagoda_client import Client
from pagoda_daemon import Daemon
from warm_daemon import SHM
from pagoda.v1 import admin_pb2, cache_pb2

NEAR, FAR, DISK = 24, 16, 64
FOUND = re.compile(r"blocks on disk recovered: (\d+) of (\d+)")
CACHED_AGAIN = re.compile(r"tier 'nvme': (\d+) blocks are cached again")
PROMPTS = [[1000 * number + i for i in range(12)] for number in range(1, 5)]  # Three blocks each.
BLOCKS = len(PROMPTS) * 3


class DiskDaemon(Daemon):
    """Several daemons of one configuration, one after another, with a tier on disk below one or two
    tiers in memory."""

    def __init__(self, folder, middle=False, **keys):
        self.disk = folder / "disk"
        tiers = [{"name": "near", "medium": "host", "size": NEAR}, {"name": "far", "size": FAR, "min_priority": 0},
                 {"name": "nvme", "medium": "disk", "size": DISK, "min_priority": 0, "path": str(self.disk)} | keys]
        if not middle:
            del tiers[1]
        super().__init__(folder, cache={"tiers": tiers, "model": {"name": "org/tiny"}}, server={"http_address": "127.0.0.1:0"})

    def memory(self):
        return sorted(SHM.glob(f"pagoda-{self.config['cache']['name']}-*"))

    def file(self):
        return self.disk / f"{self.config['cache']['name']}-wfull.slab"

    def window(self):
        """What the status says of the file."""
        (window,) = self.told("status", admin_pb2.GetStatusResponse()).disk.windows
        return window

    def metric(self, sample):
        (found,) = re.findall(rf"^{re.escape(sample)} (\S+)$", self.metrics(), re.M)
        return float(found)

    def retired_slots(self):
        return self.metric('pagoda_disk_retired_slots{window="full"}')

    def wait_until_written(self, blocks):
        self.wait_until(lambda daemon: daemon.window().written_blocks_total >= blocks)
        self.wait_until_quiet()

    def wait_until_quiet(self):
        """Waits until the disk has nothing to do."""
        busy = ("waiting_backups", "queued_backups", "queued_fetches", "running_orders")
        self.wait_until(lambda daemon: not any(getattr(daemon.window(), name) for name in busy))
        self.settle()

    def again(self, end):
        """Ends the daemon by `end`, removes the memory that it left, and starts the next one.
        Returns how many blocks that one found."""
        Client.opened_here.clear()  # Their sessions have ended with the daemon.
        for channel in self.channels:
            channel.close()
        self.channels.clear()
        end(self)
        for path in self.memory():
            path.unlink()
        self.start()
        log = self.log.read_text()
        found, whole = map(int, FOUND.search(log).groups())
        assert found == int(CACHED_AGAIN.search(log)[1]) == self.status().recovered_blocks
        assert found <= whole
        return found


class Engine(KvEngine):
    def __init__(self, daemon):
        super().__init__(Client(daemon.connect()))

    def wait(self, ticket, lane):
        return self.client.run(wait_for_ticket=cache_pb2.WaitForTicketRequest(ticket=ticket, lane=lane))

    def fetch(self, tokens):
        """Brings a prefix from disk into memory, to the last byte. Returns how many blocks came."""
        moved = self.client.prefetch(tokens)
        self.wait(moved.fetch_ticket, cache_pb2.LANE_FETCH)
        return moved.fetched_blocks

    def forget(self, tokens):
        """Invalidates everything that begins with the tokens, to the last block on disk. Returns
        how many blocks that were."""
        forgotten = self.client.run(invalidate_prefix=cache_pb2.InvalidatePrefixRequest(tokens=tokens))
        self.wait(forgotten.durable_ticket, cache_pb2.LANE_BACKUP)
        return forgotten.removed_blocks

    def cached(self, tokens):
        """(tokens that a sequence would match, tokens that are cached in any tier) of a prefix."""
        matched = self.client.match(tokens + [0])
        return matched.matched_tokens, matched.cached_tokens


def drain(daemon):
    assert daemon.terminate() == 0, daemon.log.read_text()


def kill(daemon):
    daemon.kill()


@pytest.fixture
def start_disk(tmp_path):
    with contextlib.ExitStack() as stack:
        def start(**options):
            daemon = DiskDaemon(tmp_path, **options)
            stack.callback(lambda: [path.unlink() for path in daemon.memory()])
            return stack.enter_context(daemon)

        yield start


def fill(daemon):
    """Caches the prompts and waits until all of them are on disk."""
    engine = Engine(daemon)
    for prompt in PROMPTS:
        assert engine.run(prompt) == 0
    daemon.wait_until_written(BLOCKS)
    return engine


@pytest.mark.parametrize("end", [kill, drain])
@pytest.mark.parametrize("middle", [False, True], ids=["below the first tier", "below a second tier"])
def test_prefixes_and_their_bytes_come_back_from_the_disk_alone(start_disk, middle, end):
    daemon = start_disk(middle=middle)
    engine = fill(daemon)
    del engine
    epoch = daemon.status().epoch
    assert daemon.again(end) == BLOCKS
    assert daemon.status().epoch != epoch
    engine = Engine(daemon)
    for prompt in PROMPTS:
        assert engine.cached(prompt) == (0, 12), "no sequence matches blocks that are only on disk"
    assert list(engine.client.match(PROMPTS[0] + [0]).tokens_by_tier) == [0] * (1 + middle) + [12]
    engine.kv[:] = -1  # Right values in memory come from the disk from now on.
    for prompt in PROMPTS:
        assert engine.fetch(prompt) == 3
        assert engine.cached(prompt) == (12, 12)
        assert engine.run(prompt + [7]) == 12
    assert daemon.metric('pagoda_disk_fetches_total{window="full"}') == BLOCKS
    assert daemon.metric('pagoda_disk_blocks_total{window="full",direction="read"}') == BLOCKS
    assert daemon.metric('pagoda_disk_mode{window="full",mode="readwrite"}') == 1
    assert list(daemon.window().errors_total) == []


def test_what_was_invalidated_stays_away_after_a_kill(start_disk):
    daemon = start_disk()
    engine = fill(daemon)
    assert engine.forget(PROMPTS[1][:1]) == 3
    del engine
    assert daemon.again(kill) == BLOCKS - 3
    engine = Engine(daemon)
    assert [engine.cached(prompt)[1] for prompt in PROMPTS] == [12, 0, 12, 12]
    # Blocks that are only on disk are forgotten too.
    assert engine.forget(PROMPTS[2][:1]) == 3
    del engine
    assert daemon.again(kill) == BLOCKS - 6
    daemon.admin.ResetPrefixCache(admin_pb2.ResetPrefixCacheRequest(), timeout=20)
    assert daemon.again(kill) == 0


@pytest.mark.parametrize("harm", [lambda file: file.unlink(), lambda file: os.truncate(file, 8192)], ids=["unlinked", "cut"])
def test_the_loss_of_a_file_is_seen_while_nothing_is_asked_of_it(start_disk, harm):
    daemon = start_disk()
    engine = fill(daemon)
    harm(daemon.file())
    daemon.wait_until(lambda daemon: daemon.window().mode == "off")
    daemon.wait_until(lambda daemon: "is off until the next start" in daemon.log.read_text())
    assert daemon.metric('pagoda_disk_mode{window="full",mode="off"}') == 1
    assert engine.run(PROMPTS[1] + [7]) == 12, "blocks in memory are served"
    # The new block with the 7 was to go to the disk. It stays in memory.
    daemon.wait_until(lambda daemon: daemon.retired_slots() == 1)
    assert engine.cached(PROMPTS[1] + [7]) == (13, 13)


def stopped_after_a_fill(daemon):
    """Its file then holds the blocks of the prompts."""
    fill(daemon)
    Client.opened_here.clear()
    drain(daemon)
    daemon.channels.clear()
    return daemon.file()


def test_damaged_headers_are_a_warning_and_a_metric(start_disk):
    daemon = start_disk()
    file = stopped_after_a_fill(daemon)
    content = bytearray(file.read_bytes())
    superblocks = 8192
    stride = (len(content) - superblocks) // DISK
    headers = [place for place in range(superblocks, len(content), stride) if any(content[place:place + 64])]
    assert len(headers) == BLOCKS
    for place in headers[:5]:
        content[place:place + 64] = b"x" * 64
    file.write_bytes(content)
    daemon.start()
    assert daemon.metric('pagoda_disk_damaged_slots{window="full"}') == 5
    assert daemon.window().damaged_slots == 5
    (line,) = [line for line in daemon.log.read_text().splitlines() if "damaged headers: 5" in line]
    assert " warning tier 'nvme': " in line and "look for errors of the disk" in line
    assert daemon.status().recovered_blocks <= BLOCKS - 5


def test_an_emptied_file_begins_as_a_new_one_with_a_warning(start_disk):
    daemon = start_disk()
    assert "was empty" not in daemon.log.read_text()
    file = stopped_after_a_fill(daemon)
    os.truncate(file, 0)
    daemon.start()
    (line,) = [line for line in daemon.log.read_text().splitlines() if "was empty" in line]
    assert " warning tier 'nvme': the file of window full was empty" in line
    assert daemon.status().recovered_blocks == 0


def test_a_write_budget_holds_up_nobody(start_disk):
    """With a budget of one block a second, further blocks wait, or leave memory without a copy.
    Sequences do not wait."""
    block_bytes = 2 * 2 * 2 * 4 * 8 * 4  # Layers, K and V, heads, tokens, elements, bytes each.
    daemon = start_disk(write_bytes_per_second=block_bytes)
    engine = Engine(daemon)
    began = time.monotonic()
    for prompt in PROMPTS:
        engine.run(prompt)
    daemon.wait_until(lambda daemon: daemon.window().written_blocks_total >= 1)
    written = daemon.window().written_blocks_total
    assert written <= 2 + (time.monotonic() - began)
    assert daemon.metric("pagoda_disk_write_budget_bytes_per_second") == block_bytes
    assert daemon.window().waiting_backups > 0
