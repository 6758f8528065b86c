"""Pages under an engine's keys: which are found, which never are, and the cost of a daemon that has
ended, is slow or is full."""

import subprocess
import sys
import threading
import time

import grpc
import numpy as np
import pagoda
import pytest
from keyed_caches import (MARGIN, PAGE_BYTES, TIMEOUT, Timed, chain, client_of, disk_is_idle, go_on, keys, open_cache, page_of, pages_of,
                          running, singles, stamped_pages, stop, times, wait_until)
from pagoda.connector.keyed import Chain
from pagoda.connector.page_memory import ArrayPages, Buffers
from pagoda.errors import Details


@pytest.fixture
def daemon(tmp_path):
    with running(tmp_path / "daemon", host="64MiB") as daemon:
        yield daemon


@pytest.fixture
def cache(daemon):
    opened = open_cache(daemon.endpoint)
    yield opened
    opened.close()


# --- Hits ---

def test_a_chain_is_found_as_far_as_it_was_written(cache):
    names = keys(8)
    assert cache.write([chain(names[:5], pages_of(names[:5]))]) == [5]
    assert cache.count([chain(names), chain(names[:2]), chain(names[1:])]) == [5, 2, 0]
    target = np.zeros((8, PAGE_BYTES), np.uint8)
    assert cache.read([chain(names, target)]) == [5]
    assert (target[:5] == pages_of(names[:5])).all() and not target[5:].any()


def test_only_what_is_missing_is_written(cache):
    names = keys(8)
    cache.write([chain(names[:5], pages_of(names[:5]))])
    others = pages_of(names)
    others[:5] = 7  # Other bytes than the cached ones.
    assert cache.write([chain(names, others)]) == [8]
    target = np.zeros((8, PAGE_BYTES), np.uint8)
    assert cache.read([chain(names, target)]) == [8] and (target == pages_of(names)).all()


def test_pages_behind_a_start_follow_those_before_it(cache):
    names, target = keys(6), np.zeros((2, PAGE_BYTES), np.uint8)
    behind = Chain(names, start=4, memory=ArrayPages(pages_of(names[4:])), pages=range(2))
    assert cache.write([behind]) == [0], "the pages before them are not cached"
    assert cache.write([chain(names[:4], pages_of(names[:4]))]) == [4]
    assert cache.write([behind]) == [2]
    assert cache.read([Chain(names, start=4, memory=ArrayPages(target), pages=range(2))]) == [2]
    assert (target == pages_of(names[4:])).all()


def test_a_chain_that_ends_before_its_start_leaves_the_others_their_pages(cache):
    """The chains have one memory, so their pages are copied together."""
    names, others, target = keys(8), keys(2, "other"), np.zeros((6, PAGE_BYTES), np.uint8)
    cache.write([chain(names[:1], pages_of(names[:1])), chain(others, pages_of(others))])
    memory = ArrayPages(target)
    assert cache.read([Chain(names, start=4, memory=memory, pages=range(4)), Chain(others, memory=memory, pages=(4, 5))]) == [0, 2]
    assert (target[4:] == pages_of(others)).all() and not target[:4].any()


def test_keys_that_stand_for_themselves_are_found_in_any_order(cache):
    names, target = keys(8), np.zeros((8, PAGE_BYTES), np.uint8)
    assert cache.write(singles(names, pages_of(names))) == [1] * 8
    order = [5, 0, 7, 2]
    assert cache.read(singles([names[index] for index in order] + keys(1, "other"), target)) == [1, 1, 1, 1, 0]
    assert (target[:4] == pages_of([names[index] for index in order])).all()


def test_salts_share_nothing(cache):
    names = keys(3)
    cache.write([chain(names, pages_of(names), salt="a")])
    assert cache.count([chain(names, salt="a"), chain(names, salt="b"), chain(names)]) == [3, 0, 0]


def test_parts_of_a_page_lie_where_the_engine_has_them(cache):
    """K and V of a page in two places, heads between: one slot."""
    names = keys(4)
    k, v = (np.random.default_rng(seed).integers(256, size=(4, 8, 2, 128), dtype=np.uint8) for seed in (1, 2))
    assert cache.write([Chain(names, memory=ArrayPages(k, v), pages=range(4))]) == [4]
    k_back, v_back = np.zeros((2, 4, 4, 128), np.uint8), np.zeros((4, 2, 8, 128), np.uint8)
    # The axes have another order in memory, but the same order in the slot.
    target = ArrayPages(np.zeros_like(k), v_back.transpose(0, 2, 1, 3))
    assert cache.read([Chain(names, memory=target, pages=(3, 2, 1, 0))]) == [4]
    assert (v_back.transpose(0, 2, 1, 3)[::-1] == v).all() and k_back.shape


