"""Pagoda as TensorRT-LLM's external KV cache. NOT RUN YET: TensorRT-LLM needs a GPU, and this
module has not run on one.

    KvCacheConnectorConfig(connector_module="pagoda.tensorrt_llm",
                           connector_scheduler_class="PagodaScheduler",
                           connector_worker_class="PagodaWorker")

Written against TensorRT-LLM 1.2's tensorrt_llm/_torch/pyexecutor/kv_cache_connector.py. It has no
own options: it uses the daemon of PAGODA_ENDPOINT. Unlike vLLM, TensorRT-LLM cannot handle a failed
load. A load that cannot be confirmed raises, and the engine ends. It never computes with wrong KV.
"""

try:
    import tensorrt_llm  # noqa: F401
except ImportError as error:
    raise ImportError("pagoda.tensorrt_llm runs inside TensorRT-LLM, which is not installed here") from error

from pagoda.tensorrt_llm.connector import PagodaScheduler, PagodaWorker

__all__ = ["PagodaScheduler", "PagodaWorker"]
