"""Events of the cache, and what else a watch tells, as values."""

import dataclasses
import datetime
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from pagoda import values
from pagoda.values import MultimodalItem, Namespace, Tier


class RemovalReason(values._OpenEnum):
    """Why blocks left the cache."""

    EVICTED = 1
    DISPLACED = 2
    TAKEN_OVER = 3
    TRUNCATED = 4
    INVALIDATED = 5
    CLEARED = 6
    RELEASED = 8
    LOST = 9


class PinEnd(values._OpenEnum):
    """Why a pin ended. PREFIX_LEFT: a block of its prefix leaves the cache."""

    UNPINNED = 1
    EXPIRED = 2
    PREFIX_LEFT = 3


@dataclasses.dataclass(frozen=True)
class EndedPin:
    """A pin ended, as a whole. `removal` says why its prefix leaves, with PinEnd.PREFIX_LEFT."""

    pin_id: int
    why: PinEnd
    removal: RemovalReason | None


@dataclasses.dataclass(frozen=True)
class _Event:
    epoch: int
    """The incarnation of the daemon's state. Another one: everything remembered is void."""
    revision: int
    """One more than the event's before it. 0 in a snapshot: this is there, and nothing has happened. With a filter revisions are left out, and
    a Stored event whose blocks lie in several tiers comes in parts, with one revision."""
    time: datetime.datetime
    window_size: int
    """Tokens; 0 is full attention."""


@dataclasses.dataclass(frozen=True)
class Created(_Event):
    """Pools came into being (`capacity`, in blocks), or blocks were taken (`block_ids`): raw ones, or any where the daemon's `events.lifecycle`
    is `all`. Then a block is taken until it is Stored or Removed as RELEASED; one that leaves the cache while it is held is Created behind
    its Removed."""

    capacity: Mapping[Tier, int]
    block_ids: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class StoredBlock:
    """A block that became reusable, and the tokens that it holds. `token_count` counts them also where they are hidden. `tier` is the nearest
    that has its bytes, `lower_tiers` are those farther away with a copy, ascending."""

    block_id: int
    block_hash: int
    tokens: tuple[int, ...]
    tier: Tier
    priority: int
    extra_token_ids: tuple[int, ...]
    multimodal_items: tuple[MultimodalItem, ...]
    token_count: int = 0
    lower_tiers: tuple[Tier, ...] = ()
    key: bytes = b""
    """In a keyed namespace the block's key, in place of tokens."""


@dataclasses.dataclass(frozen=True)
class Stored(_Event):
    """Blocks became reusable, each the child of the one before it. The first one's parent is None where it begins its namespace. With
    `content_hidden` the salt and what the blocks hold are left out: another tenant that shares keeps them under a salt."""

    parent_hash: int | None
    parent_block_id: int | None
    namespace: Namespace
    blocks: tuple[StoredBlock, ...]
    content_hidden: bool = False


@dataclasses.dataclass(frozen=True)
class Updated(_Event):
    """A cached block's nearest tier, its copies in farther tiers or its priority changed: (old, new) of each, None where it stayed. Or a pin
    ended, of which this is the last block in the cache's largest window."""

    block_id: int
    block_hash: int
    tier: tuple[Tier, Tier] | None
    priority: tuple[int, int] | None
    ended_pin: EndedPin | None = None
    lower_tiers: tuple[tuple[Tier, ...], tuple[Tier, ...]] | None = None


@dataclasses.dataclass(frozen=True)
class Removed(_Event):
    """Blocks left the cache: the listed ones, or with `whole_window` every cached block of the window. RELEASED blocks were taken and not
    cached, and have no hashes. With `pools` the window's pools go, and all that is cached or taken with them: `whole_window` is true then,
    the reason is RELEASED, and no event of the window follows in this epoch."""

    reason: RemovalReason
    block_ids: tuple[int, ...]
    block_hashes: tuple[int, ...]
    whole_window: bool
    pools: bool = False


Event: TypeAlias = Created | Stored | Updated | Removed


@dataclasses.dataclass(frozen=True)
class Gap:
    """The stream does not go on where it stopped: what happened between is not known, and what a reader has built of the events is void.

    The next event's revision is `next_revision`. Where that is 1, the events from there on tell all there is; else what was cached before
    is not told: a watch with `resnapshot` has a SnapshotBegin in the place of a gap. The reasons are REVISION_COMPACTED (the reader was behind
    for longer than the daemon keeps events), EPOCH_CHANGED (another incarnation of the daemon), REVISION_IN_FUTURE and MESSAGE_MISSING (the
    daemon is at fault).
    """

    reason: str
    previous_epoch: int
    previous_revision: int
    epoch: int
    next_revision: int


