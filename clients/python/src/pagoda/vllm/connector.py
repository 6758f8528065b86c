"""vLLM's connector interface (KVConnectorBase_V1), translated to pagoda.connector."""

import dataclasses
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
from vllm.distributed.kv_transfer.kv_connector.v1.base import (KVConnectorBase_V1, KVConnectorHandshakeMetadata, KVConnectorMetadata,
                                                               KVConnectorRole, KVConnectorTransferResults, KVConnectorWorkerMetadata,
                                                               SupportsHMA)
from vllm.v1.metrics.cache_hit_source import CacheHitSource
from vllm.v1.request import RequestStatus

import pagoda
from pagoda.connector import (Handovers, HostMover, Link, PageLayout, RankPages, Scheduled, SchedulerSide, Sources, StepPlan, StepReport,
                              WorkerSide)
from pagoda.vllm import identity, keys, pages
from pagoda.vllm.options import WHERE, Options
from pagoda.vllm.stats import PagodaPromMetrics, PagodaStats

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.forward_context import ForwardContext
    from vllm.v1.core.kv_cache_manager import KVCacheBlocks
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.kv_cache_interface import KVCacheConfig
    from vllm.v1.outputs import KVConnectorOutput
    from vllm.v1.request import Request

log = logging.getLogger("pagoda.connector")


def _log_where_vllm_does() -> None:
    ours, theirs = logging.getLogger("pagoda"), logging.getLogger("vllm")
    if theirs.handlers and not ours.handlers:
        ours.handlers, ours.propagate = list(theirs.handlers), False
        ours.setLevel(theirs.level)


@dataclasses.dataclass
class Handshake(KVConnectorHandshakeMetadata):
    """From a worker to the scheduler, once."""

    pages: RankPages


@dataclasses.dataclass
class Metadata(KVConnectorMetadata):
    """From the scheduler to the workers, with each step."""

    plan: StepPlan
    layout: PageLayout


@dataclasses.dataclass
class WorkerMetadata(KVConnectorWorkerMetadata):
    """From the workers to the scheduler, after each step."""

    report: StepReport

    def aggregate(self, other: KVConnectorWorkerMetadata) -> "WorkerMetadata":
        assert isinstance(other, WorkerMetadata)
        return WorkerMetadata(self.report.merge(other.report))


