"""The common part of the connectors (pagoda.connector), under an engine without a model that checks
each byte of KV that it reads."""

import dataclasses
import os
import pathlib
import random
import re
import signal
import threading
import time

import numpy as np
import pagoda
import pytest
from caches_daemon import CachesDaemon
from pagoda import CacheIdentity
from pagoda.connector import HostMover, LayerPages, PageLayout, RankPages
from pagoda.connector.keyed import Chain, KeyedPages
from pagoda.connector.keyed_options import KeyedOptions
from pagoda.connector.page_memory import ArrayPages
from toy_engine import LateMover, ToyEngine, prompts


SHM = pathlib.Path("/dev/shm")
MARGIN = 5.0  # Seconds, for a machine with other load.


@pytest.fixture
def daemon(tmp_path):
    with CachesDaemon(tmp_path) as started:
        yield started


@pytest.fixture
def engines(daemon):
    """engines(...) is a ToyEngine that is connected; all are closed at the end."""
    made = []

    def make(**options):
        made.append(ToyEngine(daemon.endpoint, **options))
        assert made[-1].link.wait(60)
        return made[-1]

    yield make
    for engine in made:
        engine.close()


SHAPES = {
    "one group": {},
    "sliding windows": {"windows": (0, 10, 7)},
    "only windows": {"windows": (12,)},
    "blocks of two sizes": {"windows": (0, 9), "block_sizes": (8, 4)},
    "two ranks": {"ranks": 2, "windows": (0, 10)},
    "two stages": {"stages": 2, "windows": (0, 10)},  # Each has the layers of one group.
    "two stages of two ranks": {"stages": 2, "ranks": 2},
    "replicas": {"ranks": 2, "replicas": 2},
    "two stages of replicas": {"stages": 2, "ranks": 4, "replicas": 2, "windows": (0, 10, 7)},
}


def settled(engine):
    """What its thread was left to do is done: commits come behind the engine's back."""
    with engine.side._lock:
        engine.side._do_work()
    return engine


