"""A consistent snapshot of the daemon's status, for operators and for tests."""

import dataclasses
import datetime
from collections.abc import Mapping
from typing import Any

from pagoda import values
from pagoda.values import CacheInfo, MemoryKind, MemoryPages, Tier


@dataclasses.dataclass(frozen=True)
class TierStatus:
    """The blocks of a tier. The states add up to the capacity."""

    tier: Tier
    capacity_blocks: int
    free_blocks: int
    cached_blocks: int
    active_blocks: int
    pinned_blocks: int
    in_flight_blocks: int
    """Being copied, or released but deferred until their client's step is completed."""
    block_bytes: int
    memory_kind: MemoryKind
    device: int
    """The device's index, for device memory."""
    cached_by_priority: Mapping[int, int]
    """The cached blocks of each priority that occurs, without duplicates. The lowest priority is
    evicted first."""
    name: str
    prefix_hit_tokens_total: int
    """Prompt tokens that were found cached in this tier."""
    duplicate_blocks: int
    """The cached blocks that also have a copy in a nearer tier."""
    memory_pages: MemoryPages
    """The smallest page size among the window's pools in host memory."""


@dataclasses.dataclass(frozen=True)
class WindowStatus:
    """A window. The fields that end with _total count since the daemon started."""

    window_size: int
    """Tokens; 0 is full attention."""
    tiers: tuple[TierStatus, ...]
    allocated_blocks_total: int
    freed_blocks_total: int
    evicted_blocks_total: int
    prefix_lookup_tokens_total: int
    prefix_hit_tokens_total: int
    lower_hit_tokens_total: int
    displaced_blocks_total: int
    offloaded_blocks_total: int
    onboarded_blocks_total: int
    partial_copies_total: int
    taken_over_blocks_total: int
    merged_blocks_total: int
    lost_blocks_total: int
    expired_priorities_total: int
    holes: int
    pinned_blocks: int
    pin_budget_blocks: int
    freely_evicted_blocks_total: int
    """Offloaded without a copy, because a lower tier already had one."""
    layers: int
    """The model's attention layers with this window."""
    counters: Mapping[str, int]
    """All counters by their names in `admin.proto`, also those that have no field here."""

    @property
    def hit_rate(self) -> float:
        """The share of looked-up tokens that were cached, 0 to 1."""
        return self.prefix_hit_tokens_total / max(self.prefix_lookup_tokens_total, 1)


@dataclasses.dataclass(frozen=True)
class TransferDirection:
    """Copies from one tier to another, or inside one. `busy_time` is in seconds, summed over the
    copying threads; 0 for a disk, whose threads are not timed."""

    source: Tier
    target: Tier
    copies_total: int
    bytes_total: int
    busy_time: float
    source_name: str
    target_name: str


@dataclasses.dataclass(frozen=True)
class Transfers:
    """The state of block copies."""

    directions: tuple[TransferDirection, ...]
    failed_total: int
    running: int
    queued: int


@dataclasses.dataclass(frozen=True)
class Status:
    """The daemon and one of its caches. `uptime` is in seconds."""

    version: str
    epoch: int
    start_time: datetime.datetime
    uptime: float
    cache: CacheInfo
    windows: tuple[WindowStatus, ...]
    sessions: int
    sequences: int
    subscribers: int
    revision: int
    oldest_revision: int
    draining: bool
    pins: int
    transfers: Transfers

    @classmethod
    def take(cls, message: Any) -> "Status":
        return cls(**_plain_fields(
            cls, message, start_time=values.utc(message.start_time), uptime=values.seconds(message.uptime), cache=CacheInfo.take(message.cache),
            windows=tuple(_window(window) for window in message.windows), transfers=_transfers(message.transfers)))


def _plain_fields(kind: type, message: Any, **taken: Any) -> dict[str, Any]:
    """The fields of a value that are taken unchanged from the message, together with those in
    `taken`."""
    named: Mapping[str, Any] = {field.name: field for field in dataclasses.fields(kind)}
    return {name: getattr(message, name) for name in named if name not in taken} | taken


def _window(message: Any) -> WindowStatus:
    counters = {field.name: getattr(message, field.name) for field in message.DESCRIPTOR.fields if field.name.endswith("_total")}
    return WindowStatus(**_plain_fields(
        WindowStatus, message, tiers=tuple(_tier(tier) for tier in message.tiers), counters=counters))


def _tier(message: Any) -> TierStatus:
    return TierStatus(**_plain_fields(
        TierStatus, message, tier=Tier(message.tier), memory_kind=MemoryKind(message.memory_kind),
        memory_pages=MemoryPages(message.memory_pages),
        cached_by_priority={one.priority: one.blocks for one in message.cached_by_priority}))


def _transfers(message: Any) -> Transfers:
    directions = tuple(
        TransferDirection(**_plain_fields(TransferDirection, part, source=Tier(part.source), target=Tier(part.target),
                                          busy_time=values.seconds(part.busy_time)))
        for part in message.directions)
    return Transfers(**_plain_fields(Transfers, message, directions=directions))
