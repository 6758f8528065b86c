"""SGLang's UnifiedCacheLinker: copies pages between the device's pools and the daemon's memory,
without a host cache of SGLang in between.

    python -m sglang.launch_server ... --enable-unified-cache-external-linker
        --unified-cache-external-linker-backend dynamic
        --unified-cache-external-linker-config '{"linker": "PagodaCacheLinker",
            "linker_module_path": "pagoda.sglang", "linker_extra_config":
            {"pagoda": {"endpoint": "unix:/run/pagoda/pagoda.sock"}}}'

A look-up holds the pages that it finds, so that a load finds them too. SGLang aborts a request
whose load fails. This happens only if the daemon goes away between the two. This file has not run
on a GPU yet: it is tested with pools on the CPU.
"""

import contextlib
import dataclasses
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from sglang.srt.mem_cache.hicache_storage import HiCacheStorageConfig, PoolName, PoolTransfer
from sglang.srt.mem_cache.hybrid_cache.linker_pool_assembler import DevicePoolEntry, resolve_hybrid_device_pool_group
from sglang.srt.mem_cache.unified_cache.unified_cache_linker import LayerWiseLoadCounter, UnifiedCacheLinker
from sglang.srt.runtime_context import get_model, get_parallel
from sglang.srt.utils import get_device_module

from pagoda.connector.movers import HostMover, Mover, Places, Stream
from pagoda.connector.page_memory import Bytes, PageMemory
from pagoda.sglang.host_pages import HostPages
from pagoda.sglang.storage import PagodaHiCacheStorage

log = logging.getLogger("pagoda.connector")


class DevicePages(PageMemory):
    """The pages of one pool of the device. A slot holds a page's bytes buffer by buffer."""

    def __init__(self, entry: DevicePoolEntry, mover: Mover) -> None:
        self._mover = mover
        self._layers = entry.layer_mapping
        self._buffers: list[list[tuple[Places, slice]]] = []  # Pages, and their part of a slot.
        self._registered: tuple[Any, Any] = (None, None)
        self._lock = threading.Lock()
        end = 0
        for component, sizes in zip(entry.components, entry.buffer_meta):
            self._buffers.append([])
            for buffer, (_, row_bytes, page_bytes) in zip(component, sizes):
                pages = buffer.shape[0] * row_bytes // page_bytes if page_bytes > row_bytes else buffer.shape[0]
                whole = torch.empty(0, dtype=torch.uint8, device=buffer.device).set_(
                    buffer.untyped_storage(), buffer.storage_offset() * buffer.element_size(), (pages, page_bytes),
                    (max(row_bytes, page_bytes), 1))
                memory = whole.numpy() if isinstance(mover, HostMover) else mover.view(whole)
                self._buffers[-1].append((Places(memory[:, None, None], 1), slice(end, end + page_bytes)))
                end += page_bytes
        self.page_bytes = end

    def load(self, slots: Bytes, pages: Sequence[int], places: Sequence[int]) -> None:
        with _ended(self._mover.loads):
            for layer in self._layers:
                self.load_layer(slots, pages, places, layer)

    def load_layer(self, slots: Bytes, pages: Sequence[int], places: Sequence[int], layer: int) -> None:
        """Begins the copies of one layer."""
        mapped = self._layers.get(layer, ())
        for component in self._buffers:
            for index in (mapped,) if isinstance(mapped, int) else mapped:
                buffer, part = component[index]
                self._mover.copy_blocks(self._mover.loads, buffer, pages, self._part(slots, part), places)

    def save(self, slots: Bytes, pages: Sequence[int], places: Sequence[int]) -> None:
        with _ended(self._mover.saves):
            for component in self._buffers:
                for buffer, part in component:
                    self._mover.copy_blocks(self._mover.saves, self._part(slots, part), places, buffer, pages)

    def _part(self, slots: Bytes, part: slice) -> Places:
        return Places(self._known(slots)[:, None, None, part], 1)

    def _known(self, slots: Bytes) -> Any:
        """A session's slots, prepared for copies once."""
        with self._lock:
            if self._registered[0] is not slots:
                if self._registered[0] is not None:  # The slots of a lost session.
                    self._mover.unregister(self._registered[1])
                self._registered = (None, None)
                self._registered = slots, self._mover.register(slots)
            return self._registered[1]


@contextlib.contextmanager
def _ended(stream: Stream) -> Iterator[None]:
    """After the `with` block, even if it fails, no copy that was given to the stream in it runs any
    more or is still to come."""
    try:
        yield
        stream.begin()
    except BaseException:
        stream.drop()
        raise
    finally:
        mark = stream.mark()
        while not mark.is_reached():
            time.sleep(0.00005)


