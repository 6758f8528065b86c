"""The options of adapters for engines that provide keys, and the names of the caches that these
adapters open."""

import dataclasses
import hashlib
import json
import os
import re

from pagoda.caches import CacheIdentity
from pagoda.connector.options import DaemonOptions


@dataclasses.dataclass(frozen=True)
class KeyedOptions(DaemonOptions):
    """Every key is optional."""

    revision: str = ""
    """The revision of the model. Two revisions share nothing."""
    dtype: str = ""
    """How the engine stores KV, if its memory does not show it: "fp8_e4m3" for memory of uint8."""
    copy_threads: int = max(min((os.cpu_count() or 1) // 2, 4), 1)
    """Threads that copy the pages of one operation: half of the processors, at most 4."""
    populate: bool = False
    """Whether all of the cache's memory is mapped in the background when the cache is opened.
    Otherwise the first copy to or from a page maps it, and takes several times as long as the next
    one. Do not use it with a daemon whose memory.reservation is sparse."""


def cache_name(engine: str, identity: CacheIdentity, page_bytes: int, tokens_per_page: int) -> str:
    """At most 64 letters. Another identity gives another cache."""
    facts = [dataclasses.asdict(identity), page_bytes, tokens_per_page]
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]
    model = re.sub(r"[^A-Za-z0-9_.-]+", "-", identity.model.rstrip("/").rsplit("/", 1)[-1])[:32]
    return f"{engine}-{model}-{digest}"


def tokens_per_block(tokens: int, page_bytes: int) -> int:
    """The tokens of a cache's block for pages of `tokens` tokens. The daemon accepts powers of two
    up to 1,024, and at least 8 bytes per token. Only its token counts depend on the result."""
    most = max(min(tokens, 1024, page_bytes // 8), 1)
    return 1 << (most.bit_length() - 1)
