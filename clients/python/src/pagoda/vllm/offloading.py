"""Pagoda below vLLM's own offloading: vLLM keeps a host cache for each engine, and Pagoda keeps the
blocks that do not fit in it.

    --kv-transfer-config '{"kv_connector": "OffloadingConnector", "kv_role": "kv_both",
        "kv_connector_extra_config": {"spec_name": "PagodaOffloadingSpec",
        "spec_module_path": "pagoda.vllm", "cpu_bytes_to_use": 8589934592,
        "pagoda": {"endpoint": "unix:/run/pagoda/pagoda.sock"}}}'

vLLM's first-tier offloading cannot handle a failed load: it ends the engine. Its lower tiers can,
so Pagoda is one of them. The tier is tested by itself (tests/engines/test_vllm_offloading.py). The
whole has not run, because vLLM's offloading needs a GPU.
"""

import concurrent.futures
import dataclasses
import hashlib
import json
import queue
import time
from collections.abc import Iterable
from typing import Any

import numpy as np
from vllm.v1.kv_offload.base import (LookupResult, Medium, OffloadingSpec, OffloadKey, ReqContext, RequestOffloadingContext,
                                     ScheduleEndContext)
from vllm.v1.kv_offload.config import OffloadingConfig
from vllm.v1.kv_offload.tiering.async_lookup import AsyncLookupManager
from vllm.v1.kv_offload.tiering.base import JobResult, SecondaryTierManager, TransferJob
from vllm.v1.kv_offload.tiering.spec import TieringOffloadingSpec

from pagoda.caches import CacheIdentity
from pagoda.connector import ArrayPages, Chain, KeyedOptions, KeyedPages
from pagoda.connector.model_identity import printable, revision_of
from pagoda.vllm.identity import configuration_of

_THREADS = 2  # Stores and loads that run at once. Each uses several threads for its copies.


class PagodaOffloadingSpec(TieringOffloadingSpec):
    """vLLM's host cache, with Pagoda as the tier below. The key "pagoda" of the extra config has
    the keys of KeyedOptions."""

    def __init__(self, config: OffloadingConfig) -> None:
        tier = {"type": "PagodaTier", "module_path": "pagoda.vllm.offloading", "options": dict(config.extra_config.get("pagoda", {}))}
        super().__init__(dataclasses.replace(config, extra_config={**config.extra_config, "secondary_tiers": [tier]}))

    @classmethod
    def build_metric_definitions(cls, extra_config: dict[str, Any]) -> Any:
        return super().build_metric_definitions({key: value for key, value in extra_config.items() if key != "secondary_tiers"})


class _Lookups(AsyncLookupManager):
    """A look-up is one call to the daemon for all keys of a step, in one of vLLM's threads."""

    def __init__(self, pages: KeyedPages) -> None:
        self._pages = pages
        super().__init__(tier_type="pagoda")

    def batch_lookup(self, keys: list[OffloadKey], req_context: ReqContext) -> Iterable[bool]:
        return [bool(count) for count in self._pages.count([Chain([bytes(key)]) for key in keys])]


