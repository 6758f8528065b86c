"""Values that go into calls and come out of them. Tokens, blocks and slots are counts; times are in
seconds."""

import dataclasses
import datetime
import enum
import operator
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Any, NamedTuple, SupportsIndex, TypeAlias

from pagoda._contract import v1

Tokens: TypeAlias = Iterable[SupportsIndex]
"""Token ids: a list, a range, an array of numpy or torch."""

Keys: TypeAlias = Iterable[bytes]
"""Keys of whole blocks, from the first one on, instead of tokens. Each has 1 to 64 bytes, usually a
hash that the engine makes."""

NO_BLOCK = 0xFFFFFFFF
MOST_TOKEN = 0xFFFFFFFF
MOST_EXTRA_ID = 0xFFFFFFFFFFFFFFFF


class _OpenEnum(enum.IntEnum):
    """An enum of the wire. An unknown value of a later daemon becomes a member without a name
    instead of an error. str and print show the name."""

    __str__ = enum.Enum.__str__
    __format__ = enum.Enum.__format__

    @classmethod
    def _missing_(cls, value: object) -> "_OpenEnum | None":
        if not isinstance(value, int):
            return None
        member = int.__new__(cls, value)
        member._name_ = f"UNKNOWN_{value}"
        member._value_ = value
        return member


class Tier(_OpenEnum):
    """A tier by its place in the cache's list, from 1. CacheInfo.tiers has the names."""

    PRIMARY = 1
    SECOND = 2
    THIRD = 3
    FOURTH = 4


class Medium(_OpenEnum):
    """The medium of a tier."""

    UNSPECIFIED = 0
    GPU = 1
    HOST = 2
    DISK = 3


class Lane(_OpenEnum):
    """A queue of block transfers. Each lane numbers its own tickets."""

    MEMORY = 0
    """Between memory tiers: every `ready_ticket`."""
    FETCH = 1
    """From a disk tier into memory: Prefetched.fetch_ticket."""
    BACKUP = 2
    """From memory to a disk tier, and erasures there: Invalidated.durable_ticket."""


class PrefetchTarget(_OpenEnum):
    """The tier to which a prefetch brings a prefix."""

    PRIMARY = 1
    """Blocks in memory are onboarded to the first tier."""
    MEMORY = 2
    """Blocks in memory stay where they are. Only blocks that are on disk alone are fetched."""


class FetchOutcome(_OpenEnum):
    """How a fetch from another machine ended."""

    FETCHED = 1
    """Everything that the source has from there on is cached now."""
    CACHED = 2
    """The cache had all of it in memory, or brought it up from disk."""
    MISSING = 3
    """The source does not have the next block."""
    PARTLY = 4
    """Some blocks came. The next one was invalid or late."""
    FAILED = 5
    """No block came: the source is away, too slow, or sent invalid values."""
    SLOWER = 6
    """Not begun: computing the tokens is predicted to be faster."""
    NO_ROOM = 7
    """The cache, or the tenant's quota, has no room for the blocks."""
    REFUSED = 8
    """Too many fetches wait already."""
    CANCELLED = 9
    """The daemon shuts down."""
    NO_SOURCE = 10
    """The daemon has no store and the call names no source, or the cache is not exchanged with other
    machines."""


class MemoryKind(_OpenEnum):
    """The kind of a tier's memory."""

    UNSPECIFIED = 0
    HOST = 1
    CUDA = 2


class MemoryPages(_OpenEnum):
    """The pages of host memory. UNSPECIFIED for an older daemon, and for memory that is not the
    host's."""

    UNSPECIFIED = 0
    PLAIN = 1
    TRANSPARENT = 2
    """The kernel uses huge pages where it can."""
    HUGE_2MIB = 3
    HUGE_1GIB = 4


class Block(NamedTuple):
    """An entry of a block table. `generation` tells successive uses of a block id apart. The token
    slot of the block's token i is slot_index * tokens_per_block + i."""

    block_id: int
    generation: int
    slot_index: int

    @classmethod
    def of(cls, block_id: int, generation: int, slot_index: int) -> "Block | None":
        """None for an entry that a sliding window has passed."""
        return None if slot_index == NO_BLOCK else cls(block_id, generation, slot_index)


