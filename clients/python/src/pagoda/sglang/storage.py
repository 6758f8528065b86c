"""SGLang's HiCacheStorage, translated to pagoda.connector.keyed.

Each pool of SGLang is a cache, because its pages have their own size. A rank of tensor parallelism
has a part of each page, its range of KV heads, under its own salt. With `tp_lcm_size` in SGLang's
extra config, pages are stored in that many ranges, so servers with other numbers of ranks can read
them too. MLA pages are the same on all ranks: one rank writes them.

SGLang's keys are hashes of all tokens up to the end of a page, so a key alone names its page. If
SGLang also passes the keys before (hicache_storage_pass_prefix_keys, with interface_v1), the pages
are one chain, and the daemon evicts its end first.
"""

import dataclasses
import hashlib
import logging
import threading
from collections.abc import Sequence
from typing import Any

import torch
from sglang.srt.mem_cache.hicache_storage import (HiCacheStorage, HiCacheStorageConfig, HiCacheStorageExtraInfo, PoolHitPolicy, PoolName,
                                                  PoolTransfer, PoolTransferResult)
from sglang.srt.mem_cache.pool_host.mha import MHATokenToKVPoolHost

from pagoda.connector.keyed import Chain, KeyedPages
from pagoda.connector.page_memory import PageMemory
from pagoda.sglang import options
from pagoda.sglang.host_pages import HostPages, host_pages

log = logging.getLogger("pagoda.connector")


@dataclasses.dataclass(frozen=True)
class _Pool:
    """One of SGLang's pools and its cache."""

    pages: HostPages
    cache: KeyedPages
    salts: tuple[str, ...]
    """The salt of each shard that this rank has."""
    is_writer: bool


