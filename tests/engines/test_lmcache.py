"""Pagoda as the L2 cache of LMCache's multi-process mode, with LMCache's own factory of plugins and
its benchmark's keys, objects and runners."""

import json
import os
import pathlib
import re
import select
import subprocess
import sys
import threading
import time
import urllib.request

import numpy as np
import pagoda
import pytest

pytest.importorskip("lmcache", reason="LMCache is not installed")
os.environ.setdefault("LMCACHE_DISABLE_BANNER", "1")

import torch
from keyed_caches import MARGIN, TIMEOUT, go_on, running, stop, times, wait_until
from lmcache.cli.commands.bench.l2_adapter_bench import data, runner
from lmcache.v1.distributed.api import MemoryLayoutDesc, ObjectKey
from lmcache.v1.distributed.l2_adapters import create_l2_adapter
from lmcache.v1.distributed.l2_adapters.plugin_l2_adapter import PluginL2AdapterConfig
from lmcache.v1.memory_management import MemoryFormat, MemoryObjMetadata, TensorMemoryObj
from pagoda.lmcache.adapter import _chain

OBJECT_BYTES = 16 << 10
SHM = pathlib.Path("/dev/shm")
HTTP = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@pytest.fixture
def daemon(tmp_path):
    with running(tmp_path / "daemon", host="128MiB") as daemon:
        yield daemon


def plugin(endpoint, **params):
    return {"type": "plugin", "module_path": "pagoda.lmcache", "class_name": "PagodaL2Adapter",
            "adapter_params": {"endpoint": endpoint, "host": "4MiB", **params}}


def open_adapter(endpoint, **params):
    """Makes the adapter like LMCache's storage manager."""
    return create_l2_adapter(PluginL2AdapterConfig.from_dict(plugin(endpoint, **params)))


@pytest.fixture
def adapter(daemon):
    opened = open_adapter(daemon.endpoint)
    yield opened
    opened.close()


def keys(count, first=0, **changes):
    return [ObjectKey(**{"chunk_hash": (first + index).to_bytes(32, "big"), "model_name": "org/model", "kv_rank": 0x01000100, **changes})
            for index in range(count)]


