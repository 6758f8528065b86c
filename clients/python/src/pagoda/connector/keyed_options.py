"""What users say to the adapters of engines that hand out keys, and the names of the caches that these open."""

import dataclasses
import hashlib
import json
import os
import pathlib
import re
from collections.abc import Mapping
from typing import Any

from pagoda.caches import CacheIdentity, Size


@dataclasses.dataclass(frozen=True)
class KeyedOptions:
    """Every key is optional."""

    endpoint: str | None = None
    """"unix:/path" or "host:port" on this machine; else PAGODA_ENDPOINT, else 127.0.0.1:7070."""
    cache: str = ""
    """The cache's name; else made of its identity. Engines with one identity share one cache."""
    host: Size | None = None
    """How much of the daemon's host memory a new cache takes: "64GiB" or "50%" of what is free. Else half of what is free."""
    disk: Size | None = None
    """How much of the daemon's disk a new cache takes."""
    timeout: float = 1.0
    """Seconds that one operation of the engine waits for the daemon's answers at most."""
    fetch_deadline: float = 1.0
    """Seconds that a look-up may wait until what is cached on disk is in memory."""
    start_timeout: float = 10.0
    """Seconds to wait for the daemon when the engine starts. Without it the engine starts all the same."""
    revision: str = ""
    """Of the model. Two revisions share nothing."""
    dtype: str = ""
    """How the engine stores KV, where its memory does not tell: "fp8_e4m3" for memory of uint8."""
    copy_threads: int = max(min((os.cpu_count() or 1) // 2, 4), 1)
    """Threads that copy the pages of one operation: half of the processors, and 4 at most."""
    populate: bool = False
    """Whether all of the cache's memory is mapped when it is opened, in the background. Else the first copy to or from a page maps it,
    and takes several times as long as the next one. Not with a daemon whose memory.reservation is sparse."""
    token_file: str = ""
    """A file whose first line is the tenant's token; else PAGODA_TOKEN_FILE."""

    @classmethod
    def take(cls, given: Mapping[str, Any], *, where: str) -> "KeyedOptions":
        """`where`: names the mapping in messages. ValueError: a key that is none, or a value of another type."""
        known = {field.name for field in dataclasses.fields(cls)}
        for key, value in given.items():
            if key not in known:
                raise ValueError(f"{where} has no {key!r}; it has {', '.join(sorted(known))}")
            if key in ("timeout", "fetch_deadline", "start_timeout") and (not isinstance(value, int | float) or value < 0):
                raise ValueError(f"{where}: {key} is seconds, not {value!r}")
        return cls(**given)

    @property
    def token(self) -> str | None:
        """None: what the environment says."""
        return pathlib.Path(self.token_file).read_text(encoding="utf-8").splitlines()[0].strip() if self.token_file else None


def printable(text: str) -> str:
    """As a field of an identity takes it: 256 printable characters without blanks at most."""
    plain = re.sub(r"[^\x21-\x7e]", "_", text)
    return plain if len(plain) <= 200 else f"{plain[:150]}~{hashlib.sha256(plain.encode()).hexdigest()[:32]}"


def cache_name(engine: str, identity: CacheIdentity, page_bytes: int, tokens_per_page: int) -> str:
    """At most 64 letters: another identity is another cache."""
    facts = [dataclasses.asdict(identity), page_bytes, tokens_per_page]
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]
    model = re.sub(r"[^A-Za-z0-9_.-]+", "-", identity.model.rstrip("/").rsplit("/", 1)[-1])[:32]
    return f"{engine}-{model}-{digest}"


def tokens_per_block(tokens: int, page_bytes: int) -> int:
    """The tokens of a cache's block for pages of so many tokens: the daemon takes powers of two up to 1,024, and 8 bytes a token at
    least. Only its counts of tokens depend on it."""
    most = max(min(tokens, 1024, page_bytes // 8), 1)
    return 1 << (most.bit_length() - 1)
