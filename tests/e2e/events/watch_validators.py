"""The guarantees of a subscription: etcd's eight guarantees of a watch
(https://etcd.io/docs/v3.6/learning/api_guarantees/), for this stream. Each is a pure function over
a recording. It returns the violations, in words, or nothing.

An event is a revision. A filter leaves parts of it: one, none, or several parts of a Stored event
whose blocks lie in different tiers. A snapshot reports present blocks with revision 0. What happens
to reported blocks keeps its revision.
"""

from pagoda.v1 import events_pb2
from watch_history import EVERYTHING, OWN_DOING, REMOVED, STORED, TYPES, UPDATED, bounds, tiers_of


def ordered(recording):
    """Order: events come in the order in which they happened. In a stream, revisions never go back.
    An event's revision lies within the range of its message, its time is not before that of an
    earlier event, and revision 0 comes only in snapshots. A stream begins after everything that any
    client had received before the request, unless the request names an earlier revision."""
    for history, stream in _streams(recording):
        place = f"{history.name}, asked for at {stream.time:.3f}"
        last = 0
        for message in stream.messages:
            body = message.body
            if body.revision < max(body.previous_revision, last):
                yield f"{place}: a message covers ({body.previous_revision}, {body.revision}] after {last}"
            last = max(last, body.revision)
        before, time = 0, (0, 0)
        for _, body, event, in_snapshot in stream.told():
            if event.revision == 0:
                if not in_snapshot:
                    yield f"{place}: revision 0 outside a snapshot"
                continue
            if event.revision < before:
                yield f"{place}: revision {event.revision} comes after {before}"
            if not body.previous_revision < event.revision <= body.revision:
                yield f"{place}: revision {event.revision} in a message that covers ({body.previous_revision}, {body.revision}]"
            if (event.time.seconds, event.time.nanos) < time:
                yield f"{place}: revision {event.revision} happened before {before}"
            before, time = max(before, event.revision), (event.time.seconds, event.time.nanos)
        known = recording.acknowledged_before(stream.time)
        if stream.messages and not stream.request.HasField("from_revision") and (first := stream.messages[0].body.revision) < known:
            yield f"{place}: begins at {first}, although a client had received {known} before"


def unique(recording):
    """Uniqueness: nothing comes twice. No part of an event comes twice in a stream and its
    continuations, unless a snapshot begins between. In a snapshot no block comes twice, unless it
    was removed between."""
    for history, chain in _chains(recording):
        told = set()  # (revision, part).
        for stream in chain:
            blocks = None
            begun = -1
            for number, body, event, in_snapshot in stream.told():
                if in_snapshot and not (blocks is not None and begun == _snapshot_of(stream, number)):
                    begun, blocks = _snapshot_of(stream, number), set()
                    told.clear()
                if event.revision:
                    part = (event.revision, event.SerializeToString(deterministic=True))
                    if part in told:
                        yield f"{history.name}: revision {event.revision} comes twice"
                    told.add(part)
                if in_snapshot and event.HasField("stored"):
                    for block in bounds(event):
                        if block in blocks:
                            yield f"{history.name}: block {block} comes twice in a snapshot that ends at or after {body.revision}"
                        blocks.add(block)
                elif in_snapshot and event.HasField("removed"):
                    gone = bounds(event) or [block for block in blocks if block[0] == event.window_size]
                    if event.removed.reason != events_pb2.REMOVAL_REASON_RELEASED:
                        blocks.difference_update(gone)


def atomic(recording):
    """Atomicity: an event comes whole. One message has all parts that the subscriber may see, with
    all their blocks. So a subscriber that stops after a message and resumes at the next revision
    has lost nothing. (In a snapshot an event names only blocks that came before, also in one
    message.)"""
    truth = recording.truth
    for history, stream in _streams(recording):
        shown = truth.shown(history.view)
        messages = {}  # By revision: the number of its message.
        blocks = {}  # By revision: the blocks of the events outside snapshots.
        for number, _, event, in_snapshot in stream.told():
            if event.revision == 0:
                continue
            if messages.setdefault(event.revision, number) != number:
                yield f"{history.name}: revision {event.revision} is split between two messages"
            if not in_snapshot:
                blocks.setdefault(event.revision, []).extend(bounds(event))
        for revision, told in blocks.items():
            wanted = [block for part in shown.get(revision, ()) for block in bounds(part)]
            if missing := set(wanted) - set(told):
                yield f"{history.name}: revision {revision} came without its blocks {sorted(missing)}"


