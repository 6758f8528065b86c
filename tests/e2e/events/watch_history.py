"""What subscribers received, and what they should have received: the input of watch_validators.py.

The truth is the history of one subscriber that saw everything from a snapshot on, with the owners
that the clients recorded.
"""

import bisect
import collections
import dataclasses

from pagoda.v1 import events_pb2, types_pb2

DEFAULT_TENANT = ""
EVERYBODY = None  # The owner of events that every tenant sees: of the pools, and of a window's reset.
TYPES = {"created": events_pb2.EVENT_TYPE_CREATED, "stored": events_pb2.EVENT_TYPE_STORED, "updated": events_pb2.EVENT_TYPE_UPDATED,
         "removed": events_pb2.EVENT_TYPE_REMOVED}
STORED, UPDATED, REMOVED = (TYPES[name] for name in ("stored", "updated", "removed"))
ALL_TYPES = frozenset(TYPES.values())
ALL_TIERS = frozenset({types_pb2.TIER_PRIMARY, types_pb2.TIER_SECOND})


@dataclasses.dataclass
class Message:
    """A WatchResponse, and its time of arrival: seconds of time.monotonic, which all processes of a
    machine share."""

    time: float
    body: events_pb2.WatchResponse


@dataclasses.dataclass
class End:
    """How a stream ended: by the subscriber itself ("cut", "cancelled", "over"), or with a reason
    of the daemon."""

    time: float
    reason: str
    oldest: int = 0  # The log's bounds as the daemon gave them, or 0.
    next: int = 0


OWN_DOING = ("cut", "cancelled", "over")


@dataclasses.dataclass
class Stream:
    """One call of Watch."""

    request: events_pb2.WatchRequest
    time: float  # The time of the request.
    messages: list = dataclasses.field(default_factory=list)
    end: End | None = None

    def told(self):
        """The events one by one: (number of the message, its body, event, whether it belongs to a
        snapshot)."""
        in_snapshot = False
        for number, message in enumerate(self.messages):
            in_snapshot = in_snapshot or message.body.snapshot_begin
            for event in message.body.events:
                yield number, message.body, event, in_snapshot
            in_snapshot = in_snapshot and not message.body.snapshot_end


@dataclasses.dataclass(frozen=True)
class View:
    """What a subscriber may see and has asked for; None is everything."""

    types: frozenset | None = None
    windows: frozenset | None = None
    tiers: frozenset | None = None
    tenants: frozenset | None = None  # DEFAULT_TENANT among them, if it may be seen.

    @classmethod
    def of(cls, request, caller=None):
        """The view of a request. `caller` has the tenants that its credentials show, None for an
        operator's."""
        types, tiers = frozenset(request.types), frozenset(request.tiers)
        return cls(None if types in (frozenset(), ALL_TYPES) else types, frozenset(request.window_sizes) or None,
                   None if tiers in (frozenset(), ALL_TIERS) else tiers, frozenset({request.tenant}) if request.tenant else caller)

    def shows(self, event, owner):
        """The parts of an event that the subscriber receives, by the rules of events.proto for the
        fields of WatchRequest."""
        kind = event.WhichOneof("event")
        if self.types is not None and TYPES[kind] not in self.types:
            return []
        if self.windows is not None and event.window_size not in self.windows:
            return []
        if self.tenants is not None and owner is not EVERYBODY and owner not in self.tenants:
            return []
        if self.tiers is None or kind == "removed":
            return [event]
        if kind == "stored":
            return self._stored_parts(event)
        if kind == "updated":
            of_any_tier = event.updated.HasField("priority") or not (event.updated.HasField("tier") or event.updated.HasField("lower_tiers"))
            return [event] if of_any_tier or changed_tiers(event.updated) & self.tiers else []
        part = events_pb2.Event()
        part.CopyFrom(event)
        kept = [capacity for capacity in event.created.capacity if capacity.tier in self.tiers]
        del part.created.capacity[:]
        part.created.capacity.extend(kept)
        return [part]

    def _stored_parts(self, event):
        if all(tiers_of(block) & self.tiers for block in event.stored.blocks):
            return [event]
        parts, part, above = [], None, None
        for block in event.stored.blocks:
            if not tiers_of(block) & self.tiers:
                part = None
            elif part is None:
                part = events_pb2.Event()
                part.CopyFrom(event)
                del part.stored.blocks[:]
                if above is not None:
                    part.stored.parent_block_id, part.stored.parent_hash = above.block_id, above.block_hash
                parts.append(part)
            if part is not None:
                part.stored.blocks.append(block)
            above = block
        return parts


EVERYTHING = View()


@dataclasses.dataclass
class History:
    """A subscriber's streams, one after the other. A stream that resumes at the revision after its
    predecessor's last one continues it; every other stream begins anew."""

    name: str
    view: View
    streams: list
    # Whether it had to read until it had received all events of the round.
    to_the_end: bool = True

    def chains(self):
        """Lists of streams. Each stream of a list resumes where the one before it stopped."""
        chain = []
        for stream in self.streams:
            if chain and not is_continued(chain, stream):
                yield chain
                chain = []
            chain.append(stream)
        if chain:
            yield chain