class PagodaConnector(KVConnectorBase_V1, SupportsHMA):
    """A cache that vLLM asks before it computes, and informs afterwards. vLLM works without it:
    without a daemon vLLM computes, and uses the daemon when it is back."""

    def __init__(self, vllm_config: "VllmConfig", role: KVConnectorRole, kv_cache_config: "KVCacheConfig") -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        _log_where_vllm_does()
        assert vllm_config.kv_transfer_config is not None
        self._options = Options.take(vllm_config.kv_transfer_config.kv_connector_extra_config, where=WHERE)
        pages.check(vllm_config, kv_cache_config)
        self._scheduler: _Scheduler | None = None
        self._worker: _Worker | None = None
        if role is KVConnectorRole.SCHEDULER:
            # Recompute after a failed load. vLLM's default policy would fail the request, and a
            # cache must not do that.
            vllm_config.kv_transfer_config.kv_load_failure_policy = "recompute"
            self._scheduler = _Scheduler(vllm_config, kv_cache_config, self._options)
        else:
            self._worker = _Worker(vllm_config, kv_cache_config, self._options)

    @property
    def requires_kv_delivery(self) -> bool:
        return False

    @classmethod
    def get_required_kvcache_layout(cls, vllm_config: "VllmConfig") -> str | None:
        assert vllm_config.kv_transfer_config is not None
        return Options.take(vllm_config.kv_transfer_config.kv_connector_extra_config, where=WHERE).kv_cache_layout

    @classmethod
    def build_kv_connector_stats(cls, data: dict[str, Any] | None = None) -> PagodaStats:
        return PagodaStats(data=data or {})

    @classmethod
    def build_prom_metrics(cls, vllm_config: "VllmConfig", metric_types: Any, labelnames: list[str],
                           per_engine_labelvalues: dict[int, list[object]]) -> PagodaPromMetrics:
        return PagodaPromMetrics(vllm_config, metric_types, labelnames, per_engine_labelvalues)

    def shutdown(self) -> None:
        if self._scheduler is not None:
            self._scheduler.close()
        if self._worker is not None:
            self._worker.close()

    def get_kv_connector_stats(self) -> PagodaStats | None:
        side = self._scheduler or self._worker
        assert side is not None
        stats = PagodaStats(data={name: value for name, value in side.take_counts().items() if value})
        return None if stats.is_empty() else stats

    # --- The workers' side ---

    @property
    def _own_worker(self) -> "_Worker":
        assert self._worker is not None
        return self._worker

    @property
    def _metadata(self) -> Metadata:
        metadata = self._get_connector_metadata()
        assert isinstance(metadata, Metadata)
        return metadata

    def register_kv_caches(self, kv_caches: dict[str, torch.Tensor]) -> None:
        self._own_worker.register(kv_caches)

    def get_handshake_metadata(self) -> Handshake:
        return Handshake(self._own_worker.pages)

    def handle_preemptions(self, kv_connector_metadata: KVConnectorMetadata) -> None:
        # vLLM calls this before each step's kernels.
        assert isinstance(kv_connector_metadata, Metadata)
        self._own_worker.side.begin(kv_connector_metadata.plan, kv_connector_metadata.layout)

    def start_load_kv(self, forward_context: "ForwardContext", **kwargs: Any) -> None:
        self._own_worker.side.load(self._metadata.plan)

    def wait_for_layer_load(self, layer_name: str) -> None:
        """No step reads KV that is still being loaded: loads are asynchronous."""

    def save_kv_layer(self, layer_name: str, kv_layer: torch.Tensor, attn_metadata: Any, **kwargs: Any) -> None:
        """Whole blocks are saved after the step."""

    def wait_for_save(self) -> None:
        self._own_worker.side.save(self._metadata.plan)

    def get_transfer_results(self, finished_req_ids: set[str]) -> KVConnectorTransferResults:
        loaded, failed = self._own_worker.side.take_loaded()
        return KVConnectorTransferResults(finished_recving=loaded, failed_recving=failed)

    def get_finished(self, finished_req_ids: set[str]) -> tuple[set[str] | None, set[str] | None]:
        return None, self.get_transfer_results(finished_req_ids).finished_recving

    def build_connector_worker_meta(self) -> WorkerMetadata:
        return WorkerMetadata(self._own_worker.side.report())

    # --- The scheduler's side ---

    @property
    def _own_scheduler(self) -> "_Scheduler":
        assert self._scheduler is not None
        return self._scheduler

    def set_xfer_handshake_metadata_pp_aware(self, metadata: dict[tuple[int, int], KVConnectorHandshakeMetadata]) -> None:
        self._own_scheduler.open([one.pages for one in metadata.values() if isinstance(one, Handshake)])

    def get_num_new_matched_tokens(self, request: "Request", num_computed_tokens: int) -> tuple[int | None, bool]:
        external = self._own_scheduler.match(request, num_computed_tokens)
        # Loads are asynchronous on every device, so a failed load costs only its own request.
        return external, bool(external)

    def update_state_after_alloc(self, request: "Request", blocks: "KVCacheBlocks", num_external_tokens: int) -> None:
        self._own_scheduler.allocated(request, blocks, num_external_tokens)

    def get_external_cache_hit_sources(self, request: "Request", num_external_tokens: int) -> dict[CacheHitSource, int]:
        return self._own_scheduler.sources(request, num_external_tokens)

    def build_connector_meta(self, scheduler_output: "SchedulerOutput") -> KVConnectorMetadata:
        return self._own_scheduler.plan(scheduler_output)

    def update_connector_output(self, connector_output: "KVConnectorOutput") -> None:
        if connector_output.failed_recving:
            self._own_scheduler.side.loads_failed(connector_output.failed_recving)
        if isinstance(connector_output.kv_connector_worker_meta, WorkerMetadata):
            self._own_scheduler.side.report(connector_output.kv_connector_worker_meta.report)

    def has_pending_push_work(self) -> bool:
        # vLLM continues with empty steps until the copies of the last step have ended. Only then
        # are its blocks committed.
        return self._own_scheduler.has_copies_under_way

    def request_finished_all_groups(self, request: "Request", block_ids: tuple[list[int], ...]) -> tuple[bool, dict[str, Any] | None]:
        # vLLM may reuse the blocks at once: WorkerSide.begin prevents a step from writing a block
        # that is still being saved.
        return False, self._own_scheduler.finished(request)

    def request_finished(self, request: "Request", block_ids: list[int]) -> tuple[bool, dict[str, Any] | None]:
        return self.request_finished_all_groups(request, (block_ids,))

    def reset_cache(self) -> bool:
        log.warning("vLLM resets its external cache: all cached KV is removed, for all replicas")
        return self._own_scheduler.side.reset()

    def weights_updated(self, version: str) -> bool:
        """The weights were updated in place. See SchedulerSide.weights_updated."""
        return self._own_scheduler.side.weights_updated(version)