def test_holds_stay_until_they_are_released(cache, daemon):
    names = keys(200, "hold")
    cache.write(singles(names[:4], pages_of(names[:4])))
    holds = cache.hold(singles([names[0], names[100], names[1]]))
    assert [hold is not None for hold in holds] == [True, False, True]
    cache.write(singles(names[4:], pages_of(names[4:])))  # More pages than the other blocks hold.
    cache.write(singles(keys(256, "more"), pages_of(keys(256, "more"))))
    assert cache.count(singles(names[:4])) == [1, 1, 0, 0]
    target = [bytearray(PAGE_BYTES), bytearray(PAGE_BYTES)]
    assert cache.load([holds[0], holds[2]], Buffers(target))
    assert target == [page_of(names[0]).tobytes(), page_of(names[1]).tobytes()]
    cache.release([holds[0], holds[2]])
    cache.write(singles(keys(256, "last"), pages_of(keys(256, "last"))))
    assert cache.count(singles(names[:2])) == [0, 0]


def test_what_is_taken_is_what_was_found_and_stays_until_it_is_released(cache, daemon):
    """Also if the chain was found with more pages behind it."""
    names, more, target = keys(8, "found"), keys(300, "more"), np.zeros((2, PAGE_BYTES), np.uint8)
    cache.write([chain(names, pages_of(names))])
    assert cache.find([chain(names)]) == [8]
    holds = cache.take([chain(names[:5]), chain(keys(1, "no")), chain(names[:2])])
    assert [hold is not None for hold in holds] == [True, False, True]
    assert [len(holds[index].places) for index in (0, 2)] == [5, 2]
    for _ in range(2):
        cache.write(singles(more, pages_of(more)))
    assert cache.load([holds[0], holds[2]], ArrayPages(target)) and (target == pages_of([names[4], names[1]])).all()
    cache.release([holds[0], holds[2]])
    with pagoda.connect(daemon.endpoint, cache=cache.name) as client:
        wait_until(lambda: client.status().windows[0].tiers[0].active_blocks == 0)


@pytest.mark.parametrize("call", ["read", "take"])
def test_a_batch_that_is_refused_ends_what_was_found(cache, daemon, monkeypatch, call):
    names, target = keys(4), np.zeros((5, PAGE_BYTES), np.uint8)
    cache.write(singles(names, pages_of(names)))
    assert cache.find(singles(names)) == [1] * 4

    def refuse(*_):
        raise pagoda.Exhausted(Details(grpc.StatusCode.RESOURCE_EXHAUSTED, "refused by the test"))

    monkeypatch.setattr(cache._shared, "run", refuse)
    assert not any(getattr(cache, call)(singles(names + keys(1, "not found"), target)))
    assert cache.is_open
    with pagoda.connect(daemon.endpoint, cache=cache.name) as client:
        wait_until(lambda: client.status().windows[0].tiers[0].active_blocks == 0)


def test_what_is_found_is_held_for_the_read(cache, daemon):
    names, target = keys(8, "found"), np.zeros((8, PAGE_BYTES), np.uint8)
    cache.write(singles(names, pages_of(names)))
    assert cache.find(singles(names + keys(1, "no"))) == [1] * 8 + [0]
    more = keys(300, "more")
    assert sum(cache.write(singles(more, pages_of(more)))) == 248, "all pages fit but those that are held"
    assert cache.read(singles(names, target)) == [1] * 8 and (target == pages_of(names)).all()
    with pagoda.connect(daemon.endpoint, cache=cache.name) as client:
        wait_until(lambda: client.status().windows[0].tiers[0].active_blocks == 0)
        assert sum(cache.find(singles(more))) == 248
        assert 0 < client.status().windows[0].tiers[0].active_blocks <= 64, "a quarter of the cache at most"
        wait_until(lambda: client.status().windows[0].tiers[0].active_blocks == 0)  # No call reads them, so they are released.


