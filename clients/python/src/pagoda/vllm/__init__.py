"""Pagoda as vLLM's external KV cache.

    vllm serve MODEL --kv-transfer-config '{"kv_connector": "PagodaConnector", "kv_connector_module_path": "pagoda.vllm",
        "kv_role": "kv_both", "kv_connector_extra_config": {"endpoint": "unix:/run/pagoda/pagoda.sock"}}'

against a daemon with memory for caches that clients bring: `pagodad --memory 64GiB`. clients/python/CONNECTORS.md has
every option. Written and tested with vLLM 0.32.
"""

try:
    import vllm  # noqa: F401
except ImportError as error:
    raise ImportError("pagoda.vllm runs inside vLLM (pip install vllm): this Python has none") from error

from pagoda.vllm.connector import PagodaConnector

__all__ = ["PagodaConnector"]