def is_continued(chain, stream):
    """Whether the stream asks for what comes behind the chain's last message."""
    last = next((earlier.messages[-1] for earlier in reversed(chain) if earlier.messages), None)
    return last is not None and stream.request.HasField("from_revision") and stream.request.from_revision == last.body.revision + 1


def tiers_of(block):
    """All tiers that have a stored block's bytes."""
    return {block.tier, *block.lower_tiers}


def changed_tiers(updated):
    """Where a move begins and ends, and where copies come and go."""
    moved = {updated.tier.old_value, updated.tier.new_value} if updated.HasField("tier") else set()
    return moved | (set(updated.lower_tiers.old_value) ^ set(updated.lower_tiers.new_value))


def tiers_after(tiers, updated):
    """All tiers that have a block's bytes after an update, from those before it. The result is as
    complete as `tiers`."""
    before, after = set(updated.lower_tiers.old_value), set(updated.lower_tiers.new_value)
    if updated.HasField("tier"):
        before.add(updated.tier.old_value)
        after.add(updated.tier.new_value)
    return (set(tiers) - before) | after


def bounds(event):
    """The (window, id) of each block that an event names."""
    what = getattr(event, event.WhichOneof("event"))
    if event.HasField("stored"):
        ids = [block.block_id for block in what.blocks]
    elif event.HasField("updated"):
        ids = [what.block_id]
    else:
        ids = what.block_ids
    return [(event.window_size, block_id) for block_id in ids]


class Owners:
    """The owners of raw blocks: by (window, id) the revisions of the batches that took the block,
    and the tenant. Also the owner of each pin."""

    def __init__(self):
        self.pins = {}
        self._claims = collections.defaultdict(list)

    def claim(self, window, block_id, revision, tenant):
        """`revision` is that of the batch's result. No batch takes a block and gives it back."""
        bisect.insort(self._claims[window, block_id], (revision, tenant))

    def of(self, block, revision):
        """The owner of the life that began at a revision."""
        claims = self._claims[block]
        return claims[bisect.bisect_left(claims, (revision,))][1]


class Truth:
    """Every event of a round with its owner, from the history of a subscriber that saw all
    events."""

    def __init__(self, reference, owners):
        self.events = {}  # By revision.
        self.owners = {}
        self.mixed = []  # Faults of the reference itself: events about blocks of several owners.
        self._blocks = {}  # The owner of each block, as of the last event read.
        self._seen = {}
        (stream,) = reference.streams
        for _, _, event, in_snapshot in stream.told():
            owner = self._owner(event, owners)
            if not in_snapshot:
                self.events[event.revision], self.owners[event.revision] = event, owner
            if event.HasField("stored") or event.HasField("created"):
                self._blocks.update(dict.fromkeys(bounds(event), owner))
        # All events above `first` and up to `last` are known.
        (whole,) = (message.body for message in stream.messages if message.body.snapshot_end)
        self.first, self.last = whole.revision, stream.messages[-1].body.revision

    def _owner(self, event, raw_owners):
        if event.HasField("stored"):
            return event.stored.namespace.tenant
        if event.updated.HasField("ended_pin"):
            return raw_owners.pins[event.updated.ended_pin.pin_id]
        blocks = bounds(event)
        if not blocks:
            return EVERYBODY
        if event.HasField("created"):
            if not event.revision:
                return DEFAULT_TENANT  # Only an operator holds raw blocks between two rounds.
            owners = {raw_owners.of(block, event.revision) for block in blocks}
        else:
            # A block that the reference does not know has no owner. The validators then report that
            # something is missing.
            owners = {self._blocks[block] for block in blocks if block in self._blocks} or {EVERYBODY}
        if len(owners) > 1:
            # The reference has not seen that another owner took a block.
            self.mixed.append(f"revision {event.revision}: one event about blocks of {sorted(owners)}")
            return EVERYBODY
        return owners.pop()

    def shown(self, view):
        """By revision, the parts of the events that a view shows, where there are any."""
        if view not in self._seen:
            parts = {revision: view.shows(event, self.owners[revision]) for revision, event in self.events.items()}
            self._seen[view] = {revision: shown for revision, shown in parts.items() if shown}
        return self._seen[view]


@dataclasses.dataclass
class Recording:
    """A round: the reference's history, those of the others, and what the clients were told."""

    reference: History
    histories: list
    owners: Owners
    acknowledged: list  # (time, revision) of the clients' answers, ascending.
    target: int  # No client changed anything after this revision. Every subscriber reads up to it.
    final: int  # The last revision of all.

    def __post_init__(self):
        self.truth = Truth(self.reference, self.owners)

    def all(self):
        return [self.reference, *self.histories]

    def acknowledged_before(self, time):
        """The last revision of which a client had been told by then."""
        place = bisect.bisect_left(self.acknowledged, (time,))
        return self.acknowledged[place - 1][1] if place else 0