def reliable(recording):
    """Completeness: nothing is left out, and no gap is silent. A stream begins at the requested
    revision, and a message begins where the one before it ended. Within the range of the messages
    the subscriber received every revision of which it may see a part, unless a snapshot stands for
    it. A subscriber that may see everything received each revision, because revisions have no
    holes. The daemon ends a stream only if the log has passed it, and says so. A subscriber that
    reads on receives everything."""
    truth = recording.truth
    yield from truth.mixed
    for history, stream in _streams(recording):
        place = f"{history.name}, asked for at {stream.time:.3f}"
        shown = truth.shown(history.view)
        told = {event.revision for _, _, event, _ in stream.told()}
        last, in_snapshot = None, False
        if stream.messages and stream.request.HasField("from_revision") and not stream.messages[0].body.snapshot_begin:
            last = stream.request.from_revision - 1
        for message in stream.messages:
            body = message.body
            if not body.snapshot_begin and last is not None and body.previous_revision != last:
                yield f"{place}: a message begins at {body.previous_revision}, but the one before it ended at {last}"
            in_snapshot = in_snapshot or body.snapshot_begin
            if not in_snapshot:
                for revision in range(max(body.previous_revision, truth.first) + 1, body.revision + 1):
                    if (revision in shown or history.view == EVERYTHING) and revision not in told:
                        yield f"{place}: revision {revision} was left out"
            in_snapshot = in_snapshot and not body.snapshot_end
            last = body.revision
        yield from (f"{place}: {fault}" for fault in _faults_of_the_end(stream, last))
    for history in recording.all():
        if history.to_the_end:
            messages = history.streams[-1].messages
            if not messages or messages[-1].body.revision < recording.target:
                yield f"{history.name}: received nothing after {messages and messages[-1].body.revision} of {recording.target}"


def resumable(recording):
    """Resumption: a subscriber that names the revision after its last one, under the same epoch,
    goes on there as if nothing had happened. The daemon begins exactly there. It refuses only
    revisions that its log no longer has, and says so truly: it does not serve later what it refused
    once, and it has what it says that it has."""
    refused = sorted((stream.end.time, stream.end.oldest) for _, stream in _streams(recording)
                     if stream.end is not None and stream.end.reason == "REVISION_COMPACTED")
    for history, chain in _chains(recording):
        for before, stream in zip(chain, chain[1:]):
            wanted = stream.request.from_revision
            place = f"{history.name}, resumed at {wanted}"
            if not stream.messages:
                if stream.end.reason in OWN_DOING:
                    continue
                if stream.end.reason != "REVISION_COMPACTED" or stream.end.oldest <= wanted or stream.end.next < wanted:
                    yield f"{place}: refused with {stream.end.reason}, while the log had {stream.end.oldest} to {stream.end.next - 1}"
                continue
            first = stream.messages[0].body
            if any(first.epoch != message.body.epoch for message in before.messages[-1:]):
                yield f"{place}: continues in another epoch"
            if first.snapshot_begin:
                if not stream.request.resnapshot_when_behind or first.revision < wanted:
                    yield f"{place}: continues with a snapshot as of {first.revision} that it had not requested"
            elif (first.previous_revision, first.revision, len(first.events)) != (wanted - 1, wanted - 1, 0):
                yield f"{place}: begins with ({first.previous_revision}, {first.revision}] and {len(first.events)} events"
    for history, stream in _streams(recording):
        if not stream.messages or not stream.request.HasField("from_revision") or stream.messages[0].body.snapshot_begin:
            continue
        wanted = stream.request.from_revision
        if too_late := [oldest for time, oldest in refused if time < stream.time and wanted < oldest]:
            yield f"{history.name}: is served from {wanted} on, but the daemon had said before that the log begins at {max(too_late)}"


