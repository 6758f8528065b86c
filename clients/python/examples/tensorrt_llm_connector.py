"""Pagoda as TensorRT-LLM's external KV cache. THIS HAS NEVER RUN against a real TensorRT-LLM, which
needs a GPU. It is a start for someone who has one, and not part of the package.

With this folder on PYTHONPATH:

    KvCacheConnectorConfig(connector_module="tensorrt_llm_connector",
                           connector_scheduler_class="PagodaScheduler",
                           connector_worker_class="PagodaWorker")

Written against TensorRT-LLM 1.2's tensorrt_llm/_torch/pyexecutor/kv_cache_connector.py. It has no
own options: it uses the daemon of PAGODA_ENDPOINT. Unlike vLLM, TensorRT-LLM cannot handle a failed
load. A load that cannot be confirmed raises, and the engine ends. It never computes with wrong KV.

The leader's scheduler runs in the process of rank 0, beside that rank's worker. Workers cannot send
messages back to it, so saves end with their step: TensorRT-LLM gathers from all ranks after
wait_for_save, so at the next step all saves have ended.
"""

import dataclasses
import hashlib
import json
import threading
from typing import Any

import torch
from tensorrt_llm._torch.pyexecutor.kv_cache_connector import KvCacheConnectorScheduler, KvCacheConnectorWorker, SchedulerOutput
from tensorrt_llm._utils import mpi_allgather, mpi_rank, mpi_world_size

import pagoda
from pagoda.connector import LayerPages, Link, PageLayout, RankPages, Scheduled, SchedulerSide, StepPlan, StepReport, Text, WorkerSide
from pagoda.connector.cuda import CudaMover

TIMEOUT = 1.0


@dataclasses.dataclass
class Metadata:
    plan: StepPlan
    layout: PageLayout


class _Ranks:
    """The properties that all ranks share. The worker of rank 0 passes them to the scheduler in its
    process."""

    pages: list[RankPages] = []
    known = threading.Event()


def describe(memory: torch.Tensor, *, rank: int, world: int, heads: int, tokens: int, packing: str) -> tuple[RankPages, dict[LayerPages, torch.Tensor]]:
    """Describes TensorRT-LLM's pool (blocks, layers, K and V, heads * tokens * head dimension): the
    bytes of each layer, (blocks, pieces, heads, chunk bytes), with K and V as pieces."""
    blocks, layers, kv_factor, elements = memory.shape
    chunk = elements // heads * memory.element_size()
    whole = memory.view(torch.uint8).view(blocks, layers, kv_factor, heads, chunk)
    own = {LayerPages(f"layer.{index}", 0, 0, kv_factor, heads, chunk, shard=rank, shards=world, is_writer=True): whole[:, index]
           for index in range(layers)}
    return RankPages(0, tuple(own), packing), own


