"""Identifies the model that an engine runs, from its files and names."""

import hashlib
import json
import pathlib
import re

_WEIGHTS = ("*.safetensors", "*.bin", "*.gguf", "*.pt", "*.json")


def printable(text: str) -> str:
    """The text in the form of an identity's field: at most 256 printable characters without
    blanks."""
    plain = re.sub(r"[^\x21-\x7e]", "_", text)
    return plain if len(plain) <= 200 else f"{plain[:150]}~{hashlib.sha256(plain.encode()).hexdigest()[:32]}"


def fingerprint(path: pathlib.Path) -> str:
    """A fingerprint of a file or a folder: the names, sizes and times of the files that can be
    weights."""
    files = [path] if path.is_file() else sorted({file for pattern in _WEIGHTS for file in path.glob(pattern)})
    facts: list[tuple[str, int, int]] = []
    for file in files:
        try:
            told = file.stat()
            facts.append((file.name, told.st_size, told.st_mtime_ns))
        except OSError:  # The file is being replaced, or is a broken link.
            facts.append((file.name, -1, -1))
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]


def revision_of(model: str, revision: str | None, folder: str | None = None) -> str:
    """The revision of a model. For a folder it is the fingerprint of its files. For a model of the
    hub it is the commit in use, in the hub's cache or in `folder`, or else the revision's name."""
    if pathlib.Path(model).exists():
        return "files-" + fingerprint(pathlib.Path(model))
    try:
        from huggingface_hub import try_to_load_from_cache

        found = try_to_load_from_cache(model, "config.json", cache_dir=folder, revision=revision)
        if isinstance(found, str) and (commit := re.search(r"/snapshots/([^/]+)/", found)):
            return printable(commit[1])
    except Exception:  # Any error of the hub's package: the revision's name remains.
        pass
    return printable(revision or "main")
