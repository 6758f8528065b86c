"""Pagoda below SGLang's host cache, with torch instead of SGLang's kernels (sglang_on_cpu.py)."""

import dataclasses
import json
import subprocess
import sys
import time
from array import array

import numpy as np
import pagoda
import pytest

pytest.importorskip("sglang", reason="SGLang is not installed")

import sglang_on_cpu as sg
import torch
from keyed_caches import MARGIN, TIMEOUT, go_on, keys, running, stop, times, wait_until
from sglang.srt.mem_cache.hicache_storage import HiCacheStorageExtraInfo, PoolHitPolicy, PoolName, PoolTransfer


@pytest.fixture
def daemon(tmp_path):
    with running(tmp_path / "daemon", host="256MiB") as daemon:
        yield daemon


@pytest.fixture
def made(daemon):
    """made(pool, **config): a storage, closed at the end."""
    storages = []

    def make(pool, **changes):
        storages.append(sg.storage(daemon.endpoint, pool, **changes))
        return storages[-1]

    yield make
    for storage in storages:
        storage.close()


def names(count, salt=""):
    """SGLang's names of pages."""
    return [key.hex() for key in keys(count, salt)]


# --- Pages ---

@pytest.mark.parametrize("layout", sg.MHA_LAYOUTS)
def test_mha_pages_return_to_where_the_layout_has_them(made, layout):
    source, target = sg.mha_pool(layout), sg.mha_pool(layout)
    sg.fill(source, 1)
    sg.fill(target, 2)
    storage = made(source)
    assert storage.batch_set_v1(names(5), sg.indices(source, [6, 1, 2, 3, 0])) == [True] * 5
    reader = made(target)
    assert reader.batch_exists(names(8)) == 5
    assert reader.batch_get_v1(names(5), sg.indices(target, [0, 5, 6, 7, 2])) == [True] * 5
    for there, here in zip([6, 1, 2, 3, 0], [0, 5, 6, 7, 2]):
        assert sg.page_bytes(target, here) == sg.page_bytes(source, there)
    untouched = sg.mha_pool(layout)
    sg.fill(untouched, 2)
    for page in (1, 3, 4, 8):
        assert sg.page_bytes(target, page) == sg.page_bytes(untouched, page)


@pytest.mark.parametrize("layout", sg.MLA_LAYOUTS)
def test_mla_pages_are_written_by_one_rank_and_read_by_all(made, layout):
    pools = [sg.mla_pool(layout) for _ in range(2)]
    for seed, pool in enumerate(pools):
        sg.fill(pool, seed)
    other, writer = (made(pools[rank], mla=True, tp_rank=rank, tp_size=2) for rank in (1, 0))
    assert other.batch_set_v1(names(4), sg.indices(pools[1], range(4))) == [True] * 4
    assert other.batch_exists(names(4)) == 0
    assert writer.batch_set_v1(names(4), sg.indices(pools[0], range(4))) == [True] * 4
    assert other.batch_exists(names(4)) == 4
    assert other.batch_get_v1(names(4), sg.indices(pools[1], [4, 5, 6, 7])) == [True] * 4
    assert [sg.page_bytes(pools[1], page) for page in (4, 5, 6, 7)] == [sg.page_bytes(pools[0], page) for page in range(4)]
    assert writer._pools["kv"].cache.name == other._pools["kv"].cache.name