def objects(count, *, seed=None, size=OBJECT_BYTES, dtype=torch.bfloat16):
    """Memory as LMCache's allocator gives it: one shape, in a piece of a larger buffer."""
    buffer = torch.zeros(count * size, dtype=torch.uint8)
    if seed is not None:
        buffer.copy_(torch.randint(0, 256, buffer.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.uint8))
    shape = torch.Size([2, 4, size // 8 // dtype.itemsize])
    return [TensorMemoryObj(raw_data=buffer[index * size:(index + 1) * size], parent_allocator=None, metadata=MemoryObjMetadata(
        shape=shape, dtype=dtype, address=0, phy_size=size, fmt=MemoryFormat.KV_2LTD, ref_count=1, shapes=[shape], dtypes=[dtype]))
        for index in range(count)]


def layout(size=OBJECT_BYTES, dtype=torch.bfloat16):
    return {0: MemoryLayoutDesc(shapes=[torch.Size([2, 4, size // 8 // dtype.itemsize])], dtypes=[dtype])}


def _wait(fd, poll, seconds=30):
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    deadline = time.monotonic() + seconds
    while (result := poll()) is None:
        assert poller.poll(max(deadline - time.monotonic(), 0) * 1000), "no event"
        os.eventfd_read(fd)
    return result


def store(adapter, names, memory):
    task = adapter.submit_store_task(names, memory)
    done = {}
    return _wait(adapter.get_store_event_fd(), lambda: done.update(adapter.pop_completed_store_tasks()) or done.get(task))


def look_up(adapter, names, described=None):
    task = adapter.submit_lookup_and_lock_task(names, layout() if described is None else described)
    return _wait(adapter.get_lookup_and_lock_event_fd(), lambda: adapter.query_lookup_and_lock_result(task)).get_indices_list()


def load(adapter, names, memory):
    task = adapter.submit_load_task(names, memory)
    return _wait(adapter.get_load_event_fd(), lambda: adapter.query_load_result(task)).get_indices_list()


def equal(these, those):
    return all(torch.equal(this.raw_data, that.raw_data) for this, that in zip(these, those))


# --- Hits ---

def test_objects_are_found_and_loaded_as_they_were_stored(adapter):
    source, target = objects(5, seed=1), objects(6)
    result = store(adapter, keys(5), source)
    assert result.is_successful() and result.bytes_transferred() == 5 * OBJECT_BYTES
    assert look_up(adapter, keys(6)) == [0, 1, 2, 3, 4]
    assert load(adapter, keys(6), target) == [0, 1, 2, 3, 4] and equal(source, target)
    adapter.submit_unlock(keys(6))
    order = [3, 0, 2]
    assert load(adapter, [keys(5)[index] for index in order], target) == [0, 1, 2], "a load works without a look-up"
    assert equal([source[index] for index in order], target)
    usage = adapter.get_usage()
    assert usage.total_bytes_used == 5 * OBJECT_BYTES and usage.total_capacity_bytes >= 4 << 20 - 1
    assert not adapter.supports_global_eviction and adapter.report_status()["is_healthy"]


def test_the_three_events_are_three_descriptors(adapter):
    fds = {adapter.get_store_event_fd(), adapter.get_lookup_and_lock_event_fd(), adapter.get_load_event_fd()}
    assert len(fds) == 3 and min(fds) > 2


def test_a_result_is_given_once(adapter):
    task = adapter.submit_lookup_and_lock_task(keys(2), layout())
    wait_until(lambda: (found := adapter.query_lookup_and_lock_result(task)) is not None and found.popcount() == 0)
    assert adapter.query_lookup_and_lock_result(task) is None and adapter.query_load_result(task) is None


def test_another_server_finds_them(adapter, daemon):
    source, target = objects(3, seed=1), objects(3)
    store(adapter, keys(3), source)
    other = open_adapter(daemon.endpoint)
    assert look_up(other, keys(3)) == [0, 1, 2] and load(other, keys(3), target) == [0, 1, 2] and equal(source, target)
    other.close()


def test_what_is_locked_stays_until_it_is_unlocked(adapter):
    source, target = objects(2, seed=1), objects(2)
    store(adapter, keys(2), source)
    assert look_up(adapter, keys(2)) == [0, 1] and look_up(adapter, keys(1)) == [0]
    for first in range(1000, 1512, 64):  # Twice the capacity of the cache.
        store(adapter, keys(64, first), objects(64, seed=2))
    assert load(adapter, keys(2), target) == [0, 1] and equal(source, target)
    adapter.submit_unlock(keys(2))
    for first in range(2000, 2512, 64):
        store(adapter, keys(64, first), objects(64, seed=2))
    assert look_up(adapter, keys(2)) == [0], "the first key was locked twice"
    adapter.submit_unlock(keys(1))
    adapter.submit_unlock(keys(1))
    for first in range(3000, 3512, 64):
        store(adapter, keys(64, first), objects(64, seed=2))
    assert look_up(adapter, keys(2)) == []


def test_what_a_load_reads_stays_when_another_request_unlocks_it(adapter, monkeypatch):
    """The load has no look-up of its own. While it copies, the lock from the look-up ends, and
    other objects take all slots."""
    source, target = objects(2, seed=1), objects(2)
    store(adapter, keys(2), source)
    assert look_up(adapter, keys(2)) == [0, 1]
    (cache,) = adapter._caches.values()
    copy = cache._copier.copy

    def meanwhile(*arguments):
        monkeypatch.undo()
        adapter.submit_unlock(keys(2))
        wait_until(lambda: not adapter._locks)
        for first in range(1000, 1512, 64):  # Twice the capacity of the cache.
            store(adapter, keys(64, first), objects(64, seed=2))
        copy(*arguments)

    monkeypatch.setattr(cache._copier, "copy", meanwhile)
    assert load(adapter, keys(2), target) == [0, 1] and equal(source, target)
    for first in range(2000, 2512, 64):
        store(adapter, keys(64, first), objects(64, seed=2))
    assert look_up(adapter, keys(2)) == [], "no lock holds them any more"


def test_deleted_objects_are_not_found(adapter):
    told = []

    class Listener:
        def on_l2_keys_stored(self, names, sizes):
            told.append(("stored", names))

        def on_l2_keys_accessed(self, names):
            told.append(("accessed", names))

        def on_l2_keys_deleted(self, names):
            told.append(("deleted", names))

    adapter.register_listener(Listener())
    store(adapter, keys(3), objects(3, seed=1))
    adapter.delete([keys(3)[1], *keys(1, 99)])
    assert look_up(adapter, keys(3)) == [0, 2]
    assert told == [("stored", keys(3)), ("deleted", [keys(3)[1]])]


# --- Misses ---

@pytest.mark.parametrize("change", [{"model_name": "org/other"}, {"kv_rank": 0x02000200}, {"cache_salt": "user"}, {"object_group_id": 1}])
def test_another_key_is_another_object(adapter, change):
    store(adapter, keys(2), objects(2, seed=1))
    described = layout() | {1: layout()[0]}
    assert look_up(adapter, keys(2, **change), described) == [] and load(adapter, keys(2, **change), objects(2)) == []
    store(adapter, keys(2, **change), objects(2, seed=2))
    target = objects(2)
    assert load(adapter, keys(2), target) == [0, 1] and equal(target, objects(2, seed=1))
    assert load(adapter, keys(2, **change), target) == [0, 1] and equal(target, objects(2, seed=2))


@pytest.mark.parametrize("change", [{"dtype": torch.float16}, {"size": OBJECT_BYTES // 2}])
def test_another_type_or_size_is_a_miss(adapter, change):
    """LMCache's keys name neither."""
    store(adapter, keys(2), objects(2, seed=1))
    assert look_up(adapter, keys(2), layout(**change)) == [] and load(adapter, keys(2), objects(2, **change)) == []
    assert look_up(adapter, keys(2)) == [0, 1]


@pytest.mark.parametrize("change", [{"revision": "r2"}, {"dtype": "fp8_e5m2"}])
def test_what_only_the_configuration_says_is_a_miss(adapter, daemon, change):
    store(adapter, keys(2), objects(2, seed=1))
    other = open_adapter(daemon.endpoint, **change)
    assert look_up(other, keys(2)) == [] and load(other, keys(2), objects(2)) == []
    other.close()


def test_objects_of_many_sizes_are_misses(adapter):
    stored = [store(adapter, keys(1, size), objects(1, seed=1, size=size << 10)).is_successful() for size in (1, 2, 4, 8, 16, 32)]
    assert stored == [True] * 4 + [False] * 2


def test_a_full_cache_is_a_failed_store(adapter):
    for first in range(0, 256, 64):
        store(adapter, keys(64, first), objects(64, seed=1))
        assert len(look_up(adapter, keys(64, first))) == 64
    assert not store(adapter, keys(1, 1000), objects(1, seed=2)).is_successful()
    adapter.submit_unlock(keys(256))
    wait_until(lambda: store(adapter, keys(1, 1000), objects(1, seed=2)).is_successful())


# --- Bytes overwritten behind the daemon's back ---

def _bytes(memory):
    return memory.raw_data.numpy().tobytes()


def bad_blocks(daemon):
    """Blocks that the daemon has found wrong on its disk."""
    with HTTP.open(f"http://{daemon.http}/metrics") as reply:
        return sum(int(count) for count in re.findall(r'pagoda_disk_errors_total\{.*kind="bad_block"\} (\d+)', reply.read().decode()))


def _overwrite(path, old, new, before=0):
    """Puts `new` in the place of `old`, and of so many bytes before it."""
    with open(path, "r+b") as file:
        place = file.read().find(old)
        assert place >= before
        file.seek(place - before)
        file.write(new)
        os.fsync(file.fileno())


def test_objects_that_were_overwritten_on_disk_are_misses(tmp_path):
    """Damage by a flipped bit, by zeros, by another object's bytes, and by another object's whole
    part of the file."""
    names, source, target = keys(256), objects(256, seed=1), objects(6)
    with running(tmp_path / "daemon", host="64MiB", disk="64MiB") as daemon:
        adapter = open_adapter(daemon.endpoint, host="1MiB", disk="16MiB", fetch_deadline=5.0)
        for first in range(0, 256, 16):
            store(adapter, names[first:first + 16], source[first:first + 16])
            (file,) = (tmp_path / "daemon/disk").rglob("*.slab")
            wait_until(lambda: (there := file.read_bytes()) and all(_bytes(one) in there for one in source[first:first + 16]))
        (cache,) = adapter.report_status()["caches"]
        with pagoda.connect(daemon.endpoint, cache=cache) as client:
            for name in names[:6]:
                found = client.match(keys=_chain(name).keys)
                assert found.matched_tokens == 0 < found.cached_tokens, "it is only on disk"
        whole = file.read_bytes()
        header = whole[(place := whole.find(_bytes(source[8]))) - 4096:place]
        _overwrite(file, _bytes(source[0]), bytes([_bytes(source[0])[0] ^ 1]))
        _overwrite(file, _bytes(source[1]), bytes(OBJECT_BYTES))
        _overwrite(file, _bytes(source[2]), _bytes(source[7]))
        _overwrite(file, _bytes(source[3]), header + _bytes(source[8]), before=4096)
        assert look_up(adapter, names[:6]) == [4, 5]
        assert load(adapter, names[:6], target) == [4, 5] and equal(target[4:], source[4:6])
        assert bad_blocks(daemon) == 4
        adapter.close()


def _stamped(cache):
    """Blocks that a restart would find: the lowest bit of the first word of each stamp
    (manager/restart/slot_stamps.h)."""
    (path,) = SHM.glob(f"pagoda-{cache}-*-stamps")
    memory = path.read_bytes()
    slots, stride = int.from_bytes(memory[20:24], "little"), int.from_bytes(memory[24:32], "little")
    return sum(memory[4096 + slot * stride] & 1 for slot in range(slots))


def test_objects_that_were_overwritten_in_a_dead_daemons_memory_are_misses(tmp_path):
    """The next daemon finds the others, and these by none of their bytes."""
    names, source, target = keys(8), objects(8, seed=1), objects(8)
    with running(tmp_path / "daemon", host="32MiB", warm_restart=True) as daemon:
        cache = f"overwritten-{os.getpid()}"  # Only this test makes files of that name.
        adapter = open_adapter(daemon.endpoint, cache=cache)
        assert store(adapter, names, source).is_successful()
        wait_until(lambda: _stamped(cache) == 8)
        daemon.kill()
        (pool,) = (path for path in SHM.glob(f"pagoda-{cache}-*") if _bytes(source[0]) in path.read_bytes())
        _overwrite(pool, _bytes(source[0]), bytes([_bytes(source[0])[0] ^ 1]))
        _overwrite(pool, _bytes(source[1]), _bytes(source[7]))
        daemon.start()
        found = []
        wait_until(lambda: found.extend(look_up(adapter, names)) or found)
        assert found == [2, 3, 4, 5, 6, 7]
        assert load(adapter, names, target) == [2, 3, 4, 5, 6, 7] and equal(target[2:], source[2:])
        adapter.close()


def test_whatever_is_overwritten_no_object_has_other_bytes(tmp_path):
    """Four servers over memory for a fifth of their objects and a disk for all of them. Bytes are
    overwritten meanwhile."""
    names, source = keys(300), objects(300, seed=1)
    stopped = threading.Event()
    faults, served = [], []

    def work(adapter, seed):
        rng = np.random.default_rng(seed)
        target = objects(8)
        while not stopped.is_set():
            some = rng.choice(len(names), size=8, replace=False).tolist()
            asked = [names[index] for index in some]
            try:
                if rng.random() < 0.4:
                    store(adapter, asked, [source[index] for index in some])
                    continue
                is_looked_up = rng.random() < 0.5
                found = look_up(adapter, asked) if is_looked_up else []
                loaded = load(adapter, asked, target)
                faults.extend(some[index] for index in loaded if not equal([target[index]], [source[some[index]]]))
                served.append(len(loaded))
                if is_looked_up:
                    adapter.submit_unlock([asked[index] for index in found])
            except BaseException as error:
                faults.append(error)

    with running(tmp_path / "daemon", host="64MiB", disk="64MiB") as daemon:
        adapters = [open_adapter(daemon.endpoint, host="1MiB", disk="16MiB", fetch_deadline=0.2) for _ in range(4)]
        threads = [threading.Thread(target=work, args=(adapter, seed)) for seed, adapter in enumerate(adapters)]
        for thread in threads:
            thread.start()
        rng = np.random.default_rng(9)
        deadline = time.monotonic() + 60
        try:
            wait_until(lambda: sum(served) > 0)
            (file,) = (tmp_path / "daemon/disk").rglob("*.slab")
            while time.monotonic() < deadline and (sum(served) < 2000 or bad_blocks(daemon) < 5) and not faults:
                time.sleep(0.05)
                with open(file, "r+b") as opened:
                    opened.seek(int(rng.integers(8192, file.stat().st_size)))  # A byte behind the superblocks.
                    opened.write(b"?")
        finally:
            stopped.set()
            for thread in threads:
                thread.join()
        assert not faults and sum(served) >= 2000 and bad_blocks(daemon) >= 5, (faults[:3], sum(served), bad_blocks(daemon))
        for adapter in adapters:
            adapter.close()


def test_what_is_misspelt_is_said_at_the_start(daemon):
    with pytest.raises(ValueError, match="endpiont"):
        open_adapter(daemon.endpoint, endpiont="x")


def test_without_lmcache_the_import_says_so():
    code = "import sys; sys.modules['lmcache'] = None\nimport pagoda.lmcache"
    failed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "pagoda.lmcache runs inside LMCache (pip install lmcache), which is not installed here" in failed.stderr


# --- A daemon that is gone or stopped ---

def _timed(call, *expected):
    started = time.monotonic()
    assert call() in expected
    return time.monotonic() - started


def test_without_a_daemon_only_the_first_task_waits(tmp_path):
    adapter = open_adapter(f"unix:{tmp_path}/nobody.sock")
    calls = [lambda: look_up(adapter, keys(2)), lambda: load(adapter, keys(2), objects(2)),
             lambda: store(adapter, keys(2), objects(2)).is_successful()]
    assert _timed(calls[0], []) < TIMEOUT + MARGIN
    for call in calls:
        assert _timed(call, [], False) < MARGIN
    assert not adapter.report_status()["is_healthy"] and adapter.get_usage().total_bytes_used == 0
    adapter.close()


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_a_daemon_that_goes_costs_a_time_out_and_is_found_again(tmp_path, how):
    source, target = objects(2, seed=1), objects(2)
    with running(tmp_path / "daemon", host="32MiB", warm_restart=True) as daemon:
        adapter = open_adapter(daemon.endpoint)
        assert store(adapter, keys(2), source).is_successful() and look_up(adapter, keys(2)) == [0, 1]
        time.sleep(0.5)  # The daemon stamps the objects for a restart after the commit.
        daemon.kill() if how == "kill" else stop(daemon)
        assert _timed(lambda: load(adapter, keys(2), target), []) < TIMEOUT + MARGIN, "locked objects are not confirmed, so nothing is loaded"
        for call in (lambda: look_up(adapter, keys(2)), lambda: load(adapter, keys(2), target),
                     lambda: store(adapter, keys(2), source).is_successful()):
            assert _timed(call, [], False) < MARGIN
        adapter.submit_unlock(keys(2))
        daemon.start() if how == "kill" else go_on(daemon)
        wait_until(lambda: look_up(adapter, keys(2)) == [0, 1])
        assert load(adapter, keys(2), target) == [0, 1] and equal(source, target)
        adapter.close()


# --- LMCache's own storage manager over it ---

def _manager(endpoint):
    from lmcache.v1.distributed.config import EvictionConfig, L1ManagerConfig, L1MemoryManagerConfig, StorageManagerConfig
    from lmcache.v1.distributed.l2_adapters.config import L2AdaptersConfig
    from lmcache.v1.distributed.storage_manager import StorageManager

    return StorageManager(StorageManagerConfig(
        L1ManagerConfig(L1MemoryManagerConfig(size_in_bytes=8 << 20, use_lazy=False, shm_name="")), EvictionConfig("LRU"),
        L2AdaptersConfig([PluginL2AdapterConfig.from_dict(plugin(endpoint))])))


def _prefetch(manager, names):
    """The indices that are in LMCache's memory then, and how many of them came from Pagoda."""
    from lmcache.v1.distributed.api import GroupedObjectKeys, PrefetchTaskSpec

    handle = manager.submit_prefetch_task(PrefetchTaskSpec([GroupedObjectKeys(names, 0, layout()[0])]))
    assert manager.wait_prefetch_status(handle, 10)
    result = manager.query_prefetch_status(handle)
    return result.hit_cells[0].get_indices_list() if result.hit_cells else [], result.l2_hit_count


def test_lmcaches_storage_manager_stores_and_prefetches(tmp_path):
    names = keys(8)
    with running(tmp_path / "daemon", host="32MiB") as daemon:
        manager = _manager(daemon.endpoint)
        reserved = manager.reserve_write(names, layout()[0])
        contents = {}
        for index, (name, memory) in enumerate(reserved.items()):
            memory.raw_data[:OBJECT_BYTES] = index + 1
            contents[name] = index + 1
        assert len(contents) == 8
        manager.finish_write(names)
        (adapter,) = [adapter for _, adapter in manager.l2_adapters()]
        wait_until(lambda: sum(cache["written_pages"] for cache in adapter.report_status()["caches"].values()) == 8)
        manager.close()
        # Another server has nothing in its memory.
        manager = _manager(daemon.endpoint)
        assert _prefetch(manager, names + keys(2, 100)) == (list(range(8)), 8)
        with manager.read_prefetched_results(names) as found:
            assert [bytes(memory.byte_array) for memory in found] == [bytes([contents[name]]) * OBJECT_BYTES for name in names]
        manager.finish_read_prefetched(names)
        (adapter,) = [adapter for _, adapter in manager.l2_adapters()]
        wait_until(lambda: not adapter._locks)  # The objects are unlocked.
        stop(daemon)
        started = time.monotonic()
        assert _prefetch(manager, keys(4, 200))[0] == [] and time.monotonic() - started < TIMEOUT + MARGIN
        go_on(daemon)
        manager.close()


# --- LMCache's benchmark ---

def _bench(spec, tmp_path):
    command = [sys.executable, "-c", "import sys; from lmcache.cli.main import main; sys.exit(main())", "bench", "l2", "--l2-adapter",
               json.dumps(spec), "--num-keys", "16", "--data-size-kb", "1024", "--warmup-rounds", "3", "--rounds", "20",
               "--lookup-max-hit-rate", "1", "--no-skip-verify", "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "All 16 keys data verified OK." in done.stdout
    text = done.stdout[done.stdout.index("\n{") + 1:]
    return json.JSONDecoder().raw_decode(text)[0]["metrics"]


def test_figures_of_lmcaches_benchmark(tmp_path, record_property, capsys):
    """Beside LMCache's own adapters: files in memory, and a dictionary."""
    files = tmp_path / "files"
    files.mkdir()
    specs = {"mock": {"type": "mock", "max_size_gb": 2, "mock_bandwidth_gb": 1000}}
    try:
        import aiofiles  # noqa: F401

        specs["fs"] = {"type": "fs", "base_path": str(files)}
    except ImportError:
        pass
    with running(tmp_path / "daemon", host="640MiB") as daemon:
        specs["pagoda"] = plugin(daemon.endpoint, host="600MiB", populate=True)
        lines = []
        for name, spec in specs.items():
            metrics = _bench(spec, tmp_path)
            figures = []
            for row in (value for key, value in metrics.items() if key.startswith("op_")):
                assert row["total_success"] == 320 and row["rounds_timed_out"] == 0
                figures.append(f"{row['operation'].lower()} p50 {row['duration_p50_ms']} ms, p99 {row['duration_p99_ms']} ms")
            lines.append(f"{name}: " + "; ".join(figures))
    record_property("lmcache_bench_l2", "\n".join(lines))
    with capsys.disabled():
        print("\nlmcache bench l2, 16 x 1 MiB\n" + "\n".join(lines))


def test_figures_of_16_mib_beside_memcpy(tmp_path, record_property, capsys):
    """With the pool mapped, which the benchmark's first rounds still wait for."""
    with running(tmp_path / "daemon", host="640MiB") as daemon:
        adapter = open_adapter(daemon.endpoint, host="600MiB", populate=True)
        buffer = data.make_aligned_tensor(32 << 20)
        buffer.fill_(1)
        source, target = (data.make_memory_objects(buffer, 16, 1 << 20, first << 20) for first in (0, 16))
        store(adapter, data.make_object_keys(1, key_offset=1 << 20), source[:1])
        time.sleep(2)
        rounds = {"rounds": 25, "log": lambda line: None}
        each = {"in_flight": 1, "num_keys": 16, "keys_for_round": lambda r: [data.make_object_keys(16, key_offset=16 * r)]}
        results = [runner.bench_store(adapter, data_size=1 << 20, objs_for_round=lambda r: [source], **each, **rounds),
                   runner.bench_lookup(adapter, **each, **rounds),
                   runner.bench_load(adapter, data_size=1 << 20, objs_for_round=lambda r: [target], **each, **rounds)]
        copies = [np.ones(16 << 20, np.uint8) for _ in range(2)]
        (copied,) = times(25, lambda: np.copyto(*copies))
        lines = [f"{result.operation.lower()} p50 {1e3 * result.p50_duration:.2f} ms, p99 {1e3 * result.p99_duration:.2f} ms"
                 for result in results]
        assert all(sum(result.success_counts) == 400 for result in results)
        adapter.close()
    record_property("lmcache_warm", "; ".join(lines))
    with capsys.disabled():
        print("\n16 x 1 MiB, the pool mapped: " + "; ".join(lines) + f"; memcpy {copied}")
