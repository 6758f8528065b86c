"""Pagoda as the L2 cache of LMCache's multi-process server.

    lmcache server ... --l2-adapter '{"type": "plugin", "module_path": "pagoda.lmcache",
        "class_name": "PagodaL2Adapter",
        "adapter_params": {"endpoint": "unix:/run/pagoda/pagoda.sock"}}'

The daemon needs memory for caches that clients open: `pagodad --memory 64GiB`.
clients/python/CONNECTORS.md has every option. Written for LMCache 0.5.6.
"""

try:
    import lmcache  # noqa: F401
except ImportError as error:
    raise ImportError("pagoda.lmcache runs inside LMCache (pip install lmcache), which is not installed here") from error

from pagoda.lmcache.adapter import PagodaL2Adapter

__all__ = ["PagodaL2Adapter"]