@pytest.mark.parametrize("layout", sg.MHA_LAYOUTS)
def test_two_ranks_read_what_one_rank_wrote_and_the_other_way(made, layout):
    """Four heads: rank r of two has heads 2r and 2r + 1."""
    whole, back = sg.mha_pool(layout), sg.mha_pool(layout)
    halves = [sg.mha_pool(layout, heads=2) for _ in range(2)]
    sg.fill(whole, 1)
    one = made(whole, tp_lcm_size=2)
    two = [made(half, tp_rank=rank, tp_size=2, tp_lcm_size=2) for rank, half in enumerate(halves)]
    assert one.batch_set_v1(names(3), sg.indices(whole, [0, 1, 2])) == [True] * 3
    for rank, half in enumerate(halves):
        assert two[rank].batch_exists(names(3)) == 3
        assert two[rank].batch_get_v1(names(3), sg.indices(half, [5, 6, 7])) == [True] * 3
    heads = whole.kv_buffer.ndim - 2 if layout != "page_head" else 2
    assert torch.equal(torch.cat([_pages(half, [5, 6, 7]) for half in halves], heads).view(torch.uint8),
                       _pages(whole, [0, 1, 2]).view(torch.uint8))
    new = names(3, "new")
    for rank, half in enumerate(halves):
        assert made(back, tp_lcm_size=2).batch_exists(new) == 0, "a page needs both parts"
        assert two[rank].batch_set_v1(new, sg.indices(half, [5, 6, 7])) == [True] * 3
    assert made(back, tp_lcm_size=2).batch_get_v1(new, sg.indices(back, [3, 4, 5])) == [True] * 3
    assert torch.equal(_pages(back, [3, 4, 5]).view(torch.uint8), _pages(whole, [0, 1, 2]).view(torch.uint8))


def _pages(pool, pages):
    """Their values, in the axes of the pool's memory."""
    tokens = sg.indices(pool, pages)
    by_tokens = {"layer_first": 2, "page_first": 1}
    if pool.layout in by_tokens:
        return pool.kv_buffer.index_select(by_tokens[pool.layout], tokens)
    return pool.kv_buffer[:, pages]


def test_without_a_common_multiple_ranks_of_another_number_share_nothing(made):
    whole, half = sg.mha_pool("page_first"), sg.mha_pool("page_first", heads=2)
    sg.fill(whole, 1)
    assert made(whole).batch_set_v1(names(2), sg.indices(whole, [0, 1])) == [True] * 2
    ranks = [made(half, tp_rank=rank, tp_size=2) for rank in range(2)]
    assert [rank.batch_exists(names(2)) for rank in ranks] == [0, 0]
    assert ranks[0].batch_set_v1(names(2), sg.indices(half, [0, 1])) == [True] * 2
    assert [rank.batch_exists(names(2)) for rank in ranks] == [2, 0]


def test_pages_whose_heads_do_not_divide_are_each_ranks_own(made):
    pool = sg.mha_pool("page_first", heads=1)
    assert made(pool, tp_rank=0, tp_size=2, tp_lcm_size=4).batch_set_v1(names(2), sg.indices(pool, [0, 1])) == [True] * 2
    assert made(pool, tp_rank=0, tp_size=2, tp_lcm_size=4).batch_exists(names(2)) == 2
    assert made(pool, tp_rank=1, tp_size=2, tp_lcm_size=4).batch_exists(names(2)) == 0


@pytest.mark.parametrize("change", [{"model": "org/other"}, {"revision": "r2"}, {"dtype": "fp8_e5m2"}, {"pp_size": 2}, "float16",
                                    "layout"])
def test_what_is_not_the_same_kv_is_a_miss(made, change):
    pool = sg.mha_pool("page_first")
    assert made(pool).batch_set_v1(names(2), sg.indices(pool, [0, 1])) == [True] * 2
    assert made(pool).batch_exists(names(2)) == 2
    if change == "float16":
        other = made(sg.mha_pool("page_first", dtype=torch.float16))
    elif change == "layout":
        other = made(sg.mha_pool("page_first_direct"))
    else:
        other = made(pool, **change)
    assert other.batch_exists(names(2)) == 0
    target = torch.zeros(2 * pool.page_size, dtype=torch.int64)
    assert other.batch_get_v1(names(2), sg.indices(pool, [2, 3])) == [False, False] and target.numel()


# --- Chains ---

def _after(prefix):
    return HiCacheStorageExtraInfo(prefix_keys=prefix)