def test_a_page_counts_as_a_hit_whenever_it_is_found_and_as_a_miss_when_it_is_written(cache, daemon):
    # The engines' calls name pages and no requests. So the hits of a request that is preempted, and
    # looks its own pages up again, cannot be told from those of another request.
    names, target = keys(8, "counted"), np.zeros((8, PAGE_BYTES), np.uint8)
    with pagoda.connect(daemon.endpoint, cache=cache.name) as client:
        def counted():
            window = client.status().windows[0]
            return window.prefix_lookup_tokens_total // 16, window.prefix_hit_tokens_total // 16

        assert cache.find(singles(names)) == [0] * 8 and counted() == (0, 0)
        assert cache.write(singles(names, pages_of(names))) == [1] * 8 and counted() == (8, 0)
        assert cache.count(singles(names)) == [1] * 8 and counted() == (8, 0), "a look-up that holds nothing"
        assert cache.find(singles(names)) == [1] * 8 and counted() == (16, 8)
        assert cache.read(singles(names, target)) == [1] * 8 and counted() == (16, 8), "the read that follows"
        assert cache.find(singles(names)) == [1] * 8 and counted() == (24, 16)
        longer = keys(4, "longer")
        assert cache.write([chain(longer[:3], pages_of(longer[:3]))]) == [3] and counted() == (27, 16)
        behind = Chain(longer, start=3, memory=ArrayPages(pages_of(longer[3:])), pages=range(1))
        assert cache.write([behind]) == [1] and counted() == (31, 19), "the pages before a start are hits"


def test_a_chain_is_found_and_read_as_far_as_all_ranks_have_it(cache):
    names, target = keys(8), np.zeros((8, PAGE_BYTES), np.uint8)
    cache.write([chain(names, pages_of(names))])
    assert cache.find([chain(names)]) == [8]
    assert cache.read([chain(names[:5], target)]) == [5] and (target[:5] == pages_of(names[:5])).all() and not target[5:].any()
    assert cache.find([chain(names[:5])]) == [5]
    assert cache.read([chain(names, target)]) == [8] and (target == pages_of(names)).all()


def test_pages_that_are_removed_are_not_found(cache):
    names = keys(3)
    cache.write(singles(names, pages_of(names)))
    assert cache.remove(singles([names[1], keys(1, "no")[0]])) == [1, 0]
    assert cache.count(singles(names)) == [1, 0, 1]
    assert cache.clear() and cache.count(singles(names)) == [0, 0, 0]


def test_pages_on_disk_alone_are_fetched_within_the_deadline(tmp_path):
    names, target = keys(400, "disk"), np.zeros((400, PAGE_BYTES), np.uint8)
    with running(tmp_path / "daemon", host="64MiB", disk="64MiB") as daemon:
        cache = open_cache(daemon.endpoint, disk="16MiB", fetch_deadline=5.0)
        with pagoda.connect(daemon.endpoint, cache=cache.name) as client:
            blocks = client.cache.windows[0].blocks
            assert blocks[0] < 400 < blocks[1]
            for first in range(0, 400, 50):  # In several parts, because the disk needs time to write each.
                cache.write(singles(names[first:first + 50], pages_of(names[first:first + 50])))
                time.sleep(0.3)  # The writes to disk begin a little after the commit.
                wait_until(lambda: disk_is_idle(daemon))
            found = client.match(keys=[names[0]])
            assert (found.matched_tokens, found.cached_tokens) == (0, 16), "the first page is only on disk"
        assert cache.count(singles(names[:20])) == [1] * 20
        assert cache.read(singles(names[:20], target)) == [1] * 20 and (target[:20] == pages_of(names[:20])).all()
        cache.close()


# --- Misses ---

@pytest.mark.parametrize("change", [{"dtype": "float16"}, {"revision": "r2"}, {"layout": "HND"}, {"model": "org/other"},
                                    {"kernel_packing": "other"}])
def test_another_identity_is_another_cache(cache, daemon, change):
    names = keys(3)
    cache.write([chain(names, pages_of(names))])
    other = open_cache(daemon.endpoint, **change)
    assert other.name != cache.name and other.count([chain(names)]) == [0]
    other.close()
    same = open_cache(daemon.endpoint)
    assert same.name == cache.name and same.count([chain(names)]) == [3]
    same.close()


def test_a_name_of_another_identitys_cache_is_refused(cache, daemon):
    thief = open_cache(daemon.endpoint, wait=0, cache=cache.name, dtype="float16")
    assert not thief.wait(1.0) and thief.count([chain(keys(1))]) == [0]
    thief.close()


class _Meanwhile(ArrayPages):
    """A memory during whose copies something happens."""

    def __init__(self, array, happens):
        super().__init__(array)
        self._happens = happens

    def load(self, *copy):
        super().load(*copy)
        self._happens()

    def save(self, *copy):
        super().save(*copy)
        self._happens()