class PagodaHiCacheStorage(HiCacheStorage):
    """SGLang works without it: without a daemon nothing is found and nothing is stored.
    Thread-safe, because SGLang calls it from several threads."""

    def __init__(self, storage_config: HiCacheStorageConfig, kwargs: Any = None) -> None:
        """Called by SGLang's StorageBackendFactory for a dynamic backend. ValueError: an invalid
        configuration."""
        self._config = storage_config
        self._options = options.Options.take(storage_config.extra_config)
        self._has_indices = bool((storage_config.extra_config or {}).get("interface_v1"))
        """If false, SGLang copies pages to separate tensors and does not pass the keys before."""
        self._is_chained = self._has_indices and options.says_prefixes()
        self._pools: dict[str, _Pool | None] = {}
        self._lock = threading.Lock()
        self.registered_pools: dict[Any, Any] = {}

    # --- Pools ---

    def register_mem_pool_host(self, mem_pool_host: Any) -> None:
        super().register_mem_pool_host(mem_pool_host)
        self._register(PoolName.KV, mem_pool_host)

    def register_mem_host_pool_v2(self, host_pool: Any, host_pool_name: Any) -> None:
        super().register_mem_host_pool_v2(host_pool, host_pool_name)
        self._register(host_pool_name, host_pool)

    def _register(self, pool_name: Any, host_pool: Any) -> None:
        name = str(pool_name)
        with self._lock:
            if name in self._pools:
                return
            # An anchor without memory only counts pages. The pools beside it have the bytes.
            self._pools[name] = None if getattr(host_pool, "kv_buffer", self) is None else self._pool(name, host_pool)

    def _pool(self, name: str, host_pool: Any) -> _Pool:
        config = self._config
        is_sharded = not config.is_mla_model or name == PoolName.MAMBA.value or isinstance(host_pool, MHATokenToKVPoolHost)
        split = 1
        if is_sharded and isinstance(host_pool, MHATokenToKVPoolHost) and config.tp_lcm_size:
            split = config.tp_lcm_size // config.tp_size
        try:
            pages = host_pages(host_pool, split=split, flat=not self._has_indices)
        except ValueError as error:
            if split == 1:
                raise
            log.warning("%s: servers of another tensor parallelism do not share them", error)
            pages = host_pages(host_pool, flat=not self._has_indices)
        layers = f"{getattr(host_pool, 'start_layer', 0)}-{getattr(host_pool, 'end_layer', 0)}"
        return self._open(name, pages, is_sharded=is_sharded, layers=layers, dtype=str(host_pool.dtype))

    def _open(self, name: str, pages: HostPages, *, is_sharded: bool, layers: str, dtype: str) -> _Pool:
        """Opens the cache of a pool. `is_sharded`: each rank has a part of a page; otherwise each
        has the whole page."""
        config, split = self._config, len(pages.shards)
        place = f"pp{config.pp_rank}of{config.pp_size}cp{config.attn_cp_rank}of{config.attn_cp_size}"
        shards = config.tp_size * split
        salts = tuple(f"{place}tp{config.tp_rank * split + index}of{shards}" for index in range(split)) if is_sharded else (place,)
        chosen = self._options.of_pool(name)
        identity = options.identity(name, model=config.model_name or "", dtype=dtype, options=chosen,
                                    layout=f"{pages.layout}:layers{layers}:{place}:{f'tp{shards}' if is_sharded else 'one'}")
        cache = KeyedPages("sglang", identity=identity, page_bytes=pages.page_bytes, tokens_per_page=pages.page_tokens, options=chosen)
        log.info("SGLang's pool %s is the cache %s: pages of %d tokens, %d bytes", name, cache.name, pages.page_tokens, pages.page_bytes)
        if not cache.wait(chosen.start_timeout):
            log.warning("%s: no daemon in %g s; SGLang continues without cached KV until there is one", cache.name, chosen.start_timeout)
        return _Pool(pages, cache, salts, config.is_storage_writer or is_sharded)

    # --- Pages of a pool ---

    def _chains(self, pool: _Pool, keys: Sequence[str], before: Sequence[str] | None, memories: Sequence[Sequence[PageMemory]] = (),
                numbers: Sequence[int] = ()) -> list[Chain]:
        """Returns one chain for each shard if the keys are a chain, otherwise one for each key of
        each shard. `memories`: for each key, by shard; a single entry is for all keys."""
        named = [_key(key) for key in keys]
        if before is not None:
            prefix = [_key(key) for key in before]
            return [Chain(prefix + named, len(prefix), salt, memories[0][shard] if memories else None, numbers)
                    for shard, salt in enumerate(pool.salts)]
        return [Chain((key,), 0, salt, memories[index if len(memories) > 1 else 0][shard] if memories else None,
                      numbers[index:index + 1])
                for shard, salt in enumerate(pool.salts) for index, key in enumerate(named)]

    def _each_key(self, pool: _Pool, keys: Sequence[str], before: Sequence[str] | None, found: Sequence[int]) -> list[bool]:
        """Whether all shards have a key, from the page counts of the chains of _chains."""
        if before is not None:
            return [index < min(found) for index in range(len(keys))]
        return [all(found[index::len(keys)]) for index in range(len(keys))]

    def _exist(self, pool: _Pool | None, keys: Sequence[str], before: Sequence[str] | None) -> list[bool]:
        if pool is None or not keys:
            return [True] * len(keys)
        found = pool.cache.find(self._chains(pool, keys, before))
        return self._each_key(pool, keys, before, [pages - len(before or ()) for pages in found])

    def _get(self, pool: _Pool | None, keys: Sequence[str], host_indices: torch.Tensor | None, before: Sequence[str] | None) -> list[bool]:
        if pool is None or not keys:
            return [True] * len(keys)
        chains = self._copies(pool, keys, host_indices, before)
        return self._each_key(pool, keys, before, pool.cache.read(chains)) if chains else [False] * len(keys)

    def _set(self, pool: _Pool | None, keys: Sequence[str], host_indices: torch.Tensor | None, before: Sequence[str] | None) -> list[bool]:
        if pool is None or not keys or not pool.is_writer:
            return [True] * len(keys)
        chains = self._copies(pool, keys, host_indices, before)
        return self._each_key(pool, keys, before, pool.cache.write(chains)) if chains else [False] * len(keys)

    def _copies(self, pool: _Pool, keys: Sequence[str], host_indices: torch.Tensor | None, before: Sequence[str] | None) -> list[Chain]:
        """The chains with the host's pages; none if the number of pages differs from the number of
        keys."""
        expected, given = len(keys) * pool.pages.page_tokens, 0 if host_indices is None else host_indices.numel()
        if host_indices is None or given != expected:
            log.error("%s: SGLang gave %d indices for %d keys, which need %d", pool.cache.name, given, len(keys), expected)
            return []
        return self._chains(pool, keys, before, [pool.pages.shards], pool.pages.numbers(host_indices))

    def _before(self, extra_info: HiCacheStorageExtraInfo | None) -> Sequence[str] | None:
        """The keys before the call's keys; None: each key stands for itself. If SGLang passes them
        at all, it always does, but some of its calls pass None for an empty list."""
        before = extra_info.prefix_keys if extra_info is not None else None
        if self._has_indices and before is not None:
            self._is_chained = True
        return (before or []) if self._is_chained else None

    # --- SGLang's calls: v1 ---

    def batch_exists(self, keys: list[str], extra_info: HiCacheStorageExtraInfo | None = None) -> int:
        return _leading(self._exist(self._pools.get("kv"), keys, self._before(extra_info)))

    def batch_get_v1(self, keys: list[str], host_indices: torch.Tensor, extra_info: HiCacheStorageExtraInfo | None = None) -> list[bool]:
        return self._get(self._pools["kv"], keys, host_indices, self._before(extra_info))

    def batch_set_v1(self, keys: list[str], host_indices: torch.Tensor, extra_info: HiCacheStorageExtraInfo | None = None) -> list[bool]:
        return self._set(self._pools["kv"], keys, host_indices, self._before(extra_info))

    # --- SGLang's calls: v2 ---

    def batch_exists_v2(self, keys: list[str], pool_transfers: list[PoolTransfer] | None = None,
                        extra_info: HiCacheStorageExtraInfo | None = None) -> PoolTransferResult:
        kv_pages = self.batch_exists(keys, extra_info)
        hits: dict[str, int] = {PoolName.KV: kv_pages} if kv_pages else {}
        restorable = list(range(1, kv_pages + 1))
        for transfer in pool_transfers or []:
            if not restorable:
                break
            exist = self._exist(self._pools[str(transfer.name)], keys[:kv_pages], None)
            fitting = _restorable(exist, transfer)
            if fitting:
                hits[transfer.name] = max(fitting)
            restorable = [pages for pages in restorable if pages in fitting]
        return PoolTransferResult(restorable[-1] if restorable else 0, hits, restorable)

    def batch_get_v2(self, transfers: list[PoolTransfer], extra_info: HiCacheStorageExtraInfo | None = None) -> dict[str, list[bool]]:
        return {transfer.name: self._get(*self._of_transfer(transfer, extra_info)) for transfer in transfers}

    def batch_set_v2(self, transfers: list[PoolTransfer], extra_info: HiCacheStorageExtraInfo | None = None) -> dict[str, list[bool]]:
        return {transfer.name: self._set(*self._of_transfer(transfer, extra_info)) for transfer in transfers}

    def _of_transfer(self, transfer: PoolTransfer, extra_info: HiCacheStorageExtraInfo | None) -> tuple[Any, Any, Any, Any]:
        """Pages of pools besides the KV pool stand for themselves: some pools store only the last
        pages of a chain."""
        before = self._before(extra_info) if transfer.name == PoolName.KV else None
        return self._pools[str(transfer.name)], transfer.keys or [], transfer.host_indices, before

    # --- SGLang's calls: pages in separate tensors ---

    def get(self, key: str, target_location: Any = None, target_sizes: Any = None) -> torch.Tensor | None:
        return self.batch_get([key], [target_location])[0]

    def batch_get(self, keys: list[str], target_locations: Any = None, target_sizes: Any = None) -> list[torch.Tensor | None]:
        pool = self._pools["kv"]
        targets = list(target_locations or [None] * len(keys))
        if pool is None or not keys:
            return targets
        targets = [torch.empty(pool.pages.page_bytes * len(pool.salts), dtype=torch.uint8) if target is None else target
                   for target in targets]
        memories = [pool.pages.of_tensor(target) for target in targets]
        read = pool.cache.read(self._chains(pool, keys, None, memories, [0] * len(keys)))
        return [target if there else None for target, there in zip(targets, self._each_key(pool, keys, None, read))]

    def set(self, key: str, value: Any = None, target_location: Any = None, target_sizes: Any = None) -> bool:
        return self.batch_set([key], [value])

    def batch_set(self, keys: list[str], values: Any = None, target_locations: Any = None, target_sizes: Any = None) -> bool:
        pool = self._pools["kv"]
        if pool is None or not keys or not pool.is_writer:
            return True
        memories = [pool.pages.of_tensor(value.contiguous()) for value in values]
        return all(pool.cache.write(self._chains(pool, keys, None, memories, [0] * len(keys))))

    def exists(self, key: str) -> bool:
        return self.batch_exists([key]) == 1

    # --- The rest ---

    def clear(self) -> bool:  # type: ignore[override,unused-ignore]
        """Removes all pages of the caches, also those of other servers. Returns whether it
        succeeded."""
        return all([pool.cache.clear() for pool in self._pools.values() if pool is not None])

    def close(self) -> None:
        for pool in self._pools.values():
            if pool is not None:
                pool.cache.close()


def _key(key: str) -> bytes:
    """SGLang's keys are SHA-256 hashes in hexadecimal."""
    try:
        if len(key) == 64:
            return bytes.fromhex(key)
    except ValueError:
        pass
    return hashlib.sha256(key.encode()).digest()


def _leading(exist: Sequence[bool]) -> int:
    return next((index for index, there in enumerate(exist) if not there), len(exist))


def _restorable(exist: Sequence[bool], transfer: PoolTransfer) -> set[int]:
    """The prefix lengths, in pages, at whose end the pool has the pages that its policy needs."""
    if transfer.hit_policy == PoolHitPolicy.ALL_PAGES:
        return set(range(1, _leading(exist) + 1))
    if transfer.hit_policy == PoolHitPolicy.TRAILING_PAGES:
        last = max(1, len(transfer.keys) if transfer.keys else 1)
        return {end for end in range(1, len(exist) + 1) if all(exist[max(0, end - last):end])}
    raise ValueError(f"unknown SGLang hit policy {transfer.hit_policy}")