def test_keys_behind_their_prefix_are_one_chain(made, daemon):
    pool = sg.mha_pool("page_first")
    sg.fill(pool, 1)
    storage = made(pool)
    text = names(8)
    assert storage.batch_set_v1(text[:3], sg.indices(pool, [0, 1, 2]), _after([])) == [True] * 3
    assert storage.batch_set_v1(text[3:6], sg.indices(pool, [3, 4, 5]), _after(text[:3])) == [True] * 3
    assert storage.batch_exists(text, _after([])) == 6
    assert storage.batch_exists(text, _after(None)) == 6, "SGLang passes no prefix if the prefix is empty"
    assert storage.batch_exists(text[4:], _after(text[:4])) == 2
    assert storage.batch_exists(text[4:], _after(text[1:4])) == 0
    assert storage.batch_get_v1(text[4:7], sg.indices(pool, [6, 7, 8]), _after(text[:4])) == [True, True, False]
    assert [sg.page_bytes(pool, page) for page in (6, 7)] == [sg.page_bytes(pool, page) for page in (4, 5)]
    assert storage.batch_set_v1(names(2, "far"), sg.indices(pool, [0, 1]), _after(names(1, "unknown"))) == [False, False]


# --- Pools beside the KV ---

class StatePool:
    """Behaves like MambaPoolHost: pages of one index, in two parts."""

    page_size, layout, dtype, start_layer, end_layer = 1, "page_first", torch.uint8, 0, 1

    def __init__(self, count):
        self.kv_buffer = [torch.zeros(count, 2, 200, dtype=torch.uint8), torch.zeros(count, 312, dtype=torch.uint8)]

    def get_page_buffer_meta(self, indices):
        parts = [(part.data_ptr(), part[0].numel()) for part in self.kv_buffer]
        pointers = [address + index * size for index in indices.tolist() for address, size in parts]
        return pointers, [size for _ in indices for _, size in parts]


class FlatPool(StatePool):
    """A pool that gives pages as tensors only."""

    layout = "layer_first"

    def get_page_buffer_meta(self, indices):
        raise ValueError("not in this layout")

    def get_dummy_flat_data_page(self):
        return torch.zeros(712, dtype=torch.uint8)

    def get_data_page(self, index, flat=True):
        return torch.cat([part[index].flatten() for part in self.kv_buffer])

    def set_from_flat_data_page(self, index, page):
        self.kv_buffer[0][index] = page[:400].view(2, 200)
        self.kv_buffer[1][index] = page[400:]


@pytest.mark.parametrize("kind", [StatePool, FlatPool])
def test_states_beside_the_kv_are_found_at_the_ends_that_have_them(made, kind):
    pool, states = sg.mha_pool("page_first"), kind(8)
    for part in states.kv_buffer:
        part.copy_(torch.randint(0, 256, part.shape, dtype=torch.uint8))
    text = names(6)
    storage = made(pool, pools={"mamba": {"host": "4MiB"}})
    storage.register_mem_host_pool_v2(pool, PoolName.KV)
    storage.register_mem_host_pool_v2(states, PoolName.MAMBA)
    assert storage.batch_set_v1(text, sg.indices(pool, range(6))) == [True] * 6
    ask = [PoolTransfer(name=PoolName.MAMBA, keys=text[-1:], hit_policy=PoolHitPolicy.TRAILING_PAGES)]
    result = storage.batch_exists_v2(text, ask)
    assert (result.kv_hit_pages, result.restorable_prefix_pages) == (0, [])
    at_ends = PoolTransfer(name=PoolName.MAMBA, keys=[text[1], text[4]], host_indices=torch.tensor([3, 5]))
    assert storage.batch_set_v2([at_ends]) == {PoolName.MAMBA: [True, True]}
    result = storage.batch_exists_v2(text, ask)
    assert (result.kv_hit_pages, result.restorable_prefix_pages) == (5, [2, 5])
    assert result.extra_pool_hit_pages == {PoolName.KV: 6, PoolName.MAMBA: 5}
    back = PoolTransfer(name=PoolName.MAMBA, keys=[text[4], text[5]], host_indices=torch.tensor([0, 1]))
    assert storage.batch_get_v2([back]) == {PoolName.MAMBA: [True, False]}
    assert all(torch.equal(part[0], part[5]) for part in states.kv_buffer)
    every_page = [PoolTransfer(name=PoolName.MAMBA, keys=text, hit_policy=PoolHitPolicy.ALL_PAGES)]
    assert storage.batch_exists_v2(text, every_page).kv_hit_pages == 0


