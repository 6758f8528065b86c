"""Events of the cache, and the other items of a watch, as values.

A watch with content="hashes" leaves fields out. They are 0, None, empty or default then, so a
`block_id` of 0 says nothing in such a watch. Client.watch lists the fields that it fills.
"""

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
    """Why a pin ended. PREFIX_LEFT: a block of its prefix left the cache."""

    UNPINNED = 1
    EXPIRED = 2
    PREFIX_LEFT = 3


@dataclasses.dataclass(frozen=True)
class EndedPin:
    """A pin ended as a whole. With PinEnd.PREFIX_LEFT, `removal` is the reason why its prefix
    left."""

    pin_id: int
    why: PinEnd
    removal: RemovalReason | None


@dataclasses.dataclass(frozen=True)
class _Event:
    epoch: int
    """The incarnation of the daemon's state. If it changes, discard everything that was built from
    earlier events."""
    revision: int
    """One more than the previous event's. 0 in a snapshot, which reports a state and not a change.
    With a filter, revisions are skipped, and a Stored event whose blocks lie in several tiers comes
    in parts with the same revision."""
    time: datetime.datetime
    window_size: int
    """Tokens; 0 is full attention."""


@dataclasses.dataclass(frozen=True)
class Created(_Event):
    """Pools were created (`capacity`, in blocks), or blocks were handed out (`block_ids`): raw
    ones, or all if the daemon's `events.lifecycle` is `all`. Then a block is in use until it is
    Stored, or Removed as RELEASED. If a block leaves the cache while it is held, its Created
    follows its Removed."""

    capacity: Mapping[Tier, int]
    block_ids: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class StoredBlock:
    """A block that became reusable, and its tokens. `token_count` counts them even if they are
    hidden. `tier` is the nearest tier that has its bytes. `lower_tiers` are the farther tiers with
    a copy, ascending. With content="hashes": only `block_hash`, `tier` and `lower_tiers`."""

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
    """The block's key, in a keyed namespace, instead of tokens."""


@dataclasses.dataclass(frozen=True)
class Stored(_Event):
    """Blocks became reusable, each the child of the previous one. The first one's parent is None if
    it begins its namespace. With `content_hidden`, the salt and the blocks' content are left out:
    they belong to another tenant that shares under a salt. With content="hashes": only `blocks`,
    which need not be a chain."""

    parent_hash: int | None
    parent_block_id: int | None
    namespace: Namespace
    blocks: tuple[StoredBlock, ...]
    content_hidden: bool = False


@dataclasses.dataclass(frozen=True)
class Updated(_Event):
    """A cached block changed its nearest tier, its copies in farther tiers or its priority: (old,
    new) of each, None if unchanged. Or a pin ended, and this is its last block in the cache's
    largest window. With content="hashes": only `block_hash`, `tier` and `lower_tiers`."""

    block_id: int
    block_hash: int
    tier: tuple[Tier, Tier] | None
    priority: tuple[int, int] | None
    ended_pin: EndedPin | None = None
    lower_tiers: tuple[tuple[Tier, ...], tuple[Tier, ...]] | None = None


@dataclasses.dataclass(frozen=True)
class Removed(_Event):
    """Blocks left the cache: the listed ones, or with `whole_window` every cached block of the
    window. RELEASED blocks were in use but not cached; they have no hashes. With `pools` the
    window's pools are removed, with all cached and used blocks. Then `whole_window` is true, the
    reason is RELEASED, and no event of the window follows in this epoch. With content="hashes":
    without `block_ids`."""

    reason: RemovalReason
    block_ids: tuple[int, ...]
    block_hashes: tuple[int, ...]
    whole_window: bool
    pools: bool = False


Event: TypeAlias = Created | Stored | Updated | Removed


@dataclasses.dataclass(frozen=True)
class Gap:
    """The stream does not continue where it stopped. The events in between are unknown. Discard
    everything that was built from earlier events.

    The next event has the revision `next_revision`. If that is 1, the events from there on describe
    the whole cache. Otherwise, blocks that were cached before are not reported; a watch with
    `resnapshot` has a SnapshotBegin instead of a gap. The reasons are REVISION_COMPACTED (the
    reader was further behind than the daemon keeps events), EPOCH_CHANGED (another incarnation of
    the daemon), REVISION_IN_FUTURE and MESSAGE_MISSING (the daemon is faulty).
    """

    reason: str
    previous_epoch: int
    previous_revision: int
    epoch: int
    next_revision: int


@dataclasses.dataclass(frozen=True)
class SnapshotBegin:
    """A snapshot begins: discard all earlier state. The cached blocks follow as Created and Stored
    events with revision 0. Changes of already reported blocks that happen meanwhile come between
    them, with their own revisions. Blocks can come before their parents.

    `reason` is "" at the start of a watch. Otherwise it is why the watch restarts:
    REVISION_COMPACTED (the reader was further behind than the daemon keeps events), EPOCH_CHANGED
    (another incarnation of the daemon), REVISION_IN_FUTURE, or STREAM_BROKEN (the connection broke
    within a snapshot).
    """

    epoch: int
    reason: str


@dataclasses.dataclass(frozen=True)
class SnapshotEnd:
    """The snapshot is complete: the events since SnapshotBegin are the state as of `revision`."""

    epoch: int
    revision: int


@dataclasses.dataclass(frozen=True)
class Progress:
    """The watch has shown all matching events up to `revision`."""

    epoch: int
    revision: int


Item: TypeAlias = Event | Gap | SnapshotBegin | SnapshotEnd | Progress
"""The items of a watch."""

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
    """The events of a WatchResponse. Event types of a later daemon are left out."""
    events = []
    for event in message.events:
        kind = event.WhichOneof("event")
        if kind is not None:
            common = (message.epoch, event.revision, values.utc(event.time), event.window_size)
            events.append(_KINDS[kind](common, getattr(event, kind)))
    return events


# The number of each kind in a request.
EVENT_TYPES: Mapping[type[Event], int] = {Created: 1, Stored: 2, Updated: 3, Removed: 4}