class PagodaScheduler(KvCacheConnectorScheduler):  # type: ignore[misc]
    """Runs on rank 0."""

    def __init__(self, llm_args: Any) -> None:
        super().__init__(llm_args)
        self._side: SchedulerSide | None = None
        self._layout: PageLayout | None = None
        self._tokens: dict[str, list[int]] = {}
        self._promised: dict[str, int] = {}
        self._step = 0

    def _open(self) -> SchedulerSide:
        if self._side is None:
            if not _Ranks.known.wait(60):
                raise RuntimeError("no worker has reported its KV memory")
            args = self._llm_args
            layout = PageLayout.merge(_Ranks.pages, [args.kv_cache_config.tokens_per_block])
            identity = pagoda.CacheIdentity(model=str(args.model).replace(" ", "_")[-200:], revision=str(getattr(args, "revision", "") or ""),
                                            dtype=str(args.kv_cache_config.dtype), layout=f"tensorrt-llm-pages-1:{layout.digest()}",
                                            kernel_packing=layout.packing)
            name = "trtllm-" + hashlib.sha256(json.dumps(dataclasses.astuple(identity)).encode()).hexdigest()[:32]

            def connect() -> pagoda.Client:
                pagoda.open_cache(None, name, identity=identity, layers=layout.cache_layers(), tokens_per_block=layout.tokens_per_block,
                                  timeout=TIMEOUT)
                return pagoda.connect(None, cache=name, name="tensorrt-llm", timeout=TIMEOUT)

            self._layout = layout
            link = Link(connect, name=f"TensorRT-LLM {name}")
            link.wait(10)
            self._side = SchedulerSide(link, layout, ranks=1)
        return self._side

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int, bool]:
        name = str(request.request_id)
        self._tokens[name] = list(request.get_tokens(0))
        self._promised[name] = self._open().match(Text(name, self._tokens[name]), num_computed_tokens) or 0
        return self._promised[name], False

    def update_state_after_alloc(self, request: Any, block_ids: list[int]) -> None:
        name = str(request.request_id)
        self._open().allocated(name, [list(block_ids)], self._promised.pop(name, 0))

    def build_connector_meta(self, scheduler_output: SchedulerOutput) -> Metadata:
        side = self._open()
        # All ranks have passed wait_for_save of the previous step.
        side.report(StepReport({0: self._step}, set()))
        self._step += 1
        rows, new_blocks = [], set()
        for is_new, requests in ((True, scheduler_output.new_requests), (False, scheduler_output.cached_requests)):
            for row in requests:
                name = str(row.request_id)
                tokens = self._tokens.setdefault(name, [])
                # The first time all tokens are new: the matched ones are already known.
                tokens[len(tokens):] = row.new_tokens if not is_new or not tokens else row.new_tokens[len(tokens):]
                new_blocks.update(row.new_block_ids)
                rows.append(Scheduled(name, [row.new_block_ids], is_new, row.computed_position + row.num_scheduled_tokens))
        assert self._layout is not None
        return Metadata(side.plan(rows, new_blocks), self._layout)

    def request_finished(self, request: Any, cache_block_ids: list[int]) -> bool:
        name = str(request.request_id)
        self._tokens.pop(name, None)
        self._open().finished(name)
        return False


class PagodaWorker(KvCacheConnectorWorker):  # type: ignore[misc]
    """Runs on each rank."""

    def __init__(self, llm_args: Any) -> None:
        super().__init__(llm_args)
        self._side: WorkerSide | None = None
        self._mover: CudaMover | None = None

    def register_kv_caches(self, kv_cache_tensor: torch.Tensor) -> None:
        args, rank, world = self._llm_args, mpi_rank(), mpi_world_size()
        tokens = args.kv_cache_config.tokens_per_block
        # Without it, each rank has one "head", and other numbers of ranks do not match.
        heads = getattr(args, "num_kv_heads", None) or 1
        packing = f"tensorrt-llm:{'heads' if heads > 1 else f'tp{world}'}"
        pages, layers = describe(kv_cache_tensor, rank=rank, world=world, heads=heads, tokens=tokens, packing=packing)
        self._mover = CudaMover(kv_cache_tensor.device)
        self._side = WorkerSide(rank, self._mover, timeout=TIMEOUT)
        self._side.register(layers)
        _Ranks.pages = mpi_allgather(pages)
        _Ranks.known.set()

    @property
    def _own(self) -> tuple[WorkerSide, Metadata]:
        assert self._side is not None
        return self._side, self.get_connector_meta()

    def start_load_kv(self, stream: torch.cuda.Stream) -> None:
        side, metadata = self._own
        with torch.cuda.stream(stream):
            side.begin(metadata.plan, metadata.layout)
            side.load(metadata.plan)
        if metadata.plan.loads or metadata.plan.failed_loads:
            torch.cuda.synchronize()
            _, failed = side.take_loaded()
            if failed:
                raise RuntimeError(f"Pagoda lost the KV of requests {sorted(failed)} while it was loaded, and TensorRT-LLM cannot recompute it")

    def wait_for_layer_load(self, layer_idx: int, stream: torch.cuda.Stream) -> None:
        """start_load_kv returns only when everything is loaded."""

    def save_kv_layer(self, layer_idx: int, stream: torch.cuda.Stream) -> None:
        """Whole blocks are saved after the step."""

    def wait_for_save(self, stream: torch.cuda.Stream) -> None:
        side, metadata = self._own
        with torch.cuda.stream(stream):
            side.save(metadata.plan)
        if metadata.plan.saves:
            torch.cuda.synchronize()
        side.report()

    def get_finished(self, finished_gen_req_ids: list[int], started_loading_req_ids: list[int]) -> tuple[list[int], list[int]]:
        return [], []
