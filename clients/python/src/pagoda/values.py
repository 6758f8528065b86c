"""What goes into calls and comes out of them, as values. Tokens, blocks and slots are counts; times are seconds."""

import dataclasses
import datetime
import enum
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, SupportsIndex, TypeAlias

from pagoda._contract import v1

Tokens: TypeAlias = Iterable[SupportsIndex]
"""Token ids: a list, a range, an array of numpy or torch."""

Keys: TypeAlias = Iterable[bytes]
"""Keys of whole blocks, from the first one on, in place of tokens: 1 to 64 bytes each, an engine's own hashes mostly."""

NO_BLOCK = 0xFFFFFFFF


class _OpenEnum(enum.IntEnum):
    """An enum of the wire. A value of a later daemon becomes a member without a name instead of an error."""

    @classmethod
    def _missing_(cls, value: object) -> "_OpenEnum | None":
        if not isinstance(value, int):
            return None
        member = int.__new__(cls, value)
        member._name_ = f"UNKNOWN_{value}"
        member._value_ = value
        return member


class Tier(_OpenEnum):
    """Where a block's bytes lie: the place of a tier in the cache's list, from 1. CacheInfo.tiers has the names."""

    PRIMARY = 1
    SECONDARY = 2
    THIRD = 3
    FOURTH = 4


class Medium(_OpenEnum):
    """What a tier's bytes lie in."""

    UNSPECIFIED = 0
    GPU = 1
    HOST = 2
    DISK = 3


class Lane(_OpenEnum):
    """Where a block's bytes wait their turn to be moved. Each lane numbers its tickets by itself."""

    MEMORY = 0
    """Between tiers in memory: every `ready_ticket`."""
    FETCH = 1
    """From a tier on disk into memory: Prefetched.fetch_ticket."""
    BACKUP = 2
    """From memory to a tier on disk, and what is erased there: Invalidated.durable_ticket."""


class PrefetchTarget(_OpenEnum):
    """How near a prefetch brings a prefix."""

    PRIMARY = 1
    """Blocks in memory move up to the first tier."""
    MEMORY = 2
    """Blocks in memory stay where they are; what lies on disk alone is fetched."""


class MemoryKind(_OpenEnum):
    """Where a tier's memory is."""

    UNSPECIFIED = 0
    HOST = 1
    CUDA = 2


class MemoryPages(_OpenEnum):
    """What host memory consists of. UNSPECIFIED is an older daemon's, and that of other memory."""

    UNSPECIFIED = 0
    PLAIN = 1
    TRANSPARENT = 2
    """The kernel takes huge pages where it finds them."""
    HUGE_2MIB = 3
    HUGE_1GIB = 4


class Block(NamedTuple):
    """An entry of a block table. `generation` tells the lives of a block id apart; the token slot of the block's token i is
    slot_index * tokens_per_block + i."""

    block_id: int
    generation: int
    slot_index: int

    @classmethod
    def of(cls, block_id: int, generation: int, slot_index: int) -> "Block | None":
        """None for an entry that a sliding window has passed."""
        return None if slot_index == NO_BLOCK else cls(block_id, generation, slot_index)

    @classmethod
    def take(cls, handle: Any) -> "Block | None":
        return cls.of(handle.block_id, handle.generation, handle.slot_index)


@dataclasses.dataclass(frozen=True)
class Namespace:
    """What two sequences must agree on, besides their tokens, before they may share blocks. With `keyed` blocks are named by keys and not by
    tokens; a call with `keys` says so by itself. A keyed namespace shares no block with the one that has tokens."""

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
    """How long the blocks whose first token lies in [token_start, token_end) are worth keeping: priority 0 (goes first) to 100, for
    `duration` seconds from when nobody holds the block any more; then it is 35 again. None is no end."""

    priority: int
    token_start: int = 0
    token_end: int | None = None
    duration: float | None = None

    def message(self) -> Any:
        return v1.RetentionRange(token_start=self.token_start, token_end=self.token_end, priority=self.priority,
                                 duration_ms=optional_milliseconds(self.duration))