def test_pages_of_a_session_that_ends_under_a_read_are_not_served(cache, daemon):
    names, target = keys(4), np.zeros((4, PAGE_BYTES), np.uint8)
    cache.write([chain(names, pages_of(names))])

    def end():
        pagoda.drop_cache(daemon.endpoint, cache.name, force=True)

    assert cache.read([Chain(names, memory=_Meanwhile(target, end), pages=range(4))]) == [0]
    wait_until(lambda: cache.is_open)  # It opens another session by itself.
    assert cache.write([chain(names, pages_of(names))]) == [4]


def test_pages_whose_writer_ends_before_the_commit_are_not_found(cache, daemon):
    names = keys(4)

    def end():
        pagoda.drop_cache(daemon.endpoint, cache.name, force=True)

    assert cache.write([Chain(names, memory=_Meanwhile(pages_of(names), end), pages=range(4))]) == [0]
    wait_until(lambda: cache.is_open)
    assert cache.count([chain(names)]) == [0]


def test_a_copy_that_raises_stores_nothing_and_holds_nothing(cache, daemon):
    names = keys(4)

    def fail():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        cache.write([Chain(names, memory=_Meanwhile(pages_of(names), fail), pages=range(4))])
    assert cache.count([chain(names)]) == [0]
    with pagoda.connect(daemon.endpoint, cache=cache.name) as client:
        wait_until(lambda: client.status().windows[0].tiers[0].active_blocks == 0)


def test_a_full_tier_is_a_miss(cache):
    full = keys(256, "full")
    cache.write(singles(full, pages_of(full)))
    holds = [hold for hold in cache.hold(singles(full)) if hold is not None]
    assert len(holds) == 256
    name = keys(1, "one more")
    assert cache.write(singles(name, pages_of(name))) == [0] and cache.read(singles(name, pages_of(name))) == [0]
    cache.release(holds)
    assert cache.write(singles(name, pages_of(name))) == [1]


# --- A daemon that is gone, slow or stopped ---

def _timed(call):
    started = time.monotonic()
    result = call()
    return result, time.monotonic() - started


def _operations(cache, names, target):
    there = singles(names, target)
    return [lambda: cache.count(there), lambda: cache.find(there), lambda: cache.read(there), lambda: cache.write(there),
            lambda: cache.hold(there), lambda: cache.remove(there), cache.clear, cache.usage, lambda: cache.take(there)]


def test_without_a_daemon_nothing_is_found_and_nothing_waits(tmp_path):
    cache = open_cache(f"unix:{tmp_path}/nobody.sock", wait=0)
    target = np.zeros((4, PAGE_BYTES), np.uint8)
    for call in _operations(cache, keys(4), target):
        result, seconds = _timed(call)
        assert not any(result) if isinstance(result, (list, tuple)) else not result
        assert seconds < MARGIN
    assert _timed(cache.close)[1] < 2 * TIMEOUT + 1 + MARGIN


@pytest.mark.parametrize("first", range(9))
def test_a_stopped_daemon_costs_one_operation_its_time_out(tmp_path, first):
    names, target = keys(4), np.zeros((4, PAGE_BYTES), np.uint8)
    with running(tmp_path / "daemon", host="8MiB") as daemon:
        cache = open_cache(daemon.endpoint)
        cache.write(singles(names, pages_of(names)))
        calls = _operations(cache, names, target)
        stop(daemon)
        result, seconds = _timed(calls[first])
        assert seconds < TIMEOUT + MARGIN and (not any(result) if isinstance(result, (list, tuple)) else not result)
        for call in calls:
            assert _timed(call)[1] < MARGIN, "after the first failure no call waits"
        go_on(daemon)
        wait_until(lambda: cache.is_open)
        assert cache.count(singles(names)) == [1] * 4
        cache.close()


def test_a_stop_under_a_read_is_a_miss_within_the_time_out(tmp_path):
    names, target = keys(4), np.zeros((4, PAGE_BYTES), np.uint8)
    with running(tmp_path / "daemon", host="8MiB") as daemon:
        cache = open_cache(daemon.endpoint)
        cache.write(singles(names, pages_of(names)))
        memory = _Meanwhile(target, lambda: stop(daemon))
        result, seconds = _timed(lambda: cache.read([Chain((names[0],), memory=memory, pages=(0,))]))
        assert result == [0] and seconds < TIMEOUT + MARGIN
        go_on(daemon)
        wait_until(lambda: cache.is_open)
        assert cache.read(singles(names, target)) == [1] * 4 and (target == pages_of(names)).all()
        with pagoda.connect(daemon.endpoint, cache=cache.name) as client:
            wait_until(lambda: client.status().windows[0].tiers[0].active_blocks == 0)  # The lost session is closed too.
        cache.close()


