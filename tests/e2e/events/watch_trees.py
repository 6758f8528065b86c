"""The trees that the histories of watch_history.py describe, and the tree of the Python package's
watch."""

import threading

import pagoda
from pagoda.v1 import events_pb2, types_pb2
from shadow_tree import ROOT, ShadowTrees
from watch_history import EVERYTHING, bounds, tiers_after, tiers_of


def compare_trees(recording, dump, package):
    """Checks that all have the manager's tree. `dump` is from a snapshot taken with no traffic; the
    reference's tree equals it. Each other tree equals the reference's at the same revision, at the
    end of each snapshot and of each stream; with a filter, for the blocks that the filter shows.
    The package's blocks are the dump's: `package`, or the error that ended its watch. Returns how
    many were compared."""
    truth = recording.truth
    told = [(revision, history, contents) for history in recording.histories if history.view.types is None
            for revision, contents in (trees_of if history.view == EVERYTHING else blocks_of)(history)
            if truth.first <= revision <= truth.last]
    assert any(history is dump for _, history, _ in told), "the reference has not read as far as the dump"
    reference = dict(trees_of(recording.reference, at={revision for revision, _, _ in told}))
    for revision, history, contents in told:
        truly = reference[revision]
        if history.view == EVERYTHING:
            assert contents == truly, f"{history.name} has a wrong tree at {revision}: {difference(contents, truly)}"
        else:
            truly = shown_of(truly, history.view)
            assert contents == truly, f"{history.name} has wrong blocks at {revision}: {first_difference(contents, truly)}"
    assert not isinstance(package, BaseException), f"the package's watch: {package!r}"
    theirs = PackageWatch.of(dump)
    assert package == theirs, f"the package's watch has a wrong tree: {first_difference(package, theirs)}"
    return len(told) + 1


class PackageWatch(threading.Thread):
    """The other implementation: the Python package's watch, from the daemon's first revision on,
    with its own tree. Reports each revision that it reaches. After a failure it reports that the
    round need not wait for it any more."""

    _FAILED = 1 << 62

    def __init__(self, endpoint, token, tell):
        super().__init__(name="package", daemon=True)
        self._watch = pagoda.watch(endpoint, from_revision=1, token=token)
        self._tell = tell
        self._lock = threading.Lock()
        self.revision = 0
        self._blocks = {}  # By window and id: hash, parent's hash or None, tokens, tier, priority, farther tiers with a copy.
        self.error = None

    def run(self):
        try:
            for item in self._watch:
                with self._lock:
                    self._take(item)
                    self.revision = item.revision
                self._tell(item.revision)
        except BaseException as error:
            self.error = error
            self._tell(self._FAILED)

    def _take(self, item):
        assert not isinstance(item, pagoda.Gap), item
        if isinstance(item, pagoda.Stored):
            parent = item.parent_hash
            for block in item.blocks:
                self._blocks[item.window_size, block.block_id] = [block.block_hash, parent, block.tokens, int(block.tier), block.priority,
                                                                   block.lower_tiers]
                parent = block.block_hash
        elif isinstance(item, pagoda.Updated):
            entry = self._blocks[item.window_size, item.block_id]
            entry[3:] = [int(item.tier[1]) if item.tier else entry[3], item.priority[1] if item.priority else entry[4],
                         item.lower_tiers[1] if item.lower_tiers else entry[5]]
        elif isinstance(item, pagoda.Removed) and item.whole_window:
            self._blocks = {place: entry for place, entry in self._blocks.items() if place[0] != item.window_size}
        elif isinstance(item, pagoda.Removed) and item.reason != pagoda.RemovalReason.RELEASED:
            for block_id in item.block_ids:
                del self._blocks[item.window_size, block_id]

    def blocks_at(self, revision):
        """All blocks, if the watch is at this revision; otherwise None."""
        with self._lock:
            return {place: list(entry) for place, entry in self._blocks.items()} if self.revision == revision else None

    def close(self):
        self._watch.close()
        self.join(20)

    @staticmethod
    def of(history):
        """The same from a snapshot and the events after it."""
        *_, (_, contents) = trees_of(history)
        return {(size, block_id): [node["hash"], None if node["parent"] is ROOT else node["parent_hash"], node["tokens"], node["tier"],
                                   node["priority"], node["lower"]]
                for size, (nodes, _) in contents.items() for block_id, node in nodes.items()}