class _Scheduler:
    """Opens the cache and a session when the workers have reported their memory."""

    def __init__(self, config: "VllmConfig", kv_cache: "KVCacheConfig", options: Options) -> None:
        self._config = config
        self._options = options
        # If vLLM has turned off both, its kernels cannot compute a prompt after a cached prefix.
        # This is so for latent attention on the CPU.
        self._takes_hits = bool(config.cache_config.enable_prefix_caching or config.scheduler_config.enable_chunked_prefill)
        if not self._takes_hits:
            log.warning("vLLM has turned off prefix caching and chunked prefill, so it cannot use cached KV: Pagoda is not used")
        self._block_sizes = pages.block_sizes(kv_cache)
        self._side: SchedulerSide | None = None
        self._link: Link | None = None
        self._layout: PageLayout | None = None
        self._token = options.token
        assert config.kv_transfer_config is not None
        self._role = config.kv_transfer_config.kv_role

    @property
    def side(self) -> SchedulerSide:
        if self._side is None:
            raise RuntimeError("vLLM asked the connector before its workers reported their KV memory")
        return self._side

    def open(self, ranks: list[RankPages]) -> None:
        parallel = self._config.parallel_config
        expected = parallel.tensor_parallel_size * parallel.pipeline_parallel_size
        if len(ranks) != expected:
            raise RuntimeError(f"only {len(ranks)} of {expected} workers reported their KV memory")
        layout = PageLayout.merge(ranks, self._block_sizes)
        whose = identity.identity_of(self._config, layout)
        name = self._options.cache or identity.cache_name(whose, layout)
        options = self._options

        def connect() -> pagoda.Client:
            pagoda.open_cache(options.endpoint, name, identity=whose, layers=layout.cache_layers(), tokens_per_block=layout.tokens_per_block,
                              host=options.host, disk=options.disk, timeout=options.timeout, token=self._token)
            return pagoda.connect(options.endpoint, cache=name, name="vllm", timeout=options.timeout, token=self._token)

        self._layout = layout
        self._link = Link(connect, name=f"vllm {name}")
        self._side = SchedulerSide(self._link, layout, ranks=expected, fetch_deadline=options.fetch_deadline,
                                   patience=options.timeout, sources=Sources(store=options.fetch_from_store == "auto"),
                                   handovers=Handovers(lease=options.export_lease))
        if not self._link.wait(options.start_timeout):
            log.warning("no Pagoda daemon yet: vLLM starts without cached KV, and uses the daemon when it is there")

    def close(self) -> None:
        if self._side is not None:
            self._side.close()
        if self._link is not None:
            self._link.close()

    def match(self, request: "Request", computed: int) -> int | None:
        # The tokens and images of a streaming session change after the look-up.
        if not self._takes_hits or request.resumable:
            return 0
        assert self._layout is not None
        return self.side.match(keys.text_of(request, self._layout.tokens_per_block, takes_source=self._role != "kv_producer"), computed)

    def finished(self, request: "Request") -> dict[str, Any] | None:
        """Returns the kv_transfer_params of the answer."""
        handover = self.side.finished(request.request_id, hands_over=self._hands_over(request))
        return keys.handover_params(handover) if handover is not None else None

    def _hands_over(self, request: "Request") -> bool:
        """Whether another engine continues the request. An engine of both roles is told so by the
        request, as vLLM's proxies for separate prefill and decode tell it."""
        if request.status not in (RequestStatus.FINISHED_STOPPED, RequestStatus.FINISHED_LENGTH_CAPPED):
            return False
        return self._role == "kv_producer" or self._role == "kv_both" and keys.asks_for_handover(request.kv_transfer_params)

    def allocated(self, request: "Request", blocks: "KVCacheBlocks", external: int) -> None:
        self.side.allocated(request.request_id, blocks.get_block_ids(), external)

    def sources(self, request: "Request", external: int) -> dict[CacheHitSource, int]:
        disk = self.side.disk_tokens(request.request_id, external)
        remote = self.side.remote_tokens(request.request_id, external)
        tokens_of = {CacheHitSource.HOST: external - disk - remote, CacheHitSource.DISK: disk, CacheHitSource.EXTERNAL_UNSPECIFIED: remote}
        return {source: tokens for source, tokens in tokens_of.items() if tokens}

    def plan(self, output: "SchedulerOutput") -> Metadata:
        assert self._layout is not None
        new_blocks: set[int] = set()
        rows = list(self._rows(output, new_blocks))
        return Metadata(self.side.plan(rows, new_blocks), self._layout)

    def _rows(self, output: "SchedulerOutput", new_blocks: set[int]) -> Iterable[Scheduled]:
        def computed(request_id: str, before: int) -> int:
            # Draft tokens may be rejected: their KV is not complete with this step.
            return before + output.num_scheduled_tokens[request_id] - len(output.scheduled_spec_decode_tokens.get(request_id, ()))

        for request in output.scheduled_new_reqs:
            new_blocks.update(*request.block_ids)
            yield Scheduled(request.req_id, request.block_ids, True, computed(request.req_id, request.num_computed_tokens))
        cached = output.scheduled_cached_reqs
        for request_id, blocks, before in zip(cached.req_ids, cached.new_block_ids, cached.num_computed_tokens):
            if blocks is not None:
                new_blocks.update(*blocks)
            yield Scheduled(request_id, blocks, request_id in cached.resumed_req_ids, computed(request_id, before))

    @property
    def has_copies_under_way(self) -> bool:
        return self._side is not None and self._side.has_copies_under_way

    def take_counts(self) -> dict[str, int | float]:
        return dataclasses.asdict(self._side.take_counts()) if self._side is not None else {}