def test_an_anchor_without_memory_has_every_page(made):
    class Anchor:
        kv_buffer, page_size, layout = None, 4, "layer_first"

    storage = made(Anchor())
    assert storage.batch_exists(names(3)) == 3 and storage.batch_get_v1(names(3), torch.arange(12)) == [True] * 3
    assert storage.batch_set_v1(names(3), torch.arange(12)) == [True] * 3


# --- The calls with tensors ---

@pytest.mark.parametrize("layout, lcm", [(layout, lcm) for layout in sg.MHA_LAYOUTS for lcm in (None, 2)])
def test_pages_in_tensors_are_the_same_pages(made, layout, lcm):
    pool = sg.mha_pool(layout)
    sg.fill(pool, 1)
    storage, same = made(pool, interface_v1=0, tp_lcm_size=lcm), made(pool, tp_lcm_size=lcm)
    pages = [pool.get_data_page(page * pool.page_size) for page in range(3)]
    assert storage.batch_set(names(3), pages) and storage.set(names(4)[3], pool.get_data_page(0))
    assert storage.exists(names(1)[0]) and not storage.exists("another key") and storage.batch_exists(names(5)) == 4
    found = storage.batch_get(names(5), [pool.get_dummy_flat_data_page() for _ in range(5)])
    assert [torch.equal(found[index].view(torch.uint8), pages[index].view(torch.uint8)) for index in range(3)] == [True] * 3
    assert found[4] is None and storage.get("another key", pool.get_dummy_flat_data_page()) is None
    assert same.batch_get_v1(names(3), sg.indices(pool, [5, 6, 7])) == [True] * 3
    assert [sg.page_bytes(pool, page) for page in (5, 6, 7)] == [sg.page_bytes(pool, page) for page in range(3)]
    assert storage.clear() and same.batch_exists(names(3)) == 0


def test_what_is_misspelt_is_said_at_the_start(daemon):
    with pytest.raises(ValueError, match="endpiont"):
        sg.storage(daemon.endpoint, sg.mha_pool("page_first"), endpiont="x")
    with pytest.raises(ValueError, match="timeout is seconds"):
        sg.storage(daemon.endpoint, sg.mha_pool("page_first"), timeout="fast")


def test_without_sglang_the_import_says_so(tmp_path):
    code = "import sys; sys.modules['sglang'] = None\nimport pagoda.sglang"
    failed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "pagoda.sglang runs inside SGLang (pip install sglang), which is not installed here" in failed.stderr


# --- A daemon that is gone or stopped ---

def _calls(storage, pool):
    tensors = [pool.get_dummy_flat_data_page() for _ in range(2)]
    return [lambda: storage.batch_exists(names(2)) == 0, lambda: not any(storage.batch_get_v1(names(2), sg.indices(pool, [0, 1]))),
            lambda: not any(storage.batch_set_v1(names(2), sg.indices(pool, [0, 1]))),
            lambda: storage.batch_exists_v2(names(2), []).kv_hit_pages == 0, lambda: storage.batch_get(names(2), tensors) == [None, None],
            lambda: not storage.batch_set(names(2), tensors), lambda: not storage.clear()]