@dataclasses.dataclass(frozen=True)
class SnapshotBegin:
    """A snapshot begins: forget everything. What is cached follows, as Created and Stored events with revision 0, and between them what happens
    meanwhile to blocks that were told, with revisions of its own. Blocks may come before their parents.

    `reason` is "" at a watch's beginning. Else it says why it begins anew: REVISION_COMPACTED (the reader was behind for longer than the
    daemon keeps events), EPOCH_CHANGED (another incarnation of the daemon), REVISION_IN_FUTURE, or STREAM_BROKEN (the connection broke
    within a snapshot).
    """

    epoch: int
    reason: str


@dataclasses.dataclass(frozen=True)
class SnapshotEnd:
    """The snapshot is whole: the events since SnapshotBegin are the state as of `revision`."""

    epoch: int
    revision: int


@dataclasses.dataclass(frozen=True)
class Progress:
    """Nothing else that the watch shows has happened up to `revision`."""

    epoch: int
    revision: int


Item: TypeAlias = Event | Gap | SnapshotBegin | SnapshotEnd | Progress
"""What a watch iterates over."""

_Common: TypeAlias = tuple[int, int, datetime.datetime, int]  # The fields of _Event.


def _created(common: _Common, event: Any) -> Created:
    capacity = {Tier(part.tier): part.blocks for part in event.capacity}
    return Created(*common, capacity, tuple(event.block_ids))


def _stored(common: _Common, event: Any) -> Stored:
    blocks = tuple(
        StoredBlock(block.block_id, block.block_hash, tuple(block.tokens), Tier(block.tier), block.priority,
                    tuple(block.extra_token_ids), tuple(MultimodalItem.take(item) for item in block.multimodal_items),
                    block.token_count or len(block.tokens), _tiers(block.lower_tiers), block.key)
        for block in event.blocks)
    return Stored(*common, event.parent_hash if event.HasField("parent_hash") else None,
                  event.parent_block_id if event.HasField("parent_block_id") else None, Namespace.take(event.namespace), blocks,
                  event.content_hidden)


def _updated(common: _Common, event: Any) -> Updated:
    tier = (Tier(event.tier.old_value), Tier(event.tier.new_value)) if event.HasField("tier") else None
    priority = (event.priority.old_value, event.priority.new_value) if event.HasField("priority") else None
    lower = (_tiers(event.lower_tiers.old_value), _tiers(event.lower_tiers.new_value)) if event.HasField("lower_tiers") else None
    return Updated(*common, event.block_id, event.block_hash, tier, priority,
                   _ended_pin(event.ended_pin) if event.HasField("ended_pin") else None, lower)


def _tiers(numbers: Any) -> tuple[Tier, ...]:
    return tuple(Tier(number) for number in numbers)


def _ended_pin(pin: Any) -> EndedPin:
    return EndedPin(pin.pin_id, PinEnd(pin.why), RemovalReason(pin.removal) if pin.removal else None)


def _removed(common: _Common, event: Any) -> Removed:
    whole_window, pools = 1, 2  # REMOVAL_SCOPE_WINDOW, REMOVAL_SCOPE_POOLS
    return Removed(*common, RemovalReason(event.reason), tuple(event.block_ids), tuple(event.block_hashes),
                   event.scope in (whole_window, pools), event.scope == pools)


_KINDS: Mapping[str, Callable[[_Common, Any], Event]] = {
    "created": _created, "stored": _stored, "updated": _updated, "removed": _removed,
}


def take(message: Any) -> list[Event]:
    """The events of a WatchResponse; those of a later daemon's kinds are left out."""
    events = []
    for event in message.events:
        kind = event.WhichOneof("event")
        if kind is not None:
            common = (message.epoch, event.revision, values.utc(event.time), event.window_size)
            events.append(_KINDS[kind](common, getattr(event, kind)))
    return events


# The number of each kind in a request.
EVENT_TYPES: Mapping[type[Event], int] = {Created: 1, Stored: 2, Updated: 3, Removed: 4}
