"""LMCache's L2AdapterInterface, translated to pagoda.connector.keyed.

LMCache names an object by a hash of all tokens up to its end, the model, the rank, the group of
layers and a salt. The name does not include the number type, so it is part of the cache's identity:
each layout of objects is a separate cache.
"""

import concurrent.futures
import dataclasses
import hashlib
import logging
import math
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lmcache.lmcache_native import Bitmap
from lmcache.v1.distributed.internal_api import L2StoreResult
from lmcache.v1.distributed.l2_adapters.base import AdapterUsage, L2AdapterInterface, L2TaskId
from lmcache.v1.platform import create_event_notifier

from pagoda.caches import CacheIdentity
from pagoda.connector.keyed import Chain, Hold, KeyedPages
from pagoda.connector.keyed_options import KeyedOptions
from pagoda.connector.model_identity import printable, revision_of
from pagoda.connector.page_memory import Buffers

if TYPE_CHECKING:
    from lmcache.v1.distributed.api import MemoryLayoutDesc, ObjectKey
    from lmcache.v1.memory_management import MemoryObj

log = logging.getLogger("pagoda.connector")

# Objects of one model and group have one layout. If their sizes vary, the first few layouts are
# cached and the others are not.
_MOST_LAYOUTS = 4


@dataclasses.dataclass(frozen=True)
class _Layout:
    """The properties, besides the keys, that distinguish objects that must not be mixed."""

    model: str
    group: int
    bytes: int
    dtypes: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, key: "ObjectKey", dtypes: Iterable[Any], shapes: Iterable[Any], size: int) -> "_Layout":
        return cls(key.model_name, key.object_group_id, size, tuple(str(dtype).removeprefix("torch.") for dtype in dtypes),
                   tuple(tuple(shape) for shape in shapes))

    @classmethod
    def of_object(cls, key: "ObjectKey", memory: "MemoryObj") -> "_Layout":
        meta = memory.metadata  # An object has one shape, or one for each of its parts.
        return cls.of(key, meta.dtypes or [meta.dtype], meta.shapes or [meta.shape], memory.get_size())

    @classmethod
    def of_description(cls, key: "ObjectKey", layout: "MemoryLayoutDesc | None") -> "_Layout | None":
        if layout is None or not layout.shapes:
            return None
        size = sum(math.prod(shape) * dtype.itemsize for shape, dtype in zip(layout.shapes, layout.dtypes))
        return cls.of(key, layout.dtypes, layout.shapes, size)


@dataclasses.dataclass(eq=False)
class _Lock:
    """The pages of a key that a look-up holds."""

    cache: KeyedPages
    hold: Hold
    loads: int = 0
    """Loads that read the pages now. The pages are released after the last one."""
    is_unlocked: bool = False