@dataclasses.dataclass(frozen=True)
class MultimodalItem:
    """Tokens that stand for a part of an image, an audio clip or the like. `digest` is 32 bytes; `item_offset` is the place in the item
    that the first of these tokens stands for."""

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
    primary_blocks: int
    secondary_blocks: int
    blocks: tuple[int, ...] = ()
    """Of each tier, in the order of CacheInfo.tiers."""


@dataclasses.dataclass(frozen=True)
class TierInfo:
    """A tier of the cache; `medium` is where its bytes lie."""

    tier: Tier
    name: str
    medium: Medium


@dataclasses.dataclass(frozen=True)
class CacheInfo:
    """What the daemon caches, and for which model."""

    name: str
    model_fingerprint: str
    tokens_per_block: int
    windows: tuple[Window, ...]
    tiers: tuple[TierInfo, ...] = ()
    """Nearest first. Empty from a daemon that does not list them."""

    @classmethod
    def take(cls, message: Any) -> "CacheInfo":
        windows = tuple(Window(window.window_size, window.primary_blocks, window.secondary_blocks, tuple(window.blocks))
                        for window in message.windows)
        tiers = tuple(TierInfo(Tier(tier.tier), tier.name, Medium(tier.medium)) for tier in message.tiers)
        return cls(message.name, message.model_fingerprint, message.tokens_per_block, windows, tiers)

    def tier_name(self, tier: Tier) -> str:
        """What the cache calls a tier; where it lists none, the enum's name."""
        return next((info.name for info in self.tiers if info.tier == tier), tier.name.lower())


@dataclasses.dataclass(frozen=True)
class Allocation:
    """Raw blocks. Their slots may be read and written once `ready_ticket` is done (Client.wait); 0 is now."""

    blocks: tuple[Block, ...]
    ready_ticket: int

    def __iter__(self) -> Iterator[Block]:
        return iter(self.blocks)

    def __len__(self) -> int:
        return len(self.blocks)


@dataclasses.dataclass(frozen=True)
class Match:
    """What of a prompt is cached now. The blocks are those of the largest window; nobody holds them, so they may go at any time."""

    matched_tokens: int
    """In memory: what a sequence would match."""
    blocks: tuple[Block, ...]
    cached_tokens: int = 0
    """In any tier, on disk too; at most all but the last token. Of keys, all of them may be."""
    tokens_by_tier: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """How many of the cached tokens lie in each tier, nearest first, by the tiers' names: by the
    nearest copy of each block of the largest window."""


@dataclasses.dataclass(frozen=True)
class Moved:
    """Blocks that move between the tiers, over all windows. They have arrived when `ready_ticket` is done (Client.wait)."""

    blocks: int
    ready_ticket: int


@dataclasses.dataclass(frozen=True)
class Prefetched(Moved):
    """A prefix on its way up. `matched_tokens` are cached, in whichever tier; `blocks` move between
    tiers in memory."""

    matched_tokens: int
    fetched_blocks: int = 0
    """On their way from disk into memory since this call, over all windows. One call fetches at most
    a part of the memory above the disk: for more of a long prefix call again when it has ended."""
    fetch_ticket: int = 0
    """Of Lane.FETCH: the last fetch of the prefix's blocks, earlier calls' too; 0: none. A fetch that is
    given up or fails ends like any other: match() tells what has arrived."""


class Invalidated(int):
    """How many blocks left the cache, as an integer."""

    durable_ticket: int
    """Of Lane.BACKUP: once it is done, none of them comes back from disk after a restart. 0: none can."""

    def __new__(cls, removed_blocks: int, durable_ticket: int = 0) -> "Invalidated":
        made = super().__new__(cls, removed_blocks)
        made.durable_ticket = durable_ticket
        return made