def test_without_a_daemon_sglang_starts_and_finds_nothing(tmp_path):
    pool = sg.mha_pool("page_first")
    storage = sg.storage(f"unix:{tmp_path}/nobody.sock", pool, start_timeout=0.2)
    for call in _calls(storage, pool):
        started = time.monotonic()
        assert call() and time.monotonic() - started < MARGIN
    storage.close()


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_a_daemon_that_goes_costs_a_time_out_and_is_found_again(tmp_path, how):
    pool = sg.mha_pool("page_first")
    with running(tmp_path / "daemon", host="32MiB", warm_restart=True) as daemon:
        storage = sg.storage(daemon.endpoint, pool)
        assert storage.batch_set_v1(names(2), sg.indices(pool, [0, 1])) == [True, True]
        time.sleep(0.5)  # The daemon stamps the pages for a restart after the commit.
        daemon.kill() if how == "kill" else stop(daemon)
        for call in _calls(storage, pool):
            started = time.monotonic()
            assert call() and time.monotonic() - started < TIMEOUT + MARGIN
        daemon.start() if how == "kill" else go_on(daemon)
        wait_until(lambda: storage.batch_exists(names(2)) == 2)
        storage.close()


# --- SGLang's own cache over it ---

@pytest.fixture
def radix_cache(daemon, monkeypatch):
    """radix_cache(test): SGLang's fixtures of its storage tests, with Pagoda for its files."""
    import unittest

    from sglang.test.kits.unified_radix_cache import fixtures, storage

    monkeypatch.setattr(fixtures, "get_device", lambda *_: "cpu")
    sg.use_torch_for_copies(monkeypatch)

    class Fixtures(storage.UnifiedRadixCacheStorageFixtures, unittest.TestCase):
        layout, extra = "layer_first", {}

        def runTest(self):
            pass

        def _init_hicache(self, cache, **options):
            real = fixtures.ServerArgs
            monkeypatch.setattr("sglang.test.kits.unified_radix_cache.mixins.ServerArgs",
                                lambda **given: real(**{**given, **_dynamic(given, daemon, self.layout, self.extra)}))
            super()._init_hicache(cache, **options)
            for entry in cache.cache_controller.mem_pool_host.entries:
                entry.host_pool.pin_memory = False  # No driver can pin memory here.

    tests = []

    def make(cfg, layout="layer_first", **extra):
        test = Fixtures()
        test.cfg, test.layout, test.extra = cfg, layout, extra
        tests.append(test)
        return test

    yield make
    for test in tests:
        test.doCleanups()


def _dynamic(given, daemon, layout, extra):
    if given.get("hicache_storage_backend") != "file":
        return {"hicache_mem_layout": layout}
    told = json.loads(given["hicache_storage_backend_extra_config"] or "{}")
    return {"hicache_mem_layout": layout, "hicache_storage_backend": "dynamic",
            "hicache_storage_backend_extra_config": json.dumps({**told, **sg.extra_config(daemon.endpoint), **extra})}


def _configs():
    from sglang.test.kits.unified_radix_cache.config import CONFIGS, CacheConfig, ComponentType

    return [CONFIGS[1], CONFIGS[3], CacheConfig(page_size=4, components=(ComponentType.FULL, ComponentType.SWA), sliding_window_size=4)]


@pytest.mark.parametrize("layout", ["layer_first", "page_first"])
@pytest.mark.parametrize("index", range(3))
@pytest.mark.parametrize("extra", [{"interface_v1": 1}, {"interface_v1": 0}, {"interface_v1": 1, "hicache_storage_pass_prefix_keys": True}
                                   ], ids=["v1", "tensors", "chains"])
def test_one_radix_cache_reads_what_another_one_stored(radix_cache, layout, index, extra):
    test = radix_cache(_configs()[index], layout, **extra)
    from sglang.srt.mem_cache.base_prefix_cache import CacheRequestHandle

    text = test._make_seq(1, 6)
    stored = test._l3_produce("unused", text, marker=3.0)
    cache, allocator, _ = test._l3_consumer("unused")
    assert type(cache.cache_controller.storage_backend).__name__ == "PagodaHiCacheStorage"
    test._consume_prefetch(cache, text, CacheRequestHandle("request", 0))
    from sglang.test.kits.unified_radix_cache.fixtures import match_prefix

    found = match_prefix(cache, text)
    assert found.host_hit_length == len(text)
    test._load_back_node(cache, found.last_host_node)
    loaded = test._snapshot_full_kv(allocator, cache.path_device_indices(match_prefix(cache, text).last_device_node))
    assert all(torch.equal(there, here) for there, here in zip(stored, loaded))