class _Worker:
    """The worker of one rank."""

    def __init__(self, config: "VllmConfig", kv_cache: "KVCacheConfig", options: Options) -> None:
        self._config = config
        self._kv_cache = kv_cache
        self._options = options
        self._side: WorkerSide | None = None
        self._pages: RankPages | None = None

    @property
    def side(self) -> WorkerSide:
        if self._side is None:
            raise RuntimeError("vLLM registered no KV memory with the connector")
        return self._side

    @property
    def pages(self) -> RankPages:
        assert self._pages is not None
        return self._pages

    def register(self, kv_caches: dict[str, torch.Tensor]) -> None:
        from vllm.distributed.parallel_state import get_pp_group, get_tensor_model_parallel_rank

        tp_rank, pp_rank = get_tensor_model_parallel_rank(), get_pp_group().rank_in_group
        codec = pages.codec_of(self._options, kv_caches)
        self._pages, layers = pages.describe(self._config, self._kv_cache, kv_caches, tp_rank=tp_rank, pp_rank=pp_rank,
                                             backend=self._backend(list(kv_caches)), codec=codec)
        rank = pp_rank * self._config.parallel_config.tensor_parallel_size + tp_rank
        device = next(iter(kv_caches.values())).device
        if device.type == "cpu":
            self._side = WorkerSide(rank, HostMover(), timeout=self._options.timeout, codec=codec)
            self._side.register({layer: memory.numpy() for layer, memory in layers.items()})
        else:
            from pagoda.connector.cuda import CudaMover

            # vLLM zeroes new blocks of such caches before it calls the connector.
            zeroes = bool(getattr(self._kv_cache, "needs_kv_cache_zeroing", False))
            self._side = WorkerSide(rank, CudaMover(device), timeout=self._options.timeout,
                                    steps_wait_for_saves=zeroes, codec=codec)
            self._side.register(layers)

    def _backend(self, names: list[str]) -> str:
        """The attention backends' names, which determine the packing of a page."""
        from vllm.config import get_layers_from_vllm_config
        from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase

        layers = get_layers_from_vllm_config(self._config, AttentionLayerBase, names)
        return "+".join(sorted({layer.get_attn_backend().get_name() for layer in layers.values()}))

    def take_counts(self) -> dict[str, int | float]:
        return dataclasses.asdict(self._side.take_moved()) if self._side is not None else {}

    def close(self) -> None:
        if self._side is not None:
            self._side.close()