class _Inside(PageMemory):
    """A memory that receives the places of the pages and copies nothing: the caller acts during the
    copy."""

    def __init__(self, page_bytes: int, happens: Callable[[Bytes, Sequence[int], Sequence[int]], None]) -> None:
        self.page_bytes = page_bytes
        self._happens = happens

    def load(self, slots: Bytes, pages: Sequence[int], places: Sequence[int]) -> None:
        self._happens(slots, pages, places)

    def save(self, slots: Bytes, pages: Sequence[int], places: Sequence[int]) -> None:
        raise NotImplementedError


class _Storage(PagodaHiCacheStorage):
    """The storage with pools of the device instead of the host's. Only one thread copies, because a
    mover is not thread-safe."""

    def __init__(self, storage_config: HiCacheStorageConfig) -> None:
        super().__init__(storage_config)
        self._options = dataclasses.replace(self._options, keyed=dataclasses.replace(self._options.keyed, copy_threads=1))

    def register_device_pool(self, name: str, entry: DevicePoolEntry, mover: Mover, *, is_sharded: bool, layers: int) -> None:
        memory = DevicePages(entry, mover)
        buffers = "+".join(f"{len(component)}x{sizes[0][2]}" for component, sizes in zip(entry.components, entry.buffer_meta))
        pages = HostPages((memory,), entry.page_size, f"device:{buffers}")
        with self._lock:
            self._pools[name] = self._open(name, pages, is_sharded=is_sharded, layers=str(layers), dtype=str(entry.kv_buffer[0].dtype))