class PagodaL2Adapter(L2AdapterInterface):
    """LMCache works without it: without a daemon nothing is found, and stores fail at once.
    Thread-safe."""

    def __init__(self, adapter_params: Mapping[str, Any] | None = None, l1_memory_desc: Any = None) -> None:
        """Called by LMCache's plugin factory. `adapter_params`: the keys of KeyedOptions.
        ValueError: other keys."""
        super().__init__()
        self._options = KeyedOptions.take(adapter_params or {}, where="adapter_params")
        self._lock = threading.Lock()
        self._caches: dict[_Layout, KeyedPages] = {}
        self._locks: dict[ObjectKey, list[_Lock]] = {}
        self._tasks = 0
        self._stored: dict[L2TaskId, L2StoreResult] = {}
        self._found: dict[L2TaskId, Bitmap] = {}
        self._loaded: dict[L2TaskId, Bitmap] = {}
        self._store_event, self._lookup_event, self._load_event = (create_event_notifier() for _ in range(3))
        # Look-ups do not wait for copies. This executor keeps the order of a look-up and its
        # unlock.
        self._questions = concurrent.futures.ThreadPoolExecutor(1, "pagoda-l2-look-up")
        self._copies = concurrent.futures.ThreadPoolExecutor(4, "pagoda-l2-copy")

    # --- Events ---

    def get_store_event_fd(self) -> int:
        return int(self._store_event.fileno())

    def get_lookup_and_lock_event_fd(self) -> int:
        return int(self._lookup_event.fileno())

    def get_load_event_fd(self) -> int:
        return int(self._load_event.fileno())

    # --- Tasks ---

    def submit_store_task(self, keys: "list[ObjectKey]", objects: "list[MemoryObj]") -> L2TaskId:
        return self._submit(self._copies, lambda: self._store(keys, objects), L2StoreResult(False, 0), self._stored, self._store_event)

    def pop_completed_store_tasks(self) -> dict[L2TaskId, L2StoreResult]:
        with self._lock:
            done = dict(self._stored)
            self._stored.clear()
            return done

    def submit_lookup_and_lock_task(self, keys: "list[ObjectKey]", group_layout_descs: "dict[int, MemoryLayoutDesc]") -> L2TaskId:
        return self._submit(self._questions, lambda: self._look_up(keys, group_layout_descs), Bitmap(len(keys)), self._found,
                            self._lookup_event)

    def query_lookup_and_lock_result(self, task_id: L2TaskId) -> Bitmap | None:
        with self._lock:
            return self._found.pop(task_id, None)

    def submit_unlock(self, keys: "list[ObjectKey]") -> None:
        self._questions.submit(self._unlock, list(keys))

    def submit_load_task(self, keys: "list[ObjectKey]", objects: "list[MemoryObj]") -> L2TaskId:
        return self._submit(self._copies, lambda: self._load(keys, objects), Bitmap(len(keys)), self._loaded, self._load_event)

    def query_load_result(self, task_id: L2TaskId) -> Bitmap | None:
        with self._lock:
            return self._loaded.pop(task_id, None)

    def _submit(self, executor: concurrent.futures.Executor, work: Callable[[], Any], nothing: Any, results: dict[L2TaskId, Any],
                event: Any) -> L2TaskId:
        with self._lock:
            self._tasks += 1
            task = self._tasks

        def run() -> None:
            result = nothing
            try:
                result = work()
            except Exception:
                log.exception("a task of LMCache failed")
            with self._lock:
                results[task] = result
            event.notify()

        executor.submit(run)
        return task

    # --- The tasks ---

    def _store(self, keys: "Sequence[ObjectKey]", objects: "Sequence[MemoryObj]") -> L2StoreResult:
        stored = []
        for layout, indices in _grouped(_Layout.of_object(key, memory) for key, memory in zip(keys, objects)).items():
            cache = self._cache(layout)
            memory = Buffers([objects[index].byte_array for index in indices])
            done = cache.write([_chain(keys[index], memory, page) for page, index in enumerate(indices)]) if cache else []
            stored += [index for index, count in zip(indices, done) if count]
        if stored:
            self._notify_keys_stored([keys[index] for index in stored], [objects[index].get_size() for index in stored])
        return L2StoreResult(len(stored) == len(keys), sum(objects[index].get_size() for index in stored))

    def _look_up(self, keys: "Sequence[ObjectKey]", layouts: "Mapping[int, MemoryLayoutDesc]") -> Bitmap:
        found = Bitmap(len(keys))
        described = _grouped((key.model_name, key.object_group_id) for key in keys)
        for (model, group), indices in described.items():
            layout = _Layout.of_description(keys[indices[0]], layouts.get(group))
            caches = [self._cache(layout)] if layout else self._known(model, group)
            for cache in filter(None, caches):
                missing = [index for index in indices if not found.test(index)]
                for index, hold in zip(missing, cache.hold([_chain(keys[index]) for index in missing])):
                    if hold is not None:
                        found.set(index)
                        with self._lock:
                            self._locks.setdefault(keys[index], []).append(_Lock(cache, hold))
        return found

    def _unlock(self, keys: "Sequence[ObjectKey]") -> None:
        ended = []
        with self._lock:
            for key in keys:
                if key in self._locks:
                    ended.append(self._locks[key].pop())
                    ended[-1].is_unlocked = True
                    if not self._locks[key]:
                        del self._locks[key]
            ended = [lock for lock in ended if not lock.loads]
        _release(ended)

    def _load(self, keys: "Sequence[ObjectKey]", objects: "Sequence[MemoryObj]") -> Bitmap:
        loaded = Bitmap(len(keys))
        for layout, indices in _grouped(_Layout.of_object(key, memory) for key, memory in zip(keys, objects)).items():
            cache = self._cache(layout)
            if cache is not None:
                for index in self._load_from(cache, [(index, keys[index]) for index in indices], objects):
                    loaded.set(index)
        if loaded.popcount():
            self._notify_keys_accessed([keys[index] for index in loaded.get_indices_list()])
        return loaded

    def _load_from(self, cache: KeyedPages, wanted: "Sequence[tuple[int, ObjectKey]]", objects: "Sequence[MemoryObj]") -> list[int]:
        """Returns the indices of the loaded objects. Objects that no look-up holds are held during
        the load."""
        locks: dict[int, _Lock] = {}
        with self._lock:
            for index, key in wanted:
                locks |= {index: lock for lock in self._locks.get(key, ()) if lock.cache is cache and cache.has(lock.hold)}
            for lock in locks.values():
                lock.loads += 1
        missing = [(index, key) for index, key in wanted if index not in locks]
        try:
            for (index, _), hold in zip(missing, cache.hold([_chain(key) for _, key in missing])):
                if hold is not None:
                    locks[index] = _Lock(cache, hold, loads=1, is_unlocked=True)
            memory = Buffers([objects[index].byte_array for index in locks])
            return list(locks) if locks and cache.load([lock.hold for lock in locks.values()], memory) else []
        finally:
            with self._lock:
                for lock in locks.values():
                    lock.loads -= 1
                ended = [lock for lock in locks.values() if lock.is_unlocked and not lock.loads]
            _release(ended)

    # --- Caches ---

    def _cache(self, layout: _Layout) -> KeyedPages | None:
        """Returns the cache of a layout, and opens it if necessary. None: there are too many
        layouts."""
        is_new = False
        with self._lock:
            cache = self._caches.get(layout)
            if cache is None:
                others = [one for one in self._caches if (one.model, one.group) == (layout.model, layout.group)]
                if len(others) >= _MOST_LAYOUTS:
                    return None
                cache = self._caches[layout] = self._open(layout)
                is_new = True
        if is_new:
            cache.wait(self._options.timeout)
        return cache

    def _open(self, layout: _Layout) -> KeyedPages:
        shapes = "+".join("x".join(map(str, shape)) for shape in layout.shapes)
        identity = CacheIdentity(
            model=printable(layout.model or "unnamed"), layout=printable(f"lmcache-1:{shapes}"),
            revision=self._options.revision or revision_of(layout.model or "unnamed", None),
            dtype=printable("+".join(filter(None, (*layout.dtypes, self._options.dtype)))), kernel_packing=f"group{layout.group}")
        options = self._options
        if options.cache:  # Each further layout has its own name.
            options = dataclasses.replace(options, cache=f"{options.cache}-{len(self._caches)}" if self._caches else options.cache)
        return KeyedPages("lmcache", identity=identity, page_bytes=layout.bytes, options=options)

    def _known(self, model: str, group: int) -> list[KeyedPages | None]:
        with self._lock:
            return [cache for layout, cache in self._caches.items() if (layout.model, layout.group) == (model, group)]

    def delete(self, keys: "list[ObjectKey]") -> None:
        for (model, group), indices in _grouped((key.model_name, key.object_group_id) for key in keys).items():
            for layout, cache in list(self._caches.items()):
                if (layout.model, layout.group) == (model, group):
                    removed = cache.remove([_chain(keys[index]) for index in indices])
                    gone = [keys[index] for index, blocks in zip(indices, removed) if blocks]
                    if gone:
                        self._notify_keys_deleted(gone, [layout.bytes] * len(gone))

    def get_usage(self) -> AdapterUsage:
        """The daemon evicts by itself, so its figures are used. By salt, only the objects that this
        server stored are known."""
        usages = [cache.usage() for cache in list(self._caches.values())]
        return AdapterUsage(sum(used for used, _ in usages), sum(size for _, size in usages), super().get_usage().bytes_by_cache_salt)

    def report_status(self) -> dict[str, Any]:
        caches = list(self._caches.values())
        return {"is_healthy": all(cache.is_open for cache in caches), "type": type(self).__name__,
                "caches": {cache.name: {"is_open": cache.is_open, **dataclasses.asdict(cache.counts)} for cache in caches}}

    def close(self) -> None:
        for executor in (self._questions, self._copies):
            executor.shutdown(wait=True, cancel_futures=True)
        for cache in self._caches.values():
            cache.close()
        for event in (self._store_event, self._lookup_event, self._load_event):
            event.close()


def _release(locks: Sequence[_Lock]) -> None:
    for cache in {lock.cache for lock in locks}:
        cache.release([lock.hold for lock in locks if lock.cache is cache])


def _chain(key: "ObjectKey", memory: Buffers | None = None, page: int = 0) -> Chain:
    """The chain of an object. Its key alone names it."""
    # A key has at most 64 bytes.
    content = key.chunk_hash if len(key.chunk_hash) <= 48 else hashlib.sha256(key.chunk_hash).digest()
    named = content + key.kv_rank.to_bytes(8, "little") + key.object_group_id.to_bytes(4, "little")
    return Chain((named,), salt=key.cache_salt, memory=memory, pages=(page,))


def _grouped(values: Iterable[Any]) -> dict[Any, list[int]]:
    """Returns the indices of equal values."""
    groups: dict[Any, list[int]] = {}
    for index, value in enumerate(values):
        groups.setdefault(value, []).append(index)
    return groups