@dataclasses.dataclass(frozen=True)
class Namespace:
    """What two sequences must agree on, besides their tokens, to share blocks. With `keyed`, keys
    name the blocks instead of tokens. A call with `keys` implies it. A keyed namespace shares no
    block with the one that has tokens."""

    lora_id: int | None = None
    cache_salt: str = ""
    tenant: str = ""
    keyed: bool = False

    @classmethod
    def take(cls, message: Any) -> "Namespace":
        lora_id = message.lora_id if message.HasField("lora_id") else None
        return cls(lora_id, message.cache_salt, message.tenant, message.keyed)

    def message(self) -> Any:
        return v1.Namespace(lora_id=self.lora_id, cache_salt=self.cache_salt, tenant=self.tenant, keyed=self.keyed)


@dataclasses.dataclass(frozen=True)
class Retention:
    """The priority of the blocks whose first token lies in [token_start, token_end): 0 (evicted
    first) to 100. After `duration` seconds in which the block is not held, its priority is 35
    again. None: no end."""

    priority: int
    token_start: int = 0
    token_end: int | None = None
    duration: float | None = None

    def message(self) -> Any:
        return v1.RetentionRange(token_start=self.token_start, token_end=self.token_end, priority=self.priority,
                                 duration_ms=optional_milliseconds(self.duration))


@dataclasses.dataclass(frozen=True)
class MultimodalItem:
    """Tokens that stand for a part of an image, an audio clip or the like. `digest` has 32 bytes.
    `item_offset` is the offset in the item of the first of these tokens."""

    digest: bytes
    token_start: int
    token_count: int
    item_offset: int = 0

    @classmethod
    def take(cls, message: Any) -> "MultimodalItem":
        return cls(message.digest, message.token_start, message.token_count, message.item_offset)

    def message(self) -> Any:
        return v1.MultimodalItem(digest=self.digest, token_start=self.token_start, token_count=self.token_count,
                                 item_offset=self.item_offset)


@dataclasses.dataclass(frozen=True)
class Window:
    """An attention window of the cache, `window_size` tokens wide; 0 is full attention."""

    window_size: int
    blocks: tuple[int, ...] = ()
    """The blocks of each tier, in the order of CacheInfo.tiers."""


@dataclasses.dataclass(frozen=True)
class TierInfo:
    """A tier of the cache and its medium."""

    tier: Tier
    name: str
    medium: Medium


@dataclasses.dataclass(frozen=True)
class CacheInfo:
    """A cache: its layout, and the model that it is for."""

    name: str
    model_fingerprint: str
    tokens_per_block: int
    windows: tuple[Window, ...]
    tiers: tuple[TierInfo, ...] = ()
    """Nearest first."""

    @classmethod
    def take(cls, message: Any) -> "CacheInfo":
        windows = tuple(Window(window.window_size, tuple(window.blocks)) for window in message.windows)
        tiers = tuple(TierInfo(Tier(tier.tier), tier.name, Medium(tier.medium)) for tier in message.tiers)
        return cls(message.name, message.model_fingerprint, message.tokens_per_block, windows, tiers)

    def tier_name(self, tier: Tier) -> str:
        """The cache's name for a tier; the enum's name if the cache lists no tiers."""
        return next((info.name for info in self.tiers if info.tier == tier), tier.name.lower())


@dataclasses.dataclass(frozen=True)
class Allocation:
    """Raw blocks. Their slots can be read and written when `ready_ticket` is done (Client.wait); 0:
    at once."""

    blocks: tuple[Block, ...]
    ready_ticket: int

    def __iter__(self) -> Iterator[Block]:
        return iter(self.blocks)

    def __len__(self) -> int:
        return len(self.blocks)


@dataclasses.dataclass(frozen=True)
class Match:
    """The cached part of a prompt. The blocks are those of the largest window. They are not held,
    so they can be evicted at any time."""

    matched_tokens: int
    """In memory: the tokens that a sequence would match."""
    blocks: tuple[Block, ...]
    cached_tokens: int = 0
    """In any tier, including disk; at most all but the last token. With keys, all of them can be
    cached."""
    tokens_by_tier: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """The cached tokens in each tier, nearest first, by the tiers' names. A block counts in the
    tier of its nearest copy, in the largest window."""


