"""The identity of the KV: what must agree before two engines share a cache."""

import hashlib
import json
import re
from typing import TYPE_CHECKING, Any

from pagoda.caches import CacheIdentity
from pagoda.connector import PageLayout
from pagoda.connector.model_identity import long_rope_fact, own_process, printable, revision_of

if TYPE_CHECKING:
    from vllm.config import VllmConfig


def identity_of(config: "VllmConfig", layout: PageLayout) -> CacheIdentity:
    """The model by name, revision and configuration; the KV's type; how pages are packed."""
    model = config.model_config
    dtype = config.cache_config.cache_dtype
    revision = revision_of(str(model.model), model.revision, config.load_config.download_dir)
    return CacheIdentity(model=printable(str(model.model)), revision=f"{revision}+{configuration_of(config)}",
                         dtype=printable(str(model.dtype).removeprefix("torch.") if dtype == "auto" else str(dtype)),
                         layout=f"vllm-pages-1:{layout.digest()}", kernel_packing=printable(layout.packing))


def configuration_of(config: "VllmConfig") -> str:
    """16 digits of the settings that change KV under one name and revision."""
    model = config.model_config
    told = model.hf_config.to_json_string(use_diff=False)  # With --hf-overrides, so with other RoPE scaling.
    facts: list[Any] = [told, str(model.dtype), str(model.quantization), str(config.load_config.load_format) == "dummy"]  # Random weights.
    if (factors := long_rope_fact(json.loads(told), int(model.max_model_len))) is not None:
        facts.append(f"long rope {factors}")
    if getattr(config.cache_config, "calculate_kv_scales", False):
        facts.append(own_process())
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]


def cache_name(identity: CacheIdentity, layout: PageLayout) -> str:
    """At most 64 letters: another identity is another cache."""
    last = re.sub(r"[^A-Za-z0-9_.-]+", "-", identity.model.rstrip("/").rsplit("/", 1)[-1])[:32]
    return f"vllm-{last}-{layout.digest(*(getattr(identity, name) for name in identity.__dataclass_fields__))}"