@dataclasses.dataclass(frozen=True)
class WindowCapacity:
    """Blocks to take the prompt in, those with all new tokens too, and those that are free or cached and held by nobody. Where the tenant
    has a quota: all of it, and what it may hold more."""

    window_size: int
    blocks_now: int
    blocks_to_completion: int
    available_blocks: int
    quota_blocks: int | None = None
    quota_left_blocks: int | None = None


@dataclasses.dataclass(frozen=True)
class Capacity:
    """What a prompt, or more tokens of a sequence, would take. Nothing is taken and nothing promised."""

    matched_tokens: int
    windows: tuple[WindowCapacity, ...]

    @property
    def fits_now(self) -> bool:
        """Whether there is room for the prompt in every window."""
        return all(window.blocks_now <= window.available_blocks for window in self.windows)

    @property
    def fits_to_completion(self) -> bool:
        """Whether there is room for the prompt and all new tokens in every window."""
        return all(window.blocks_to_completion <= window.available_blocks for window in self.windows)


@dataclasses.dataclass(frozen=True)
class Pinned:
    """A prefix that is kept from eviction: `blocks` counts those that other pins hold too, over all windows. Where nothing of the prefix is
    cached there is no pin, and pin_id is 0."""

    pin_id: int
    pinned_tokens: int
    blocks: int


@dataclasses.dataclass(frozen=True)
class PinInfo:
    """A pin of any session. `expire_time` is None where it has no lease, `tenant` empty where its session belongs to none."""

    pin_id: int
    client_name: str
    namespace: Namespace
    pinned_tokens: int
    blocks: int
    expire_time: datetime.datetime | None
    tenant: str = ""


@dataclasses.dataclass(frozen=True)
class Pins:
    """The pins of all sessions, by id, and the most blocks that may be pinned."""

    pins: tuple[PinInfo, ...]
    pinned_blocks: int
    budget_blocks: int


@dataclasses.dataclass(frozen=True)
class SequenceInfo:
    """A sequence as the daemon has it, in tokens."""

    token_count: int
    computed_tokens: int
    reserved_tokens: int
    losses: int


def token_list(tokens: Tokens) -> list[int]:
    """Plain integers, whatever they came in. A list is taken as it is: a long prompt need not be copied."""
    plain: Any = tokens
    if type(plain) is list:
        return plain
    return plain.tolist() if hasattr(plain, "tolist") else [int(token) for token in plain]


def key_list(keys: Keys) -> list[bytes]:
    """The keys as bytes. TypeError: one key, where a chain of them belongs."""
    if isinstance(keys, (bytes, bytearray, str)):
        raise TypeError("keys is a chain of keys, one for each block: [key, ...]")
    return [bytes(key) for key in keys]


def named_namespace(namespace: Namespace | None, keys: list[bytes]) -> Any:
    """The namespace on the wire, of a call with these keys: None is the one without a name."""
    if keys:
        namespace = dataclasses.replace(namespace or Namespace(), keyed=True)
    return None if namespace is None else namespace.message()


def milliseconds(seconds: float) -> int:
    """A time for the wire, which counts whole milliseconds from 1 on."""
    whole = round(seconds * 1000)
    if whole < 1:
        raise ValueError(f"a time is at least 0.001 seconds, not {seconds}")
    return whole


def optional_milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else milliseconds(seconds)


def seconds(duration: Any) -> float:
    """A google.protobuf.Duration."""
    return float(duration.seconds + duration.nanos / 1e9)


def optional_seconds(message: Any, field: str) -> float | None:
    """The field of the message; None where it is absent."""
    return seconds(getattr(message, field)) if message.HasField(field) else None


def utc(timestamp: Any) -> datetime.datetime:
    """A google.protobuf.Timestamp, cut to microseconds."""
    return datetime.datetime.fromtimestamp(timestamp.seconds, datetime.timezone.utc).replace(microsecond=timestamp.nanos // 1000)