@dataclasses.dataclass(frozen=True)
class Moved:
    """Blocks that move between tiers, over all windows. They have arrived when `ready_ticket` is
    done (Client.wait)."""

    blocks: int
    ready_ticket: int


@dataclasses.dataclass(frozen=True)
class Prefetched(Moved):
    """A prefix that is being onboarded. `matched_tokens` are cached in any tier. `blocks` move
    between memory tiers."""

    matched_tokens: int
    fetched_blocks: int = 0
    """Blocks that this call has ordered from disk, over all windows. One call fetches at most a
    part of the memory above the disk. For more of a long prefix, call again when it has ended."""
    fetch_ticket: int = 0
    """The ticket in Lane.FETCH of the last fetch of the prefix's blocks, earlier calls included; 0:
    none. A fetch that fails or is given up also ends its ticket: match() shows which tokens have
    arrived."""


class Invalidated(int):
    """The number of blocks that left the cache, as an integer."""

    durable_ticket: int
    """A ticket of Lane.BACKUP. When it is done, none of the blocks comes back from disk after a
    restart. 0: none can."""

    def __new__(cls, removed_blocks: int, durable_ticket: int = 0) -> "Invalidated":
        made = super().__new__(cls, removed_blocks)
        made.durable_ticket = durable_ticket
        return made


@dataclasses.dataclass(frozen=True)
class WindowCapacity:
    """The blocks that the prompt needs (`blocks_now`), those that it needs with all new tokens
    (`blocks_to_completion`), and those that are free or evictable (`available_blocks`). If the
    tenant has a quota: the quota, and the rest of it."""

    window_size: int
    blocks_now: int
    blocks_to_completion: int
    available_blocks: int
    quota_blocks: int | None = None
    quota_left_blocks: int | None = None


@dataclasses.dataclass(frozen=True)
class Capacity:
    """The blocks that a prompt, or more tokens of a sequence, would need. Nothing is taken or
    promised."""

    matched_tokens: int
    windows: tuple[WindowCapacity, ...]

    @property
    def fits_now(self) -> bool:
        """Whether the prompt fits in every window."""
        return all(window.blocks_now <= window.available_blocks for window in self.windows)

    @property
    def fits_to_completion(self) -> bool:
        """Whether the prompt and all new tokens fit in every window."""
        return all(window.blocks_to_completion <= window.available_blocks for window in self.windows)


@dataclasses.dataclass(frozen=True)
class Pinned:
    """A prefix that is protected from eviction. `blocks` counts the blocks over all windows,
    including those that other pins hold. If no block of the prefix is cached, there is no pin and
    pin_id is 0."""

    pin_id: int
    pinned_tokens: int
    blocks: int


@dataclasses.dataclass(frozen=True)
class BlockFill:
    """How far the client has written a raw block, from the block's start. A finalised block is
    complete: nothing may be written into it any more."""

    block: Block
    filled_tokens: int
    finalize: bool = False


@dataclasses.dataclass(frozen=True)
class BlockState:
    """The daemon's state of a block."""

    holders: int
    """The sequences that hold the block, those of other sessions too. 1 for a raw block. Of a block
    that tenants share, a tenant's client sees its own sequences only."""
    filled_tokens: int
    """Its tokens with complete KV, from the block's start."""
    finalized: bool
    """Nothing may be written into the block: it is full and committed, or a raw block that its
    client has finalised. A sequence's block is so until the sequence is truncated."""
    cached: bool
    """Other sequences can match it."""


@dataclasses.dataclass(frozen=True)
class FetchedPrefix:
    """What came of a fetch. Nothing is held, so the blocks can be evicted at any time."""

    outcome: FetchOutcome
    matched_tokens: int
    """In memory when the fetch had ended: the tokens that a sequence would match."""
    fetched_tokens: int
    """The tokens that this call brought from another machine."""


@dataclasses.dataclass(frozen=True)
class ExportedPrefix:
    """A prefix that other daemons can fetch."""

    source: str
    """The daemon's address for other daemons, "HOST:PORT". "": it answers none."""
    exported_tokens: int
    """The tokens from the start that others can fetch: whole blocks in memory."""
    stored_tokens: int
    """The tokens of the prefix's blocks that the store has; 0 if nothing was to be written."""
    pin_id: int
    """Client.unpin ends it. 0: nothing of the prefix is cached, and there is no pin."""


