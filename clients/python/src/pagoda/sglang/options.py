"""The options for Pagoda in SGLang's configuration, and the identity of a rank's KV."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from pagoda.caches import CacheIdentity
from pagoda.connector.keyed_options import KeyedOptions
from pagoda.connector.model_identity import adapter_revision, printable, revision_of

_WHERE = 'the extra config\'s "pagoda"'


@dataclasses.dataclass(frozen=True)
class Options:
    """The key "pagoda" of the extra config: the keys of KeyedOptions, for the KV pool, and
    `pools`."""

    keyed: KeyedOptions
    pools: Mapping[str, Mapping[str, Any]]
    """Sizes of the pools besides the KV pool, by SGLang's names: {"mamba": {"host": "8GiB", "disk":
    "64GiB"}}."""

    @classmethod
    def take(cls, extra_config: Mapping[str, Any] | None) -> "Options":
        """ValueError: an unknown key, or a value of another type."""
        given = dict((extra_config or {}).get("pagoda") or {})
        pools = given.pop("pools", {})
        for name, sizes in pools.items():
            if not isinstance(sizes, Mapping) or set(sizes) - {"host", "disk", "cache"}:
                raise ValueError(f"{_WHERE}: pools has {name}: {sizes!r}; a pool has host, disk and cache")
        return cls(KeyedOptions.take(given, where=_WHERE), pools)

    def of_pool(self, name: str) -> KeyedOptions:
        if name == "kv":
            return self.keyed
        return dataclasses.replace(self.keyed, **{"cache": "", "host": None, "disk": None, **self.pools.get(name, {})})


def says_prefixes() -> bool:
    """Whether this server's SGLang passes the keys before a call's keys. SGLang removes this
    setting from the configuration that storages receive."""
    try:
        from sglang.srt.mem_cache.hybrid_cache.hybrid_cache_controller import HybridCacheController
        from sglang.srt.runtime_context import get_memory

        return bool(HybridCacheController.parse_storage_backend_extra_config(get_memory().hicache_storage_backend_extra_config)[-1])
    except Exception:  # Outside a server nothing is published.
        return False


def _adapters() -> list[list[str]]:
    """The adapters of --lora-paths with their files. SGLang names them by name and path alone, so
    their pages match after a start with other files. An adapter that is loaded later has a new name
    each time."""
    try:
        from sglang.srt.runtime_context import get_lora

        adapters = get_lora().lora_paths or ()
    except Exception:  # A process to which SGLang publishes no adapters.
        return []
    return [[str(adapter.lora_name), adapter_revision(str(adapter.lora_path))] for adapter in adapters]


def identity(pool: str, *, model: str, dtype: str, layout: str, options: KeyedOptions) -> CacheIdentity:
    """The identity of a cache's KV. `model`: SGLang's name of the model. `layout`: everything that
    determines the meaning of a page's bytes."""
    path, revision, kv_dtype, facts = model, None, "", ""
    try:
        from sglang.srt.runtime_context import get_model

        served = get_model()
        path, revision, kv_dtype = str(served.model_path), served.revision, str(served.kv_cache_dtype)
        # Settings that change KV under the same path and revision.
        told: list[Any] = [str(getattr(served, name, None)) for name in ("quantization", "json_model_override_args", "context_length", "quantization_param_path")]
        told += _adapters()
        facts = "+" + hashlib.sha256(json.dumps([*told, getattr(served, "load_format", "") == "dummy"]).encode()).hexdigest()[:16]
    except Exception:  # Outside a server nothing is published.
        pass
    stored = "+".join(filter(None, (dtype.removeprefix("torch."), kv_dtype)))
    return CacheIdentity(model=printable(model or path or "unnamed"), revision=(options.revision or revision_of(path, revision)) + facts,
                         dtype=printable(options.dtype or stored), layout=printable(f"sglang-1:{layout}"), kernel_packing=printable(pool))