def bookmarkable(recording):
    """Bookmarks: a message at revision R, with events or without, and a snapshot's end say: you
    have received everything up to R that you may see. Nothing at or below R comes afterwards, in
    this stream or its continuations, and everything between two marks came between them. No mark is
    ahead of the present revision."""
    truth = recording.truth
    for history, chain in _chains(recording):
        visible = sorted(truth.shown(history.view))
        told = set()
        place = 0  # An index in `visible`. Earlier revisions were received, or a snapshot stands for them.
        covered = None
        for stream in chain:
            in_snapshot = False
            for message in stream.messages:
                body = message.body
                in_snapshot = in_snapshot or body.snapshot_begin
                for event in body.events:
                    if event.revision and covered is not None and event.revision <= covered:
                        yield f"{history.name}: revision {event.revision} comes after the mark at {covered}"
                    told.add(event.revision)
                start = covered if covered is not None else body.previous_revision
                while place < len(visible) and visible[place] <= body.revision:
                    revision = visible[place]
                    place += 1
                    if not in_snapshot and revision > start and revision not in told:
                        yield f"{history.name}: the mark at {body.revision} comes before revision {revision}"
                in_snapshot = in_snapshot and not body.snapshot_end
                covered = max(body.revision, covered or 0)
                if covered > recording.final:
                    yield f"{history.name}: the mark at {covered} is ahead of the last revision, {recording.final}"


def previous_value(recording):
    """Previous values: a change names the earlier tier, copies, priority and hash as the subscriber
    last received them, and a removal names the hash. A subscriber that received everything receives
    changes and removals only of blocks that it has, and no arrival of a block that it has."""
    for history, chain in _chains(recording):
        known = _Known(history.view)
        for stream in chain:
            begun = -1
            for number, body, event, in_snapshot in stream.told():
                snapshot = _snapshot_of(stream, number) if in_snapshot else -1
                if in_snapshot and snapshot != begun:
                    known = _Known(history.view, from_snapshot=True)
                begun = snapshot
                for fault in known.take(event):
                    yield f"{history.name}, revision {event.revision} of the message up to {body.revision}: {fault}"


def right_filter(recording):
    """Filters: a subscriber receives what its filter and its credentials show, as it happened, and
    nothing else. Snapshots too: they contain no blocks of other windows, tiers and tenants, and no
    types outside the request."""
    truth = recording.truth
    for history, stream in _streams(recording):
        view = history.view
        shown = truth.shown(view)
        for _, _, event, in_snapshot in stream.told():
            if event.revision == 0:
                if not _may_see(view, event):
                    yield f"{history.name}: receives in a snapshot what it may not see:\n{event}"
                continue
            if not truth.first < event.revision <= truth.last:
                continue
            parts = shown.get(event.revision, ())
            if in_snapshot:  # The event has only blocks that the snapshot has reported: a part of one of the parts.
                fits = any(part.WhichOneof("event") == event.WhichOneof("event") and set(bounds(event)) <= set(bounds(part)) for part in parts)
            else:
                fits = any(part == event for part in parts)
            if not fits:
                yield f"{history.name}: receives of revision {event.revision} what it may not see, or what did not happen:\n{event}"


# By etcd's names.
VALIDATORS = {"ordered": ordered, "unique": unique, "atomic": atomic, "reliable": reliable, "resumable": resumable,
              "bookmarkable": bookmarkable, "previous value": previous_value, "filter": right_filter}


def violations(recording):
    """The violations that all validators find: (name of the guarantee, violation)."""
    return [(name, found) for name, validator in VALIDATORS.items() for found in validator(recording)]


def _streams(recording):
    return ((history, stream) for history in recording.all() for stream in history.streams)


def _chains(recording):
    return ((history, chain) for history in recording.all() for chain in history.chains())


def _snapshot_of(stream, number):
    """The number of the message that began the snapshot which message `number` belongs to."""
    while not stream.messages[number].body.snapshot_begin:
        number -= 1
    return number


