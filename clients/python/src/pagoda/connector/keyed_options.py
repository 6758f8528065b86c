"""What users say to the adapters of engines that hand out keys, and the names of the caches that these open."""

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
    """Of the model. Two revisions share nothing."""
    dtype: str = ""
    """How the engine stores KV, where its memory does not tell: "fp8_e4m3" for memory of uint8."""
    copy_threads: int = max(min((os.cpu_count() or 1) // 2, 4), 1)
    """Threads that copy the pages of one operation: half of the processors, and 4 at most."""
    populate: bool = False
    """Whether all of the cache's memory is mapped when it is opened, in the background. Else the first copy to or from a page maps it,
    and takes several times as long as the next one. Not with a daemon whose memory.reservation is sparse."""


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