def test_a_radix_cache_whose_daemon_was_killed_computes(radix_cache, daemon):
    test = radix_cache(_configs()[0])
    from sglang.srt.mem_cache.base_prefix_cache import CacheRequestHandle
    from sglang.test.kits.unified_radix_cache.fixtures import match_prefix

    text = test._make_seq(1, 6)
    test._l3_produce("unused", text, marker=3.0)
    cache, _, _ = test._l3_consumer("unused")
    daemon.kill()
    started = time.monotonic()
    test._consume_prefetch(cache, text, CacheRequestHandle("request", 0))
    assert time.monotonic() - started < TIMEOUT + 2 * MARGIN and match_prefix(cache, text).host_hit_length == 0


# --- Costs ---

def test_figures_of_64_pages_of_1_mib_beside_memcpy(tmp_path, record_property, capsys):
    shape = dict(layers=16, heads=8, head_dim=64, page_size=32, pages=64)
    source, target = (sg.mha_pool("page_first", **shape) for _ in range(2))
    sg.fill(source, 1)
    text, there = names(64), sg.indices(source, range(64))
    assert len(sg.page_bytes(source, 0)) == 1 << 20
    one_piece = [np.ones(64 << 20, np.uint8) for _ in range(2)]
    with running(tmp_path / "daemon", host="200MiB") as daemon:
        writer, reader, chains = (sg.storage(daemon.endpoint, pool, host="160MiB", populate=True) for pool in (source, target, target))
        assert writer.batch_set_v1(text, there) == [True] * 64
        assert chains.batch_set_v1(text, there, _after([])) == [True] * 64
        best, first = 0.0, _after([])
        for _ in range(6):  # Other programs use the same processors.
            exists, got, copied, chain_exists, chained, _ = times(
                20, lambda: reader.batch_exists(text), lambda: reader.batch_get_v1(text, there), lambda: np.copyto(*one_piece),
                lambda: chains.batch_exists(text, first), lambda: chains.batch_get_v1(text, there, first), lambda: np.copyto(*one_piece))
            best = max(best, copied.least / got.least, copied.least / chained.least)
            if best >= 0.8:
                break
        lines = [f"batch_get of 64 x 1 MiB: {got}", f"the same as a chain: {chained}", f"memcpy: {copied}",
                 f"batch_exists of 64: {exists}", f"as a chain: {chain_exists}",
                 f"of memcpy's rate: {copied.least / got.least:.2f}, as a chain {copied.least / chained.least:.2f}"]
        record_property("sglang_batch_get", "; ".join(lines))
        with capsys.disabled():
            print("\n" + "\n".join(lines))
        assert best >= 0.8
        reader.batch_get_v1(text, there)
        assert sg.page_bytes(target, 63) == sg.page_bytes(source, 63)
        for storage in (writer, reader, chains):
            storage.close()


# --- SGLang's external linker, without a host cache of SGLang ---