def _faults_of_the_end(stream, last):
    """What is wrong with the end of a stream that had reported everything up to `last`. resumable
    checks whether a resume may be refused."""
    end = stream.end
    if end is None or end.reason in OWN_DOING:
        return
    if not stream.messages:
        if not stream.request.HasField("from_revision"):
            yield f"was refused with {end.reason}"
        return
    if end.reason != "REVISION_COMPACTED" or end.oldest <= last + 1:
        yield f"ended with {end.reason} at {last}, while the log began at {end.oldest}"
    elif stream.request.resnapshot_when_behind:
        yield "did not get the snapshot that it had requested"


def _may_see(view, event):
    """Whether a snapshot may contain this block or pin. Raw blocks do not name their owner."""
    if view.types is not None and TYPES[event.WhichOneof("event")] not in view.types:
        return False
    if view.windows is not None and event.window_size not in view.windows:
        return False
    if view.tenants is not None and event.HasField("stored") and event.stored.namespace.tenant not in view.tenants:
        return False
    if view.tiers is None:
        return True
    return (all(tiers_of(block) & view.tiers for block in event.stored.blocks)
            and all(capacity.tier in view.tiers for capacity in event.created.capacity))


class _Known:
    """What a subscriber has been told of blocks, as far as its view lets it know."""

    def __init__(self, view, from_snapshot=False):
        types = view.types or {STORED, UPDATED, REMOVED}
        # If removals are not reported, a block id can have another block the next time.
        self._lasting = REMOVED in types
        self._values = UPDATED in types
        self._whole = from_snapshot and self._lasting and self._values and STORED in types and view.tiers is None
        self._tiers = view.tiers
        self._blocks = {}  # By (window, id): [hash, tier, priority, lower tiers]; None for a value that was not reported.

    def take(self, event):
        """Yields the faults of an event, and applies it."""
        if event.HasField("stored"):
            for place, block in zip(bounds(event), event.stored.blocks):
                if self._lasting and place in self._blocks and self._blocks[place] is not None:
                    yield f"block {place} is stored, but it was there"
                self._blocks[place] = [block.block_hash, block.tier, block.priority, self._seen(block.lower_tiers)]
        elif event.HasField("updated"):
            yield from self._take_update(bounds(event)[0], event.updated)
        elif event.HasField("removed") and event.removed.reason != events_pb2.REMOVAL_REASON_RELEASED:
            yield from self._take_removal(event)

    def _take_update(self, place, updated):
        if place not in self._blocks:
            if self._whole:
                yield f"block {place} is changed, but it was not there"
            self._blocks[place] = [updated.block_hash, None, None, None]
        known = self._blocks[place]
        if self._lasting and known[0] != updated.block_hash:
            yield f"block {place} is changed under the hash {updated.block_hash:x}, but it had {known[0]:x}"
        known[0] = updated.block_hash
        for number, field in ((1, "tier"), (2, "priority"), (3, "lower_tiers")):
            if updated.HasField(field):
                change = getattr(updated, field)
                old, new = change.old_value, change.new_value
                if field == "lower_tiers":
                    old, new = self._seen(old), self._seen(new)
                if self._lasting and known[number] is not None and known[number] != old:
                    yield f"block {place} has its {field} changed from {old}, but it was {known[number]}"
                if change.old_value == change.new_value:
                    yield f"block {place} has its {field} changed from {old} to the same"
                known[number] = new

    def _seen(self, lower_tiers):
        """A block's farther copies in the view's tiers. The subscriber hears nothing of the
        others."""
        return [tier for tier in lower_tiers if self._tiers is None or tier in self._tiers]

    def _take_removal(self, event):
        if event.removed.scope == events_pb2.REMOVAL_SCOPE_WINDOW:
            self._blocks = {place: block for place, block in self._blocks.items() if place[0] != event.window_size}
            return
        if len(event.removed.block_hashes) != len(event.removed.block_ids):
            yield f"{len(event.removed.block_ids)} blocks are removed with {len(event.removed.block_hashes)} hashes"
        for place, removed_hash in zip(bounds(event), event.removed.block_hashes):
            known = self._blocks.pop(place, None)
            if known is None:
                if self._whole:
                    yield f"block {place} is removed, but it was not there"
            elif known[0] != removed_hash:
                yield f"block {place} is removed under the hash {removed_hash:x}, but it had {known[0]:x}"