def test_a_killed_daemon_is_a_miss_and_found_again(tmp_path):
    names, target = keys(64), np.zeros((64, PAGE_BYTES), np.uint8)
    with running(tmp_path / "daemon", host="8MiB", warm_restart=True) as daemon:
        cache = open_cache(daemon.endpoint)
        assert cache.write(singles(names, pages_of(names))) == [1] * 64
        for _ in range(3):
            time.sleep(0.5)  # The daemon stamps the pages for a restart after the commit.
            wait_until(lambda: stamped_pages(cache) == 64)
            daemon.kill()
            for call in _operations(cache, names, target):
                result, seconds = _timed(call)
                assert seconds < TIMEOUT + MARGIN and (not any(result) if isinstance(result, (list, tuple)) else not result)
            daemon.start()
            wait_until(lambda: cache.is_open)
            assert cache.read(singles(names, target)) == [1] * 64 and (target == pages_of(names)).all()
        cache.close()


def test_a_session_is_not_closed_under_a_write(tmp_path):
    """A close would tell the daemon that no process writes the session's slots any more."""
    names = keys(2)
    copying, done = threading.Event(), threading.Event()

    def linger():
        copying.set()
        assert done.wait(30)

    with running(tmp_path / "daemon", host="8MiB") as daemon:
        cache = open_cache(daemon.endpoint)
        client = client_of(cache)
        results = []
        writing = threading.Thread(target=lambda: results.append(
            cache.write([Chain(names[:1], memory=_Meanwhile(pages_of(names[:1]), linger), pages=(0,))])))
        writing.start()
        assert copying.wait(10)
        stop(daemon)
        assert cache.count(singles(names)) == [0, 0]  # Notices that the daemon does not answer.
        go_on(daemon)
        wait_until(lambda: cache.is_open)
        assert client_of(cache) is not client and cache.write(singles(names[1:], pages_of(names[1:]))) == [1]
        time.sleep(1.0)
        assert not client._closed
        done.set()
        writing.join()
        wait_until(lambda: client._closed)
        assert cache.count(singles(names)) == [results[0][0], 1]
        cache.close()


def test_whatever_happens_no_page_has_another_ones_bytes(tmp_path):
    """Eight threads and a second process' session on a cache that is far too small, and a daemon
    that is killed, stopped and reset."""
    names = keys(2000, "storm")
    stopped = threading.Event()
    faults, served = [], [0]

    def work(cache, seed):
        random = np.random.default_rng(seed)
        target = np.zeros((16, PAGE_BYTES), np.uint8)
        memory = ArrayPages(target)
        while not stopped.is_set():
            some = [names[index] for index in random.integers(len(names), size=16)]
            chains = [Chain((name,), memory=memory, pages=(index,)) for index, name in enumerate(some)]
            try:
                if random.random() < 0.5:
                    target[:] = pages_of(some)
                    cache.write(chains)
                else:
                    target[:] = 0
                    if random.random() < 0.5:
                        cache.find(chains)
                    there = cache.read(chains)
                    served[0] += sum(there)
                    for index, is_there in enumerate(there):
                        if is_there and not (target[index] == page_of(some[index])).all():
                            faults.append(some[index])
            except BaseException as error:
                faults.append(error)

    with running(tmp_path / "daemon", host="8MiB", warm_restart=True) as daemon:
        caches = [open_cache(daemon.endpoint) for _ in range(2)]
        threads = [threading.Thread(target=work, args=(caches[index % 2], index)) for index in range(8)]
        for thread in threads:
            thread.start()
        for happens in (daemon.kill, lambda: None, daemon.kill, caches[0].clear):
            time.sleep(1.5)
            happens()
            if happens == daemon.kill:
                daemon.start()
        stop(daemon)
        time.sleep(2)
        go_on(daemon)
        time.sleep(2)
        stopped.set()
        for thread in threads:
            thread.join()
        assert not faults and served[0] > 1000, (faults[:3], served)
        for cache in caches:
            cache.close()


# --- Costs ---

