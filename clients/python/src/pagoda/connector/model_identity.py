"""Identifies the model that an engine runs, from its files and names."""

import collections
import hashlib
import json
import logging
import os
import pathlib
import re
import secrets
import threading
from typing import Any

log = logging.getLogger("pagoda.connector")

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
    return printable(_commit_of(model, "config.json", revision, folder) or revision or "main")


def adapter_revision(path: str) -> str:
    """Names an adapter by its files as they are now, because an engine can load other files from
    the same path. Of an adapter of the hub it is the commit in use. "" if neither is on this
    machine. `path`: as the engine was told, also with ~."""
    folder = pathlib.Path(os.path.expanduser(path))
    return fingerprint(folder) if folder.exists() else _commit_of(path, "adapter_config.json") or ""


def _commit_of(name: str, file: str, revision: str | None = None, folder: str | None = None) -> str | None:
    """The commit in use of a model or an adapter of the hub that has the file."""
    try:
        from huggingface_hub import try_to_load_from_cache

        found = try_to_load_from_cache(name, file, cache_dir=folder, revision=revision)
        commit = re.search(r"/snapshots/([^/]+)/", found) if isinstance(found, str) else None
        return commit[1] if commit else None
    except Exception:  # Any error of the hub's package: the commit is not known.
        return None


class AdapterFiles:
    """The names of the adapters that an engine uses: adapter_revision, and a log line when one
    changes. Thread-safe."""

    _MOST = 1024  # The adapters whose last name is kept, to log a change.

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: collections.OrderedDict[str, str] = collections.OrderedDict()

    def fingerprint(self, name: str, path: str) -> str:
        """adapter_revision of the path. Without one it is a name that no other process has: nobody
        can tell whether the adapter is the same elsewhere. Logs when it differs from the last."""
        now = adapter_revision(path) or own_process()
        with self._lock:
            before = self._last.pop(path, now)
            self._last[path] = now
            while len(self._last) > self._MOST:
                self._last.popitem(last=False)
        if before != now:
            log.warning("the files of adapter %s in %s changed (%s, before %s): its cached KV no longer matches", name, path, now, before)
        return now


def long_rope_fact(config: Any, max_model_len: int) -> bool | int | None:
    """Which of LongRoPE's factors an engine applies that decides it once, by its longest request:
    True for the long ones. They give other K. The longest request itself, if the configuration
    does not say where the long factors begin. None: the model has no LongRoPE. `config`: the
    model's config.json, as JSON."""
    kinds, originals = set(), set()

    def visit(value: Any) -> None:
        if isinstance(value, dict):
            for key, held in value.items():
                if key in ("type", "rope_type"):
                    kinds.add(str(held))
                elif key == "original_max_position_embeddings" and isinstance(held, int):
                    originals.add(held)
                visit(held)
        elif isinstance(value, list):
            for held in value:
                visit(held)

    visit(config)
    if not kinds & {"longrope", "su"}:
        return None
    return max_model_len > originals.pop() if len(originals) == 1 else max_model_len


_PROCESS = secrets.token_hex(8)


def own_process() -> str:
    """A fact that no other process has, for KV that no other engine can read: its scales were
    measured on an engine's first requests, or its adapter has no name."""
    return f"process-{_PROCESS}-{os.getpid()}"