def trees_of(history, at=frozenset()):
    """(revision, contents) of the tree that a history describes, at the end of each snapshot and
    stream, and at the requested revisions."""
    for chain in history.chains():
        trees = None  # None until a snapshot begins.
        for stream in chain:
            for number, message in enumerate(stream.messages):
                body = message.body
                if body.snapshot_begin:
                    trees = ShadowTrees()
                    trees.begin_snapshot()
                if trees is None:
                    continue
                for event in body.events:
                    if event.revision and event.revision - 1 in at and not trees.in_snapshot:
                        yield event.revision - 1, trees.contents()
                    trees.apply(event)
                if body.snapshot_end:
                    trees.end_snapshot()
                if not trees.in_snapshot and (body.snapshot_end or body.revision in at or number == len(stream.messages) - 1):
                    yield body.revision, trees.contents()


def blocks_of(history):
    """(revision, {(window, id): (hash, tiers)}) of the cached blocks that a subscriber with a
    filter knows to match the filter, at the end of each snapshot and stream. `tiers` are those of
    the filter that have the block's bytes. A block that comes to one of the filter's tiers is known
    by that event alone."""
    tiers = history.view.tiers or set(types_pb2.Tier.values())
    for chain in history.chains():
        blocks, in_snapshot = None, False
        for stream in chain:
            for number, message in enumerate(stream.messages):
                body = message.body
                if body.snapshot_begin:
                    blocks, in_snapshot = {}, True
                if blocks is None:
                    continue
                for event in body.events:
                    _take(event, blocks, tiers)
                in_snapshot = in_snapshot and not body.snapshot_end
                if not in_snapshot and (body.snapshot_end or number == len(stream.messages) - 1):
                    yield body.revision, dict(blocks)


def _take(event, blocks, tiers):
    if event.HasField("stored"):
        blocks.update((place, (block.block_hash, tiers_of(block) & tiers)) for place, block in zip(bounds(event), event.stored.blocks))
    elif event.updated.HasField("tier") or event.updated.HasField("lower_tiers"):
        (place,) = bounds(event)
        _, known = blocks.pop(place, (None, set()))
        if left := tiers_after(known, event.updated) & tiers:
            blocks[place] = (event.updated.block_hash, left)
    elif event.HasField("removed") and event.removed.reason != events_pb2.REMOVAL_REASON_RELEASED:
        whole = event.removed.scope == events_pb2.REMOVAL_SCOPE_WINDOW
        for place in [place for place in blocks if place[0] == event.window_size] if whole else bounds(event):
            blocks.pop(place, None)  # It can have been in another tier.


def shown_of(contents, view):
    """What blocks_of should have found, of a tree's contents."""
    tiers = view.tiers or set(types_pb2.Tier.values())
    return {(size, block_id): (node["hash"], {node["tier"], *node["lower"]} & tiers)
            for size, (nodes, _) in contents.items() for block_id, node in nodes.items()
            if (view.windows is None or size in view.windows) and {node["tier"], *node["lower"]} & tiers
            and (view.tenants is None or types_pb2.Namespace.FromString(node["namespace"]).tenant in view.tenants)}


def difference(one, other):
    """Where two contents differ, in short."""
    for size in one.keys() | other.keys():
        (nodes, raw), (other_nodes, other_raw) = (side.get(size, ({}, frozenset())) for side in (one, other))
        if nodes != other_nodes:
            return f"window {size}, block {first_difference(nodes, other_nodes)}"
        if raw != other_raw:
            return f"window {size}, raw blocks {sorted(raw ^ other_raw)}"
    return "nowhere"


def first_difference(one, other):
    return next(f"{key}: {one.get(key)} and {other.get(key)}" for key in one.keys() | other.keys() if one.get(key) != other.get(key))