@pytest.fixture
def linked(daemon, monkeypatch):
    """linked(config, **options): SGLang's radix cache over CPU pools, the linker, the allocator."""
    import types
    import unittest

    from pagoda.sglang import PagodaCacheLinker
    from sglang.srt.runtime_context import get_parallel
    from sglang.test.kits.unified_radix_cache import fixtures, mixins

    monkeypatch.setattr(fixtures, "get_device", lambda *_: "cpu")
    linkers, contexts = [], []

    class Fixtures(mixins.UnifiedRadixCacheFixtures, unittest.TestCase):
        def runTest(self):
            pass

    def make(cfg, **options):
        test = Fixtures()
        test.cfg = cfg
        cache, allocator, requests = fixtures.build_fixture(cfg)
        contexts.append(get_parallel().override(tp_rank=0, tp_size=1, pp_rank=0, pp_size=1))
        contexts[-1].__enter__()
        linker = PagodaCacheLinker(types.SimpleNamespace(), cache.cache_init_params, components=set(cfg.components), extra_config={
            "pagoda": {"endpoint": daemon.endpoint, "host": "64MiB", **options,
                       "pools": {"swa": {"host": "64MiB"}, "mamba": {"host": "32MiB"}}}})
        linkers.append(linker)
        cache.init_cache_linker(linker)
        return test, cache, allocator, requests, linker

    yield make
    for linker in linkers:
        linker.close()
    for context in contexts:
        context.__exit__(None, None, None)


def _hybrid():
    from sglang.test.kits.unified_radix_cache.config import CONFIGS

    return CONFIGS[-1]  # Full attention, a sliding window and states, in pages of 64 tokens.


def _randomize(linker, seed):
    generator = torch.Generator().manual_seed(seed)
    for entry in linker.pools.values():
        for buffer in entry.kv_buffer:
            bits = buffer.view(torch.uint8)
            bits.copy_(torch.randint(0, 256, bits.shape, generator=generator, dtype=torch.uint8))


def _device_pages(linker, transfers):
    """The bytes of each transfer's pages, by SGLang's addresses."""
    import ctypes

    return {str(one.name): [ctypes.string_at(pointer, size) for pointer, size in zip(*linker.pools[one.name].get_page_buffer_meta(
        one.device_indices))] for one in transfers}


def _transfers(text, first_page, state):
    """A text's transfers: the KV of all its pages, the last page of the window, the last state."""
    pages = torch.arange(first_page * 64, (first_page + len(text)) * 64)
    return [PoolTransfer(name=PoolName.KV, keys=list(text), device_indices=pages),
            PoolTransfer(name=PoolName.SWA, keys=text[-1:], device_indices=pages[-64:], hit_policy=PoolHitPolicy.TRAILING_PAGES),
            PoolTransfer(name=PoolName.MAMBA, keys=text[-1:], device_indices=torch.tensor([state]),
                         hit_policy=PoolHitPolicy.TRAILING_PAGES)]


def _offload(linker, transfers):
    assert linker.offload(transfers)
    wait_until(lambda: linker.num_completed_offloads() == 1)
    return linker.pop_completed_offload()


def test_the_linker_loads_every_layer_of_every_pool(linked):
    text = names(4)
    _, _, _, _, writer = linked(_hybrid())
    _, _, _, _, reader = linked(_hybrid())
    _randomize(writer, 1)
    _randomize(reader, 2)
    stored, loaded = _transfers(text, 3, 5), _transfers(text, 10, 7)
    assert reader.lookup("request", loaded) == []
    assert _offload(writer, stored)
    assert reader.lookup("request", loaded) == [4], "up to the page that has the window and the state"
    assert reader.lookup("request", _transfers(text[:3], 10, 7)) == []
    before = _device_pages(reader, _transfers(text, 20, 8))
    assert reader.load("request", loaded) and not reader.cancel_queued_load("another")
    index = reader.start_layer_wise_loading()
    assert index == 0 and reader.start_layer_wise_loading() == -1
    reader.layer_done_counter.set_consumer(index)
    for layer in range(reader._group.num_layers):
        reader.layer_done_counter.wait_until(layer)
    assert reader.finish_layer_wise_loading(index)
    assert _device_pages(reader, loaded) == _device_pages(writer, stored)
    assert _device_pages(reader, _transfers(text, 20, 8)) == before


