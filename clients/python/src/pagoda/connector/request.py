"""A request on the scheduler's side of a connector: what names its KV, and how far it is."""

from __future__ import annotations

import collections
import dataclasses
import enum
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pagoda.client import Client, Sequence as CacheSequence
from pagoda.values import MultimodalItem, Namespace

if TYPE_CHECKING:
    from pagoda.connector.fetch import Fetch


@dataclasses.dataclass(frozen=True)
class Text:
    """The content that names a request's KV."""

    request_id: str
    tokens: Sequence[int]
    """All tokens whose ids are known. This is the engine's own list, which grows."""
    namespace: Namespace = Namespace()
    items: Sequence[MultimodalItem] = ()
    source: str = ""
    """The address of the daemon that has its prefix, "HOST:PORT"; "" if none is known."""
    source_tokens: int = 0
    """The tokens that this daemon is to have; 0 if that is not known."""


@dataclasses.dataclass(frozen=True)
class Scheduled:
    """A request's part of a step."""

    request_id: str
    new_blocks: Sequence[Sequence[int]] | None
    """By group: the blocks that its tables get; None for none."""
    starts_anew: bool
    """Whether `new_blocks` are whole tables instead of additions."""
    computed: int
    """Tokens whose KV is complete after the step."""


@dataclasses.dataclass
class Counts:
    """Counts since the last call."""

    queries: int = 0
    queried_tokens: int = 0
    hit_tokens: int = 0
    disk_hit_tokens: int = 0
    remote_hit_tokens: int = 0
    saved_blocks: int = 0
    unsaved_requests: int = 0
    """Requests that were not saved completely, because there were no free blocks or the engine had
    no bytes."""
    failed_loads: int = 0
    lost_sessions: int = 0


@dataclasses.dataclass
class Held:
    """A request and its sequence."""

    text: Text
    client: Client
    sequence: CacheSequence
    cached: int
    """Blocks from the start that are cached."""
    from_disk: int = 0
    """The cached blocks that were fetched from disk."""
    from_remote: int = 0
    """The cached blocks that were fetched from other machines."""
    fetch: Fetch | None = None
    fetch_ticket: int = 0
    fetch_deadline: float = 0.0
    asked: int = 0
    """The tokens that the engine had at its last question. `promised` are the tokens that it could
    then have."""
    promised: int = 0
    tables: list[list[int]] = dataclasses.field(default_factory=list)
    """The engine's tables, by group."""
    counted: bool = False
    """Whether its hits have been counted."""
    load: tuple[int, int] | None = None
    """The range of tokens whose KV is to be loaded."""
    saved: int = 0
    """Blocks from the start that are in the cache or being saved."""
    saves: collections.deque[tuple[int, int]] = dataclasses.field(default_factory=collections.deque)
    """(step, blocks from the start that are complete after it)."""
    saving: bool = True
    reserving: bool = False
    busy_step: int = 0
    """The last step with a copy from or to its slots."""
    hands_over: bool = False
    """Whether its cached blocks are pinned at its end, for another machine."""


class Work(enum.Enum):
    """Work that a thread does in the background."""

    RESERVE = enum.auto()
    COMMIT = enum.auto()
    PIN = enum.auto()
    FREE = enum.auto()