class PagodaTier(SecondaryTierManager):
    """Stores chunks of vLLM's host cache under their keys. If the daemon fails, the result is a
    miss, or a chunk that is not stored."""

    medium = Medium.CPU

    def __init__(self, offloading_spec: OffloadingSpec, primary_kv_view: memoryview, tier_type: str, options: dict[str, Any] | None = None,
                 backpressure_detector: Any = None, **others: Any) -> None:
        """`options`: the keys of KeyedOptions."""
        super().__init__(offloading_spec, primary_kv_view, tier_type, backpressure_detector)
        taken = KeyedOptions.take(options or {}, where='"pagoda" of kv_connector_extra_config')
        chunks = np.asarray(primary_kv_view)
        self._memory = ArrayPages(chunks.view(np.uint8).reshape(chunks.shape[0], -1))
        config = offloading_spec.config
        self._pages = KeyedPages("vllm-offload", identity=identity_of(config, self._memory.page_bytes, taken),
                                 page_bytes=self._memory.page_bytes, options=taken,
                                 tokens_per_page=config.groups[0].tokens_per_block * config.cache.blocks_per_chunk)
        self._lookups = _Lookups(self._pages)
        self._workers = concurrent.futures.ThreadPoolExecutor(_THREADS, "pagoda-offload")
        self._running: set[concurrent.futures.Future[None]] = set()
        self._done: queue.SimpleQueue[tuple[JobResult, list[OffloadKey]]] = queue.SimpleQueue()

    def lookup(self, key: OffloadKey, req_context: ReqContext) -> LookupResult:
        found = self._lookups.lookup(key, req_context)
        return LookupResult.RETRY if found is None else LookupResult.HIT if found else LookupResult.MISS

    def submit_store(self, job_metadata: TransferJob) -> None:
        self._submit(job_metadata, self._pages.write)

    def submit_load(self, job_metadata: TransferJob) -> None:
        self._submit(job_metadata, self._pages.read)

    def get_finished_jobs(self) -> Iterable[JobResult]:
        finished = []
        while not self._done.empty():
            result, missed = self._done.get()
            self._lookups.mark_miss(missed)
            finished.append(result)
        self._running = {job for job in self._running if not job.done()}
        return finished

    def has_pending_work(self) -> bool:
        return bool(self._running) or not self._done.empty()

    def on_new_request(self, req_context: ReqContext) -> RequestOffloadingContext:
        return RequestOffloadingContext()

    def on_request_finished(self, req_context: ReqContext) -> None:
        self._lookups.cleanup(req_context.req_id)

    def on_schedule_end(self, context: ScheduleEndContext) -> None:
        self._lookups.flush()

    def drain_jobs(self) -> None:
        concurrent.futures.wait(self._running)

    def shutdown(self) -> None:
        self._lookups.shutdown()
        self._workers.shutdown()
        self._pages.close()

    def _submit(self, job: TransferJob, move: Any) -> None:
        keys = list(job.keys)
        self._running.add(self._workers.submit(self._run, job, keys, [int(chunk) for chunk in job.chunk_ids], move))

    def _run(self, job: TransferJob, keys: list[OffloadKey], chunks: list[int], move: Any) -> None:
        """Runs in a thread. Each key is a separate chain: vLLM's keys name all tokens up to their
        block."""
        started = time.monotonic()
        try:
            moved = move([Chain([bytes(key)], memory=self._memory, pages=[chunk]) for key, chunk in zip(keys, chunks)])
        except Exception:  # A job that is never reported would hold its chunks forever.
            moved = [0] * len(keys)
        there = [key for key, count in zip(keys, moved) if count]
        missed = [key for key, count in zip(keys, moved) if not count] if job.is_promotion else []
        self._done.put((JobResult(job.job_id, len(there) == len(keys), tuple(there) if job.is_promotion and there else None,
                                  time.monotonic() - started, len(there) * self._memory.page_bytes), missed))


def identity_of(config: OffloadingConfig, chunk_bytes: int, options: KeyedOptions) -> CacheIdentity:
    """Keys name the tokens. The identity names the rest: the model, and the layout of a chunk of
    all ranks. ValueError: the engine has adapters. vLLM's keys name one by its name and path, so KV
    of its earlier files would match, and vLLM does not reset the tiers below its own."""
    import vllm
    from vllm.config import get_current_vllm_config_or_none

    whole = get_current_vllm_config_or_none()
    if whole is not None and whole.lora_config is not None:
        raise ValueError("PagodaOffloadingSpec cannot tell an adapter's files apart: start vLLM without --enable-lora, or with the "
                         "connector PagodaConnector of pagoda.vllm")
    parallel = config.parallel
    facts = [[(group.tokens_per_block, len(group.layer_names)) for group in config.groups], config.cache.tokens_per_hash,
             config.cache.blocks_per_chunk, chunk_bytes, config.kv_cache_layout, config.canonical_layout, config.replicated_layout,
             None if parallel.is_parallelism_agnostic else [parallel.tp_size, parallel.pp_size, parallel.pcp_size, parallel.dcp_size]]
    revision = options.revision or revision_of(config.model.name, None)
    if whole is not None:  # Its names are more precise than the offloading's own.
        revision = "+".join([options.revision or revision_of(str(whole.model_config.model), whole.model_config.revision,
                                                             whole.load_config.download_dir), configuration_of(whole)])
    return CacheIdentity(model=printable(config.model.name), revision=revision,
                         dtype=printable(options.dtype or config.model.dtype),
                         layout="vllm-offload-1:" + hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16],
                         kernel_packing=f"vllm-{vllm.__version__}")