@dataclasses.dataclass(frozen=True)
class PinInfo:
    """A pin of any session. `expire_time` is None if it has no lease. `tenant` is empty if its
    session belongs to no tenant."""

    pin_id: int
    client_name: str
    namespace: Namespace
    pinned_tokens: int
    blocks: int
    expire_time: datetime.datetime | None
    tenant: str = ""


@dataclasses.dataclass(frozen=True)
class Pins:
    """The pins of all sessions, by id, and the most blocks that can be pinned."""

    pins: tuple[PinInfo, ...]
    pinned_blocks: int
    budget_blocks: int


@dataclasses.dataclass(frozen=True)
class SequenceInfo:
    """The daemon's state of a sequence, in tokens."""

    token_count: int
    computed_tokens: int
    reserved_tokens: int
    losses: int


def token_row(tokens: Tokens) -> list[Any]:
    """The tokens in a list, whose elements are not checked. A list is returned without a copy,
    because prompts can be long. TypeError: text, bytes, or something without an order."""
    plain: Any = tokens
    if type(plain) is list:
        return plain
    if isinstance(plain, (str, bytes, bytearray, Set, Mapping)):
        raise TypeError(f"tokens must be a row of token ids, such as a list or an array, not {type(plain).__name__} {plain!r:.100}")
    row = plain.tolist() if hasattr(plain, "tolist") else list(plain)
    if type(row) is not list:
        raise TypeError(f"tokens must be a row of token ids, not the single value {row!r:.100}")
    return row


def token_list(tokens: Tokens, most: int = MOST_TOKEN) -> list[int]:
    """The tokens as plain integers of 0 to `most`. A list of plain integers is returned without a
    copy. ValueError, TypeError: an element is no token id; the message has its index."""
    row = token_row(tokens)
    if set(map(type, row)) <= {int} and (not row or (min(row) >= 0 and max(row) <= most)):
        return row
    return [_token(element, index, most) for index, element in enumerate(row)]


def _token(element: Any, index: int, most: int) -> int:
    """The same rule as in native/tokens.cc. A bool is an error of the caller, though Python counts
    with it."""
    try:
        token = None if isinstance(element, bool) else operator.index(element)
    except TypeError:
        token = None
    if token is None:
        raise TypeError(f"token {index} is {element!r:.100}, which is no integer")
    if not 0 <= token <= most:
        raise ValueError(f"token {index} is {token}; a token id is from 0 to {most}")
    return token


def extra_id_list(extra_token_ids: Tokens) -> list[int]:
    """The same for extra token ids, which have 64 bits."""
    return token_list(extra_token_ids, MOST_EXTRA_ID)


def key_list(keys: Keys) -> list[bytes]:
    """The keys as bytes. TypeError: a single key instead of a chain of keys."""
    if isinstance(keys, (bytes, bytearray, str)):
        raise TypeError("keys must be a chain of keys, one for each block: [key, ...]")
    return [bytes(key) for key in keys]


def named_namespace(namespace: Namespace | None, keys: list[bytes]) -> Any:
    """The namespace on the wire for a call with these keys. None is the default namespace."""
    if keys:
        namespace = dataclasses.replace(namespace or Namespace(), keyed=True)
    return None if namespace is None else namespace.message()


def milliseconds(seconds: float) -> int:
    """A time for the wire, in whole milliseconds, at least 1."""
    whole = round(seconds * 1000)
    if whole < 1:
        raise ValueError(f"a time must be at least 0.001 seconds, not {seconds}")
    return whole


def optional_milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else milliseconds(seconds)


def seconds(duration: Any) -> float:
    """From a google.protobuf.Duration."""
    return float(duration.seconds + duration.nanos / 1e9)


def optional_seconds(message: Any, field: str) -> float | None:
    """The field of the message; None if it is absent."""
    return seconds(getattr(message, field)) if message.HasField(field) else None


def utc(timestamp: Any) -> datetime.datetime:
    """From a google.protobuf.Timestamp, cut to microseconds."""
    return datetime.datetime.fromtimestamp(timestamp.seconds, datetime.timezone.utc).replace(microsecond=timestamp.nanos // 1000)
