"""Pagoda as SGLang's storage below its host cache (HiCache), or below its GPU cache without a host
cache.

    python -m sglang.launch_server --model-path MODEL --enable-hierarchical-cache
        --hicache-storage-backend dynamic
        --hicache-storage-backend-extra-config '{"backend_name": "pagoda",
            "module_path": "pagoda.sglang", "class_name": "PagodaHiCacheStorage",
            "interface_v1": 1, "pagoda": {"endpoint": "unix:/run/pagoda/pagoda.sock"}}'

The daemon needs memory for caches that clients open: `pagodad --memory 64GiB`.
clients/python/CONNECTORS.md has every option. Written for SGLang 0.5.23.
"""

try:
    import sglang  # noqa: F401
except ImportError as error:
    raise ImportError("pagoda.sglang runs inside SGLang (pip install sglang), which is not installed here") from error

from typing import TYPE_CHECKING, Any

from pagoda.sglang.storage import PagodaHiCacheStorage

if TYPE_CHECKING:
    from pagoda.sglang.linker import PagodaCacheLinker

__all__ = ["PagodaCacheLinker", "PagodaHiCacheStorage"]


def __getattr__(name: str) -> Any:
    """Loads the linker's module on demand: it needs more of SGLang than the storage does."""
    if name == "PagodaCacheLinker":
        from pagoda.sglang.linker import PagodaCacheLinker

        return PagodaCacheLinker
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