def test_a_batch_is_one_call_to_look_up_or_read_and_two_to_write(cache, monkeypatch):
    names, target = keys(100), np.zeros((100, PAGE_BYTES), np.uint8)
    client = client_of(cache)
    calls = []
    unary = client._unary
    monkeypatch.setattr(client, "_unary", lambda *call: calls.append(call) or unary(*call))
    for call, most in ((lambda: cache.count(singles(names)), 1), (lambda: cache.write(singles(names, pages_of(names))), 2),
                       (lambda: cache.write(singles(names, pages_of(names))), 2), (lambda: cache.read(singles(names, target)), 1),
                       (lambda: cache.read([chain(names, target)]), 1), (lambda: cache.hold(singles(names)), 2),
                       (lambda: cache.find(singles(names)), 2), (lambda: cache.read(singles(names[:50], target)), 0),
                       (lambda: cache.take(singles(names[50:60])), 0), (lambda: cache.take(singles(names[:50])), 1)):
        calls.clear()
        call()
        assert len(calls) <= most


def test_more_chains_than_a_batch_may_have(daemon):
    names = keys(3000)
    cache = open_cache(daemon.endpoint, host="16MiB")
    assert cache.write(singles(names, pages_of(names))) == [1] * 3000 and cache.count(singles(names)) == [1] * 3000
    target = np.zeros((3000, PAGE_BYTES), np.uint8)
    assert cache.read(singles(names, target)) == [1] * 3000 and (target == pages_of(names)).all()
    cache.close()


@pytest.mark.parametrize("is_found", [False, True])
def test_more_chains_than_a_batch_may_have_are_held_and_loaded_at_once(daemon, is_found):
    names, target = keys(3000), np.zeros((3000, PAGE_BYTES), np.uint8)
    loads = []

    class Counted(ArrayPages):
        def load(self, slots, pages, places):
            super().load(slots, pages, places)
            loads.append(len(pages))

    cache = open_cache(daemon.endpoint, host="16MiB", copy_threads=1)
    cache.write(singles(names, pages_of(names)))
    if is_found:
        assert cache.find(singles(names)) == [1] * 3000
    holds = cache.take(singles(names))
    assert None not in holds and cache.load(holds, Counted(target)) and loads == [3000]
    assert (target == pages_of(names)).all()
    with pagoda.connect(daemon.endpoint, cache=cache.name) as client:
        assert client.status().windows[0].tiers[0].active_blocks == 3000
        cache.release(holds)
        wait_until(lambda: client.status().windows[0].tiers[0].active_blocks == 0)
    cache.close()


LOOK_UPS = """
import sys, time
from keyed_caches import Timed, keys, open_cache, singles, times
cache = open_cache(sys.argv[1])
names = keys(64, "look-up")
print("ready", flush=True)
sys.stdin.readline()
(taken,) = times(int(sys.argv[2]), lambda: cache.count(singles(names)))
print(taken.seconds, flush=True)
cache.close()
"""


@pytest.mark.parametrize("clients", [1, 4])
def test_figures_of_look_ups(cache, daemon, clients, record_property, capsys):
    names = keys(64, "look-up")
    assert cache.write(singles(names, pages_of(names))) == [1] * 64
    processes = [subprocess.Popen([sys.executable, "-c", LOOK_UPS, daemon.endpoint, "300"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  text=True, cwd=__file__.rsplit("/", 1)[0]) for _ in range(clients)]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()
    taken = Timed([seconds for process in processes for seconds in eval(process.stdout.readline())])
    for process in processes:
        assert process.wait(30) == 0
    record_property("look_up", str(taken))
    with capsys.disabled():
        print(f"\nlook-up of 64 keys, {clients} clients: {taken}")
    assert taken.median < 0.05


def test_figures_of_16_mib_beside_memcpy(daemon, record_property, capsys):
    names = keys(16, "mib")
    cache = open_cache(daemon.endpoint, page_bytes=1 << 20, host="32MiB", populate=True)
    source, target = pages_of(names, 1 << 20).copy(), np.zeros((16, 1 << 20), np.uint8)
    time.sleep(0.5)  # Time to map the pool.

    def write_anew():
        cache.write(singles(names, source))

    def forget():
        cache.clear()

    forgotten, written, read, copied = times(30, forget, write_anew, lambda: cache.read(singles(names, target)),
                                             lambda: np.copyto(target, source))
    assert (target == source).all() and forgotten
    lines = [f"store: {written}", f"retrieve: {read}", f"memcpy: {copied}"]
    record_property("figures", "; ".join(lines))
    with capsys.disabled():
        print("\n16 x 1 MiB, " + "; ".join(lines))
    cache.close()
    assert read.least < 20 * copied.least
