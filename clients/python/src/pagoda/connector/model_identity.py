"""Which model an engine runs, as far as its files and names tell."""

import hashlib
import json
import pathlib
import re

_WEIGHTS = ("*.safetensors", "*.bin", "*.gguf", "*.pt", "*.json")


def printable(text: str) -> str:
    """As a field of an identity takes it: 256 printable characters without blanks at most."""
    plain = re.sub(r"[^\x21-\x7e]", "_", text)
    return plain if len(plain) <= 200 else f"{plain[:150]}~{hashlib.sha256(plain.encode()).hexdigest()[:32]}"


def fingerprint(path: pathlib.Path) -> str:
    """Of a file or a folder: the names, sizes and times of the files that may be weights."""
    files = [path] if path.is_file() else sorted({file for pattern in _WEIGHTS for file in path.glob(pattern)})
    facts: list[tuple[str, int, int]] = []
    for file in files:
        try:
            told = file.stat()
            facts.append((file.name, told.st_size, told.st_mtime_ns))
        except OSError:  # It is just being replaced, or a link to nothing.
            facts.append((file.name, -1, -1))
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]


def revision_of(model: str, revision: str | None, folder: str | None = None) -> str:
    """Of a folder, its files; of a model of the hub, the commit that is in use, in the hub's cache or in `folder`; else the
    revision's name."""
    if pathlib.Path(model).exists():
        return "files-" + fingerprint(pathlib.Path(model))
    try:
        from huggingface_hub import try_to_load_from_cache

        found = try_to_load_from_cache(model, "config.json", cache_dir=folder, revision=revision)
        if isinstance(found, str) and (commit := re.search(r"/snapshots/([^/]+)/", found)):
            return printable(commit[1])
    except Exception:  # Whatever a version of the hub's package does: the name of the revision is there.
        pass
    return printable(revision or "main")