def test_more_pages_than_a_batch_of_the_daemon_takes_are_one_load(linked, daemon):
    """Pages of one token: each pool and each request is more than the daemon takes at once."""
    cfg = dataclasses.replace(_hybrid(), page_size=1, head_num=2, num_layers=8, full_attention_layer_ids=(3, 7), sliding_window_size=1500,
                              enable_mamba_extra_buffer=False, kv_size=8192, max_context_len=8192)
    text = names(3000)
    writer, reader = linked(cfg)[-1], linked(cfg)[-1]
    _randomize(writer, 1)
    _randomize(reader, 2)

    def transfers(keys, first, state):
        places = torch.arange(first, first + len(keys))
        last = min(len(keys), 1500)
        return [PoolTransfer(name=PoolName.KV, keys=list(keys), device_indices=places),
                PoolTransfer(name=PoolName.SWA, keys=keys[-last:], device_indices=places[-last:], hit_policy=PoolHitPolicy.TRAILING_PAGES),
                PoolTransfer(name=PoolName.MAMBA, keys=keys[-1:], device_indices=torch.tensor([state]),
                             hit_policy=PoolHitPolicy.TRAILING_PAGES)]

    stored = [transfers(text, 100, 5), transfers(names(1200, "other"), 4000, 6)]
    loaded = [transfers(text, 500, 7), transfers(names(1200, "other"), 5000, 8)]
    for wanted in stored:
        assert _offload(writer, wanted)
    for number, wanted in enumerate(loaded):
        assert reader.lookup(f"request-{number}", wanted) == [len(wanted[0].keys)]
        assert reader.load(f"request-{number}", wanted)
    assert reader.finish_layer_wise_loading(reader.start_layer_wise_loading())
    for here, there in zip(loaded, stored):
        assert _device_pages(reader, here) == _device_pages(writer, there)
    with pagoda.connect(daemon.endpoint, cache=reader._storage._pools["kv"].cache.name) as client:
        wait_until(lambda: client.status().windows[0].tiers[0].active_blocks == 0)


def test_a_load_that_is_cancelled_copies_nothing(linked):
    _, _, _, _, linker = linked(_hybrid())
    assert _offload(linker, _transfers(names(2), 0, 1))
    assert linker.load("request", _transfers(names(2), 4, 2)) and linker.cancel_queued_load("request")
    assert linker.start_layer_wise_loading() == -1
    linker.reset()


@pytest.mark.parametrize("how", ["gone", "lost"])
def test_a_load_that_cannot_be_confirmed_is_a_failed_load(linked, daemon, how):
    """SGLang then aborts its requests: nothing is computed from what was copied."""
    text = names(2)
    _, _, _, _, linker = linked(_hybrid())
    assert _offload(linker, _transfers(text, 0, 1))
    assert linker.lookup("request", _transfers(text, 4, 2)) == [2]
    if how == "gone":
        daemon.kill()
    else:
        for pool in linker._storage._pools.values():
            pool.cache.clear()
            time.sleep(2.2)  # The pages that the look-up held are released.
    assert linker.load("request", _transfers(text, 4, 2))
    started = time.monotonic()
    assert not linker.finish_layer_wise_loading(linker.start_layer_wise_loading())
    assert time.monotonic() - started < TIMEOUT + 2 * MARGIN
    assert not _offload(linker, _transfers(names(2, "other"), 0, 1)) or how == "lost"


def test_sglangs_tree_offloads_and_loads_through_the_linker(linked):
    from sglang.srt.mem_cache.base_prefix_cache import MatchPrefixParams
    from sglang.srt.mem_cache.radix_cache import RadixKey

    test, cache, allocator, requests, writer = linked(_hybrid())
    text = test._make_seq(1, 4)
    _randomize(writer, 1)
    test._insert(cache, allocator, requests, text)
    wait_until(lambda: cache.linker.num_completed_offloads() == len(cache.linker.pending_offloads) > 0)
    cache.check_hicache_events()
    other_test, other, _, other_requests, reader = linked(_hybrid())
    request = other_test._make_req(other_requests)
    request.rid = "request"
    found = other.match_prefix(MatchPrefixParams(key=RadixKey(array("q", text)), req=request))
    assert found.host_hit_length == len(text)