@pytest.mark.parametrize("shape", SHAPES)
def test_whole_blocks_come_back(engines, shape):
    """Everything but the part of a block, for prompts and for generated tokens."""
    engine = engines(host="2MiB", **SHAPES[shape])
    asked = prompts(random.Random(1), 12)
    engine.run(asked, generate=10)
    settled(engine)
    size = engine.layout.tokens_per_block
    again = engine.run(asked, generate=3)
    assert again == [(len(prompt) - 1) // size * size for prompt in asked]
    assert engine.failed_loads == 0
    longer = engine.running == {} and engine.run([asked[0] + [hash(tuple(asked[0][-8:])) % 1000] + [7] * 9])
    assert longer[0] >= (len(asked[0]) - 1) // size * size


@pytest.mark.parametrize("writer, reader", [(1, 2), (2, 1), (4, 2)])
@pytest.mark.parametrize("stages", [(1, 1), (1, 2), (2, 1), (4, 2)])
def test_ranks_share_slots(engines, writer, reader, stages):
    first, second = (engines(host="2MiB", ranks=ranks, stages=count, heads=4, windows=(0, 10))
                     for ranks, count in zip((writer, reader), stages))
    assert first.layout.digest() == second.layout.digest()
    asked = prompts(random.Random(2), 6)
    first.run(asked)
    settled(first)
    assert second.run(asked) == [(len(prompt) - 1) // 4 * 4 for prompt in asked]


@pytest.mark.parametrize("stages", [1, 2])
def test_one_of_the_ranks_with_the_same_bytes_saves_them(engines, stages):
    """Latent attention: all of them load."""
    engine = engines(host="2MiB", ranks=2, replicas=2, stages=stages)
    asked = prompts(random.Random(2), 6)
    saved_blocks = sum(len(prompt) // 4 for prompt in asked)
    engine.run(asked)
    settled(engine)
    shared = len({tuple(prompt[:end]) for prompt in asked for end in range(4, len(prompt) + 1, 4)})
    moved = [worker.side.take_moved() for worker in engine.workers]
    assert shared <= moved[0].saved_blocks * stages / 2 <= saved_blocks, "the blocks of two layers"
    assert [one.saved_blocks for one in moved] == [moved[0].saved_blocks, 0] * stages
    assert engine.run(asked) == [(len(prompt) - 1) // 4 * 4 for prompt in asked]
    loaded = [worker.side.take_moved().loaded_blocks for worker in engine.workers]
    assert set(loaded) == {sum((len(prompt) - 1) // 4 for prompt in asked) * 2 // stages}


@pytest.mark.parametrize("change", [{"heads": 2}, {"window": 8}, {"name": "layer.1"}, {"shards": 2}])
def test_ranks_of_a_stage_have_the_same_layers(change):
    layer = LayerPages("layer.0", 0, 0, 1, 1, 64, shard=0, shards=1, is_writer=True)
    ranks = [RankPages(0, (layer,), "toy"), RankPages(0, (dataclasses.replace(layer, **change),), "toy")]
    with pytest.raises(ValueError, match="different layers"):
        PageLayout.merge(ranks, [4])
    ranks[1] = dataclasses.replace(ranks[1], stage=1)
    assert len(PageLayout.merge(ranks, [4]).layers) == 2, "another stage can have other layers"


@pytest.mark.parametrize("shape", ["one group", "sliding windows"])
def test_the_prompt_of_a_preempted_request_counts_once(engines, shape):
    """It loads what it saved itself. That is no hit, for the daemon and for the connector."""
    engine = engines(host="2MiB", **SHAPES[shape])
    request = engine.add(range(40))
    for _ in range(3):
        while request.loading or request.computed < len(request.tokens):
            engine.step()
        settled(engine)
        engine.preempt(request)
    assert engine.hit_tokens > 0
    counts = engine.side.take_counts()
    assert (counts.queried_tokens, counts.hit_tokens) == (40, 0)
    window = engine.link.client.status().windows[-1]
    assert (window.prefix_lookup_tokens_total, window.prefix_hit_tokens_total) == (40, 0)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_small_cache_never_gives_wrong_bytes(engines, shape):
    """Two engines over a cache of a tenth of the blocks that they ask for. Requests are preempted
    and ended at random."""
    rng = random.Random(3)
    both = [engines(host="32KiB", **SHAPES[shape]) for _ in range(2)]
    asked = prompts(rng, 30)
    for _ in range(120):
        for engine in both:
            engine.step_at_random(rng, asked, 6)
    for engine in both:
        assert engine.hit_tokens > 100 and engine.failed_loads == 0
        engine.end_all()


@pytest.mark.parametrize("shape", ["one group", "sliding windows", "two ranks", "two stages", "replicas", "two stages of replicas"])
@pytest.mark.parametrize("seed", range(3))
def test_copies_beside_kernels_never_give_wrong_bytes(engines, shape, seed):
    """A device with its own streams and few blocks. Blocks that a save still reads are handed out
    again at once."""
    rng = random.Random(seed)
    engine = engines(host="32KiB", mover=lambda: LateMover(rng), blocks=120, reuses_last=True, **SHAPES[shape])
    asked = prompts(rng, 20)
    for _ in range(200):
        engine.step_at_random(rng, asked, 5)
    assert engine.hit_tokens > 100 and engine.failed_loads == 0
    engine.end_all()


class HeldMover(LateMover):
    """A device whose streams go on when the test says so."""

    def __init__(self):
        super().__init__(None)
        self.going = [self.compute, self.loads, self.saves]

    def run(self, most):
        while any(stream.run_one() for stream in self.going):
            pass


def test_a_preempted_request_waits_for_its_own_saves(engines):
    """The commit of the saves moves the window on, and other sequences get the slots that the
    window leaves. No load may read those slots then."""
    mover = HeldMover()
    engine = engines(host="32KiB", windows=(0, 8), mover=lambda: mover, blocks=1000)
    rng = random.Random(9)
    request = engine.add(rng.randrange(1000) for _ in range(25))
    engine.step()  # A chunk of 16 tokens. It is saved.
    mover.going = [mover.compute]
    engine.step()  # The rest of the prompt.
    settled(engine)
    held = engine.side._held[request.id]
    assert held.cached == 4 and [blocks for _, blocks in held.saves] == [6], "four blocks are committed, and two are being saved"
    engine.preempt(request)
    # The saves end before a load does. Then other requests take all slots that are not held.
    mover.going = [mover.compute, mover.saves]
    for _ in range(3):
        engine.step()
    settled(engine)
    assert held.cached == 6
    slots = engine.link.client.status().windows[0].tiers[0].capacity_blocks
    others = [engine.add(rng.randrange(1000) for _ in range(9)) for _ in range(slots // 2)]
    for _ in range(2):
        engine.step()
    assert all(other.computed == 9 for other in others)
    assert engine.link.client.status().windows[0].tiers[0].cached_blocks == 0
    mover.going = [mover.compute, mover.loads, mover.saves]
    for _ in range(4):
        engine.step()
    assert request.computed == 25 and request.cached == 24 and engine.failed_loads == 0, "it loads all blocks that it has saved"
    for one in (request, *others):
        engine.end(one)


@pytest.mark.parametrize("shape", [{"stages": 2}, {"ranks": 2}, {"stages": 2, "ranks": 2, "replicas": 2}], ids=str)
def test_blocks_that_not_all_ranks_have_saved_are_not_cached(engines, shape):
    """All ranks but one have."""
    movers = []

    def make_mover():
        movers.append(HeldMover())
        return movers[-1]

    engine = engines(host="2MiB", mover=make_mover, **shape)
    late = movers[-2] if "replicas" in shape else movers[-1]  # The first of two replicas saves.
    late.going = [late.compute, late.loads]
    prompt = list(range(25))
    assert engine.run([prompt]) == [0]
    for _ in range(3):
        engine.step()
    settled(engine)
    assert engine.run([prompt]) == [0]
    late.going.append(late.saves)
    for _ in range(3):
        engine.step()
    settled(engine)
    assert engine.run([prompt]) == [24]


@pytest.fixture
def over_a_disk(tmp_path):
    """(daemon, engine) of a cache with 64 blocks in memory and a disk for more."""
    (tmp_path / "disk").mkdir()
    daemon = CachesDaemon(tmp_path, memory={"disk": {"path": str(tmp_path / "disk"), "size": "16MiB"}}, server={"http_address": "127.0.0.1:0"})
    try:
        engine = ToyEngine(daemon.start().endpoint, host="8KiB", disk="8MiB")
        assert engine.link.wait(60)
        yield daemon, engine
        engine.close()
        daemon.wait_until(lambda daemon: daemon.caches()["toy"].sessions == 0)
        assert daemon.terminate() == 0
    finally:
        daemon.kill()


def run_until(engine, asked, happens):
    """Runs the prompts one after another, again and again."""
    deadline = time.monotonic() + 60
    while not happens():
        assert time.monotonic() < deadline
        for prompt in asked:
            engine.run([prompt], steps=1_000_000)
            time.sleep(0.05)  # Time for the disk: if it is slower than the memory, blocks are not written to it.


def test_a_prompt_on_disk_is_fetched(over_a_disk):
    _, engine = over_a_disk
    run_until(engine, prompts(random.Random(4), 20), lambda: engine.side.take_counts().disk_hit_tokens)


def test_blocks_that_were_overwritten_on_disk_are_computed(over_a_disk, tmp_path):
    """Overwrites every second block of the file behind the daemon's back. The engine checks all
    bytes that it loads."""
    daemon, engine = over_a_disk
    asked = prompts(random.Random(4), 20)
    run_until(engine, asked, lambda: engine.side.take_counts().disk_hit_tokens)
    (file,) = (tmp_path / "disk").rglob("*.slab")
    page = 4096  # The file has two pages for itself, then slots with a header and a payload (pools/file/slab_format.h).
    content = file.read_bytes()
    slots = [place for place in range(2 * page, len(content), 2 * page) if any(content[place:place + page])]
    with open(file, "r+b") as opened:
        for place in slots[::2]:
            opened.seek(place + page)
            opened.write(bytes([content[place + page] ^ 1]))

    def bad_blocks():
        return sum(int(count) for count in re.findall(r'pagoda_disk_errors_total\{.*kind="bad_block"\} (\d+)', daemon.metrics()))

    disk_hits = 0

    def happens():
        nonlocal disk_hits
        disk_hits += engine.side.take_counts().disk_hit_tokens
        return bad_blocks() >= 3 and disk_hits

    run_until(engine, asked, happens)


@pytest.mark.parametrize("moment", ["before a load", "before a save"])
def test_the_daemon_is_killed(tmp_path, moment):
    """Between the plan and the copies. The next daemon is found, with what was cached."""
    cache = f"killed-{os.getpid()}"  # Only this test makes files of that name.
    daemon = CachesDaemon(tmp_path, memory={"warm_restart": True}).start()
    engine = ToyEngine(daemon.endpoint, host="2MiB", cache=cache)
    assert engine.link.wait(60)
    asked = prompts(random.Random(5), 8)
    try:
        if moment == "before a load":
            engine.run(asked)
            settled(engine)

        def kill():
            engine.before_step = lambda: None
            daemon.kill()

        engine.before_step = kill
        engine.run(asked)
        if moment == "before a load":
            assert engine.failed_loads == len(asked), "loads that were not confirmed are computed"
        daemon.start()
        assert engine.link.wait(60)
        engine.run(asked)
        # Until the dead daemon's session is closed, all slots without content are quarantined. What
        # fits then depends on the order of the calls.
        deadline = time.monotonic() + 60
        while (tier := daemon.caches()[cache].tiers[0]).used_blocks > tier.capacity_blocks // 2:
            assert time.monotonic() < deadline, tier
            time.sleep(0.02)
        engine.run(asked)
        settled(engine)
        assert engine.run(asked) == [(len(prompt) - 1) // 4 * 4 for prompt in asked]
        # New content is cached too: the slots that the dead daemon's session could write are free
        # again.
        capacity = daemon.caches()[cache].tiers[0].capacity_blocks
        fresh = prompts(random.Random(50), 40)
        deadline = time.monotonic() + 60
        while engine.run(fresh) != [(len(prompt) - 1) // 4 * 4 for prompt in fresh]:
            assert time.monotonic() < deadline, daemon.caches()
        assert capacity > 2 * sum(len(prompt) // 4 for prompt in fresh)
    finally:
        engine.close()
        daemon.kill()
        for path in SHM.glob(f"pagoda-{cache}-*"):
            address = path.name.removeprefix(f"pagoda-{cache}-").partition("-")[0]
            path.unlink()
            (SHM / f"pagoda-{address}-caches").unlink(missing_ok=True)  # The dead daemon's list.


def test_a_daemon_that_is_stopped_costs_one_time_out(daemon, engines):
    timeout = 1.0
    engine = engines(host="2MiB", timeout=timeout)
    asked = prompts(random.Random(6), 8)
    started = time.monotonic()
    engine.run(asked, generate=5)
    calm = time.monotonic() - started
    settled(engine)
    daemon.process.send_signal(signal.SIGSTOP)
    try:
        started = time.monotonic()
        assert engine.run(asked, generate=5) == [0] * len(asked)
        # One call of the scheduler and one of a worker time out, not one in each step.
        assert time.monotonic() - started < 4 * timeout + 3 * calm
    finally:
        daemon.process.send_signal(signal.SIGCONT)
    assert engine.link.wait(60)
    deadline = time.monotonic() + 60
    while engine.run(asked[:1]) == [0]:
        assert time.monotonic() < deadline
    assert engine.run(asked) == [(len(prompt) - 1) // 4 * 4 for prompt in asked]


def test_a_session_that_the_daemon_ended_is_replaced(daemon, engines):
    """An operator drops the cache under the engine."""
    engine = engines(host="2MiB")
    asked = prompts(random.Random(7), 4)
    engine.run(asked)
    pagoda.drop_cache(daemon.endpoint, "toy", force=True)
    assert engine.run(asked) == [0] * len(asked)
    deadline = time.monotonic() + 60
    while not engine.run(asked)[0]:
        assert time.monotonic() < deadline
    assert engine.side.take_counts().lost_sessions == 1


class FaultyMover(HostMover):
    """Some copies fail when they are listed, and some when they are made."""

    def __init__(self, rng):
        super().__init__(threads=2)
        self._rng, self.listed, self.made = rng, 0, 0

    def copy(self, stream, target, source, convert=None):
        dice = self._rng.random()
        if dice < 0.01:
            self.listed += 1
            raise MemoryError("as if the device had no memory left")
        super().copy(stream, target, source, self._fail if dice < 0.02 else convert)

    def _fail(self, source):
        self.made += 1
        raise OSError("as if the driver refused")


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("shape", ["one group", "two ranks"])
def test_a_copy_that_fails_costs_hits_alone(engines, shape, seed):
    """Failed saves are never loaded, and requests whose load failed compute. The engine checks
    every byte."""
    rng = random.Random(seed)
    movers = []

    def mover():
        movers.append(FaultyMover(rng))
        return movers[-1]

    engine = engines(host="64KiB", mover=mover, **SHAPES[shape])
    asked = prompts(rng, 8)
    for _ in range(300):  # The timing decides how much is committed and therefore loaded.
        engine.run(rng.choices(asked, k=3), generate=rng.randrange(6))
        failed = [sum(mover.listed for mover in movers), sum(mover.made for mover in movers), engine.failed_loads]
        if min(failed) > 3 and engine.hit_tokens > 200:
            return
    raise AssertionError(f"failed copies {failed}, {engine.hit_tokens} tokens hit")


def test_a_copy_that_fails_ends_behind_those_beside_it():
    """Otherwise the copies could still write when other requests have the blocks."""
    mover = HostMover(threads=2)
    source, target = np.ones(8 << 20, np.uint8), np.zeros(8 << 20, np.uint8)

    def slow(given):
        time.sleep(0.3)
        return given

    def fail(given):
        raise OSError("refused")

    mover.copy(mover.loads, target[:0], source[:0], fail)
    mover.copy(mover.loads, target, source, slow)
    with pytest.raises(OSError):
        mover.loads.begin()
    assert target.all()
    mover.loads.mark()  # Nothing is left.


class SlowRegistration(HostMover):
    """Registers memory slowly, like much memory that is made ready for a GPU."""

    def __init__(self):
        super().__init__()
        self.go_on, self.pools = threading.Event(), 0

    def register(self, pool):
        assert self.go_on.wait(20)
        self.pools += 1
        return pool

    def unregister(self, pool):
        self.pools -= 1


def test_memory_that_takes_long_to_map_holds_up_one_step(engines):
    """The engine waits for the time-out. Before the registration, nothing is loaded or saved. At
    the end everything is given back."""
    mover = SlowRegistration()
    engine = engines(host="2MiB", mover=lambda: mover, timeout=0.3)
    asked = prompts(random.Random(7), 3)
    started = time.monotonic()
    engine.run(asked)
    assert 0.3 <= time.monotonic() - started < 0.3 + MARGIN
    assert settled(engine).hit_tokens == 0
    mover.go_on.set()
    engine.workers[0].side._opening._made.result(20)
    engine.run(asked)  # Saves.
    settled(engine)
    assert engine.run(asked) == [(len(prompt) - 1) // 4 * 4 for prompt in asked] and mover.pools > 0
    engine.workers[0].side.close()
    assert mover.pools == 0


def test_large_copies_are_shared_among_threads():
    """All of them are done when their mark is made."""
    rng = np.random.default_rng(1)
    sources = [rng.integers(256, size=(8, 1, 2, 100_000), dtype=np.uint8) for _ in range(7)]
    mover = HostMover(threads=3)
    slots = [np.zeros((9, 3, 4, 100_000), np.uint8)[1:, 1:2, 1:3] for _ in sources]
    for target, source in zip(slots, sources):
        mover.copy(mover.saves, target, source)
    assert not any(target.any() for target in slots)
    assert mover.saves.mark().is_reached()
    assert all((target == source).all() for target, source in zip(slots, sources))


def test_new_weights_in_place_find_nothing_of_the_old_ones_and_the_log_names_them(engines, caplog):
    engine = engines(host="2MiB")
    asked = prompts(random.Random(8), 4)
    engine.run(asked)
    settled(engine)
    assert engine.side.weights_updated("step 7")
    assert engine.run(asked) == [0] * len(asked)
    assert [record.getMessage() for record in caplog.records if "step 7" in record.getMessage()] == [
        f"{engine.link.name}: the weights were updated in place to step 7: all cached KV is removed"]


def test_new_weights_in_place_remove_the_pages_under_an_engines_keys(daemon, caplog):
    cache = KeyedPages("pages", identity=CacheIdentity("org/model", revision="r1", dtype="bfloat16", layout="NHD", kernel_packing="plain"),
                       page_bytes=4096, tokens_per_page=16, options=KeyedOptions(endpoint=daemon.endpoint, host="1MiB"))
    try:
        assert cache.wait(10)
        chain = Chain((b"a", b"b"), memory=ArrayPages(np.ones((2, 4096), np.uint8)), pages=range(2))
        assert cache.write([chain]) == cache.count([chain]) == [2]
        assert cache.weights_updated("step 7")
        assert cache.count([chain]) == [0]
        assert [record.getMessage() for record in caplog.records if "step 7" in record.getMessage()] == [
            f"{cache.name}: the weights were updated in place to step 7: all cached KV is removed"]
    finally:
        cache.close()


def test_a_reset_forgets_everything(engines):
    engine = engines(host="2MiB")
    asked = prompts(random.Random(8), 4)
    engine.run(asked)
    settled(engine)
    assert engine.side.reset()
    assert engine.run(asked) == [0] * len(asked)
