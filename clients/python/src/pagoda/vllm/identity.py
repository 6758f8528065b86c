"""Whose KV it is: what must agree before two engines share a cache."""

import hashlib
import json
import pathlib
import re
from typing import TYPE_CHECKING

from pagoda.caches import CacheIdentity
from pagoda.connector import PageLayout

if TYPE_CHECKING:
    from vllm.config import VllmConfig

_WEIGHTS = ("*.safetensors", "*.bin", "*.gguf", "*.pt", "*.json")


def identity_of(config: "VllmConfig", layout: PageLayout) -> CacheIdentity:
    """The model by name, revision and configuration; the KV's type; how pages are packed."""
    model = config.model_config
    facts = [model.hf_config.to_json_string(use_diff=False), str(model.dtype), str(model.quantization),
             str(config.load_config.load_format) == "dummy"]  # Of random weights.
    configuration = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]
    dtype = config.cache_config.cache_dtype
    return CacheIdentity(model=_printable(str(model.model)), revision=f"{_revision(str(model.model), model.revision, config.load_config.download_dir)}+{configuration}",
                         dtype=_printable(str(model.dtype).removeprefix("torch.") if dtype == "auto" else str(dtype)),
                         layout=f"vllm-pages-1:{layout.digest()}", kernel_packing=_printable(layout.packing))


def cache_name(identity: CacheIdentity, layout: PageLayout) -> str:
    """At most 64 letters: another identity is another cache."""
    last = re.sub(r"[^A-Za-z0-9_.-]+", "-", identity.model.rstrip("/").rsplit("/", 1)[-1])[:32]
    return f"vllm-{last}-{layout.digest(*(getattr(identity, name) for name in identity.__dataclass_fields__))}"


def fingerprint(path: pathlib.Path) -> str:
    """Of a file or a folder: the names, sizes and times of the files that may be weights."""
    files = [path] if path.is_file() else sorted({file for pattern in _WEIGHTS for file in path.glob(pattern)})
    facts = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]


def _revision(model: str, revision: str | None, folder: str | None) -> str:
    """Of a folder, its files; of a model of the hub, the commit that is in use, in the hub's cache or in `folder`."""
    if pathlib.Path(model).exists():
        return "files-" + fingerprint(pathlib.Path(model))
    try:
        from huggingface_hub import try_to_load_from_cache

        found = try_to_load_from_cache(model, "config.json", cache_dir=folder, revision=revision)
        if isinstance(found, str) and (commit := re.search(r"/snapshots/([^/]+)/", found)):
            return _printable(commit[1])
    except Exception:  # Whatever a version of the hub's package does: the name of the revision is there.
        pass
    return _printable(revision or "main")


def _printable(text: str) -> str:
    """As a field of an identity takes it: 256 printable characters without blanks at most."""
    plain = re.sub(r"[^\x21-\x7e]", "_", text)
    return plain if len(plain) <= 200 else f"{plain[:150]}~{hashlib.sha256(plain.encode()).hexdigest()[:32]}"
