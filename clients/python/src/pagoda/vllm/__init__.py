"""Pagoda as vLLM's external KV cache.

    vllm serve MODEL --kv-transfer-config '{"kv_connector": "PagodaConnector",
        "kv_connector_module_path": "pagoda.vllm", "kv_role": "kv_both"}'

The daemon needs memory for caches that clients open: `pagodad --memory 64GiB`.
clients/python/CONNECTORS.md has every option. Written and tested with vLLM 0.32.
"""

from typing import Any

try:
    import vllm  # noqa: F401
except ImportError as error:
    raise ImportError("pagoda.vllm runs inside vLLM (pip install vllm), which is not installed here") from error

from pagoda.vllm.connector import PagodaConnector

__all__ = ["PagodaConnector", "PagodaOffloadingSpec"]


def __getattr__(name: str) -> Any:
    """Loads PagodaOffloadingSpec on demand: an engine with PagodaConnector does not need vLLM's own
    offloading."""
    if name == "PagodaOffloadingSpec":
        from pagoda.vllm.offloading import PagodaOffloadingSpec

        return PagodaOffloadingSpec
    raise AttributeError(name)
