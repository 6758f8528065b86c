"""Pagoda as TensorRT-LLM's external KV cache. NOT RUN YET: TensorRT-LLM needs a GPU, and none has run this module.

    KvCacheConnectorConfig(connector_module="pagoda.tensorrt_llm", connector_scheduler_class="PagodaScheduler",
                           connector_worker_class="PagodaWorker")

Written against TensorRT-LLM 1.2's tensorrt_llm/_torch/pyexecutor/kv_cache_connector.py. It has no options of its own: the
daemon is PAGODA_ENDPOINT's. Unlike vLLM, TensorRT-LLM knows no load that fails: a load that cannot be confirmed raises, and
the engine ends. It never computes with wrong KV.
"""

try:
    import tensorrt_llm  # noqa: F401
except ImportError as error:
    raise ImportError("pagoda.tensorrt_llm runs inside TensorRT-LLM: this Python has none") from error

from pagoda.tensorrt_llm.connector import PagodaScheduler, PagodaWorker

__all__ = ["PagodaScheduler", "PagodaWorker"]