class PagodaCacheLinker(UnifiedCacheLinker):
    """SGLang's scheduler thread calls it. Two separate threads copy."""

    def __init__(self, server_args: Any, params: Any, *, components: Any, extra_config: dict[str, Any] | None = None,
                 forward_stream: Any = None) -> None:
        self.forward_stream = forward_stream
        kvcache = params.token_to_kv_pool_allocator.get_kvcache()
        self._group = resolve_hybrid_device_pool_group(kvcache=kvcache, page_size=params.page_size, params=params, components=components)
        self.pools = self._group.entry_map
        group = params.attn_tp_cache_group or params.tp_cache_group
        is_spread = torch.distributed.is_available() and torch.distributed.is_initialized()
        tp_rank = torch.distributed.get_rank(group=group) if is_spread else 0
        tp_size = torch.distributed.get_world_size(group=group) if is_spread else get_parallel().tp_size
        is_sharded = not self._group.rank_replicated
        self._storage = _Storage(HiCacheStorageConfig(
            tp_rank=tp_rank, tp_size=tp_size, pp_rank=params.pp_rank, pp_size=params.pp_size, attn_cp_rank=params.attn_cp_rank,
            attn_cp_size=params.attn_cp_size, is_mla_model=not is_sharded, enable_storage_metrics=False, is_page_first_layout=False,
            model_name=get_model().model_path, extra_config={**(extra_config or {}), "interface_v1": 0}))
        self._mover = _mover(next(iter(self.pools.values())).kv_buffer[0].device)
        for name, entry in self.pools.items():
            self._storage.register_device_pool(str(name), entry, self._mover, is_sharded=is_sharded, layers=self._group.num_layers)
        self._is_writer = is_sharded or tp_rank == 0
        self.layer_done_counter = LayerWiseLoadCounter(self._group.num_layers)
        if PoolName.MAMBA in self.pools:
            params.req_to_token_pool.register_layer_transfer_counter(self.layer_done_counter)
        self._pending: dict[str, list[PoolTransfer]] = {}
        self._loads: queue.Queue[Any] = queue.Queue()
        self._offloads: queue.Queue[Any] = queue.Queue()
        self._offloaded: queue.Queue[bool] = queue.Queue()
        self._threads = [threading.Thread(target=self._run, args=work, name=f"pagoda-linker-{work[0].__name__}", daemon=True)
                         for work in ((self._load_batch, self._loads), (self._offload, self._offloads))]
        for thread in self._threads:
            thread.start()

    # --- SGLang's calls ---

    def lookup(self, rid: str, transfers: list[PoolTransfer]) -> list[int]:
        expanded = self._group.resolve_transfers(transfers)
        keys = next((list(transfer.keys) for transfer in transfers if transfer.name == PoolName.KV), [])
        if not expanded or not keys:
            return []
        # Without its own KV pool, each page counts as found, and the other pools decide.
        others = [transfer for transfer in expanded if transfer.name != PoolName.KV]
        return self._storage.batch_exists_v2(keys, others).restorable_prefix_pages or []

    def load(self, rid: str, transfers: list[PoolTransfer]) -> bool:
        expanded = self._group.resolve_transfers(transfers, allow_partial=True, allow_missing_kv=True)
        if not expanded:
            return False
        if rid in self._pending:
            raise RuntimeError(f"a load of request {rid} is queued already")
        self._pending[rid] = expanded
        return True

    def cancel_queued_load(self, rid: str) -> bool:
        return self._pending.pop(rid, None) is not None

    def start_layer_wise_loading(self) -> int:
        if not self._pending:
            return -1
        pending, self._pending = self._pending, {}
        index = int(self.layer_done_counter.update_producer())
        ready = get_device_module().Event()
        ready.record()
        self._loads.put((index, list(pending.values()), ready))
        return index

    def finish_layer_wise_loading(self, counter_index: int) -> bool:
        return bool(self.layer_done_counter.finish(counter_index))

    def offload(self, transfers: list[PoolTransfer], session_id: str | None = None) -> bool:
        expanded = self._group.resolve_transfers(transfers, allow_partial=True)
        if not expanded:
            return False
        if self._is_writer:
            self._offloads.put((expanded, self.record_offload_ready()))
        else:
            self._offloaded.put(True)
        return True

    def num_completed_offloads(self) -> int:
        return self._offloaded.qsize()

    def pop_completed_offload(self) -> bool:
        return self._offloaded.get_nowait()

    def reset(self) -> None:
        self._pending.clear()
        self._loads.join()
        self._offloads.join()
        while self._offloaded.qsize():
            self._offloaded.get_nowait()
        self.layer_done_counter.reset()

    def close(self) -> None:
        self.reset()
        for work in (self._loads, self._offloads):
            work.put(None)
        for thread in self._threads:
            thread.join()
        self._storage.close()
        self._mover.close()

    # --- In threads ---

    def _run(self, do: Any, work: "queue.Queue[Any]") -> None:
        while True:
            task = work.get()
            try:
                if task is None:
                    return
                do(*task)
            finally:
                work.task_done()

    def _offload(self, transfers: list[PoolTransfer], ready: Sequence[Any]) -> None:
        stored = False
        try:
            for event in ready:
                event.synchronize()
            stored = all(map(all, self._storage.batch_set_v2(transfers).values()))
        except Exception:
            log.exception("an offload failed")
        self._offloaded.put(stored)

    def _load_batch(self, index: int, requests: Sequence[Sequence[PoolTransfer]], ready: Any) -> None:
        """The last layer is complete only when it is known that all pages were held until all
        copies had ended."""
        counter = self.layer_done_counter
        try:
            ready.synchronize()
            last = self._group.num_layers - 1
            if self._load_within(index, _by_pool(requests), {}):
                counter.complete(index, last)
            else:
                counter.fail(index, RuntimeError("pages were missing, or the daemon went away during their load"))
        except Exception as error:
            log.exception("a load failed")
            counter.fail(index, error)

    def _load_within(self, index: int, wanted: Sequence[tuple[str, list[str], torch.Tensor]], there: dict[str, Any]) -> bool:
        """Loads the pools in nested calls, so that all pages are held while the layers of all pools
        are copied. `there`: (slots, pages, places) of the outer pools."""
        if not wanted:
            self._load_layers(index, there)
            return True
        (name, keys, indices), *rest = wanted
        pool = self._storage._pools[name]
        assert pool is not None
        numbers = pool.pages.numbers(indices)
        inner: list[bool] = []

        def happens(slots: Bytes, pages: Sequence[int], places: Sequence[int]) -> None:
            inner.append(self._load_within(index, rest, {**there, name: (slots, numbers, places)}))

        taken = pool.cache.take(self._storage._chains(pool, keys, None))
        holds = [hold for hold in taken if hold is not None]
        try:
            return len(holds) == len(numbers) and pool.cache.load(holds, _Inside(pool.pages.page_bytes, happens)) and inner == [True]
        finally:
            pool.cache.release(holds)

    def _load_layers(self, index: int, there: dict[str, Any]) -> None:
        marks = []
        with _ended(self._mover.loads):
            for layer in range(self._group.num_layers):
                for name, (slots, pages, places) in there.items():
                    memory = self._storage._pools[name].pages.shards[0]  # type: ignore[union-attr]
                    assert isinstance(memory, DevicePages)
                    memory.load_layer(slots, pages, places, layer)
                marks.append(self._mover.loads.mark())
            for layer, mark in enumerate(marks):
                while not mark.is_reached():
                    time.sleep(0.00005)
                if layer < self._group.num_layers - 1:
                    self.layer_done_counter.complete(index, layer)


def _by_pool(requests: Sequence[Sequence[PoolTransfer]]) -> list[tuple[str, list[str], torch.Tensor]]:
    """Returns (pool, keys, indices) of all requests of a batch."""
    pools: dict[str, list[PoolTransfer]] = {}
    for transfers in requests:
        for transfer in transfers:
            pools.setdefault(str(transfer.name), []).append(transfer)
    return [(name, [key for one in all_of for key in one.keys or ()],
             torch.cat([one.host_indices for one in all_of if one.host_indices is not None]).cpu()) for name, all_of in pools.items()]


def _mover(device: torch.device) -> Mover:
    if device.type == "cpu":
        return HostMover()
    from pagoda.connector.cuda import CudaMover

    return CudaMover(device)
