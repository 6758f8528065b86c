"""The prefix tree, rebuilt from nothing but the events: what a router would keep."""

import ctypes
import dataclasses
import struct

from pagoda.v1 import events_pb2

_xxhash = ctypes.CDLL("libxxhash.so.0")
_xxhash.XXH3_64bits_withSeed.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint64]
_xxhash.XXH3_64bits_withSeed.restype = ctypes.c_uint64

ROOT = None


def xxh3_64(data, seed):
    return _xxhash.XXH3_64bits_withSeed(data, len(data), seed)


def block_hash(parent_hash, block):
    """The published hash of a StoredBlock, as events/README.md defines it."""
    if block.key:
        return xxh3_64(struct.pack("<I64s", len(block.key), block.key), parent_hash)
    data = struct.pack(f"<{len(block.tokens)}I", *block.tokens)
    if block.extra_token_ids:
        data += struct.pack(f"<B{len(block.tokens)}Q", 1, *block.extra_token_ids)
    for item in block.multimodal_items:
        data += struct.pack("<BIII32s", 2, item.token_start, item.token_count, item.item_offset, item.digest)
    return xxh3_64(data, parent_hash)


def namespace_hash(namespace):
    """The hash that the first block of a namespace has for a parent."""
    if not namespace.HasField("lora_id") and not namespace.cache_salt and not namespace.tenant and not namespace.keyed:
        return 0
    flags = namespace.HasField("lora_id") + 2 * bool(namespace.tenant) + 4 * namespace.keyed
    name = struct.pack("<BQ", flags, namespace.lora_id)
    if namespace.tenant:
        name += struct.pack("<I", len(namespace.tenant.encode())) + namespace.tenant.encode()
    return xxh3_64(name + namespace.cache_salt.encode(), 0)


def common_tokens(one, other):
    """How many first tokens the two share."""
    differing = (i for i, (a, b) in enumerate(zip(one, other)) if a != b)
    return next(differing, min(len(one), len(other)))


@dataclasses.dataclass
class Node:
    parent: object  # A block id or ROOT.
    namespace: bytes
    tokens: tuple
    hash: int
    tier: int  # The nearest tier. The number of TIER_PRIMARY is below that of TIER_SECOND.
    priority: int
    parent_hash: int  # The namespace's hash at the root.
    lower: tuple  # Farther tiers with a copy.


class ShadowTree:
    """Applies the events of one window of a cache in order, and checks that each one fits the tree.
    Full attention, unless `sliding`: then a block may leave while its children stay."""

    def __init__(self, sliding=False):
        self.sliding = sliding
        self.nodes = {}
        self.children = {}  # By the parent's id: the ids of its cached children. In a sliding window the parent can be gone.
        self.raw_blocks = set()
        self.removed = {}  # Removed blocks, counted by reason.
        self.in_snapshot = False

    def begin_snapshot(self):
        """What comes until end_snapshot may tell of blocks before their parents."""
        self.__init__(self.sliding)
        self.in_snapshot = True

    def end_snapshot(self):
        self.in_snapshot = False
        for node in self.nodes.values():
            self._check_below_parent(node)

    def apply(self, event):
        getattr(self, "_apply_" + event.WhichOneof("event"))(getattr(event, event.WhichOneof("event")))

    def contents(self):
        """The present tree, in a form that can be compared: the cached content by block id, and the
        raw blocks."""
        return ({block_id: dict(vars(node)) for block_id, node in self.nodes.items()}, frozenset(self.raw_blocks))

    def _check_below_parent(self, node):
        """A parent has the hash that the event names. In full attention it is cached, and not in a
        farther tier."""
        if node.parent is ROOT:
            return
        parent = self.nodes.get(node.parent)
        assert parent is not None or self.sliding, f"{node} has no parent"
        assert parent is None or parent.hash == node.parent_hash, f"{node} is not below {parent}"
        assert self.sliding or parent.tier <= node.tier, f"{node} is nearer than {parent}"

    @staticmethod
    def _check_copies(node):
        """Copies below are in farther tiers than the nearest one, in each at most once."""
        tiers = (node.tier, *node.lower)
        assert all(nearer < farther for nearer, farther in zip(tiers, node.lower)), f"{node} has copies out of order"

    def _apply_created(self, created):
        assert not self.raw_blocks & set(created.block_ids)
        self.raw_blocks |= set(created.block_ids)

    def _apply_stored(self, stored):
        parent, parent_hash = ROOT, namespace_hash(stored.namespace)
        if stored.HasField("parent_block_id"):
            parent, parent_hash = stored.parent_block_id, stored.parent_hash
        assert stored.blocks
        for block in stored.blocks:
            assert block.block_id not in self.nodes, f"block {block.block_id} is cached already"
            assert bool(block.key) == stored.namespace.keyed, f"block {block.block_id} has a key, or its namespace has keys, but not both"
            assert not block.key or not block.tokens, f"block {block.block_id} has a key and tokens"
            assert block.block_hash == block_hash(parent_hash, block), f"block {block.block_id} has another hash"
            named = tuple(block.key or block.tokens)
            node = Node(parent, stored.namespace.SerializeToString(deterministic=True), named, block.block_hash, block.tier, block.priority,
                        parent_hash, tuple(block.lower_tiers))
            self._check_copies(node)
            if not self.in_snapshot:
                self._check_below_parent(node)
                for child in self.children.get(block.block_id, ()):  # The block was removed and is stored again.
                    assert self.nodes[child].parent_hash == block.block_hash, f"block {block.block_id} is not the parent of its children"
            self.nodes[block.block_id] = node
            self.raw_blocks.discard(block.block_id)  # With events.lifecycle: all, it has every allocated block.
            self.children.setdefault(parent, set()).add(block.block_id)
            parent, parent_hash = block.block_id, block.block_hash

    def _apply_updated(self, updated):
        node = self.nodes[updated.block_id]
        assert node.hash == updated.block_hash
        changes = any(updated.HasField(field) for field in ("tier", "lower_tiers", "priority"))
        assert changes != updated.HasField("ended_pin")
        if updated.HasField("lower_tiers"):
            assert node.lower == tuple(updated.lower_tiers.old_value) != tuple(updated.lower_tiers.new_value)
            node.lower = tuple(updated.lower_tiers.new_value)
        if updated.HasField("tier"):
            assert node.tier == updated.tier.old_value
            node.tier = updated.tier.new_value
            if not self.in_snapshot and not self.sliding:
                self._check_below_parent(node)
                assert all(self.nodes[child].tier >= node.tier for child in self.children.get(updated.block_id, ()))
        if updated.HasField("priority"):
            assert node.priority == updated.priority.old_value
            node.priority = updated.priority.new_value
        self._check_copies(node)

    def _apply_removed(self, removed):
        if removed.scope == events_pb2.REMOVAL_SCOPE_POOLS:
            self.nodes.clear()
            self.children.clear()
            self.raw_blocks.clear()
            return
        if removed.reason == events_pb2.REMOVAL_REASON_RELEASED:
            assert set(removed.block_ids) <= self.raw_blocks
            self.raw_blocks -= set(removed.block_ids)
            return
        if removed.scope == events_pb2.REMOVAL_SCOPE_WINDOW:
            count = len(self.nodes)
            self.nodes.clear()
            self.children.clear()
        else:
            count = len(removed.block_ids)
            assert len(removed.block_hashes) == count
            for block_id, removed_hash in zip(removed.block_ids, removed.block_hashes):
                node = self.nodes.pop(block_id)
                assert node.hash == removed_hash
                self._forget_child(node.parent, block_id)
            if not self.in_snapshot and not self.sliding:
                assert not any(block_id in self.children for block_id in removed.block_ids), "a block is removed before its children"
        self.removed[removed.reason] = self.removed.get(removed.reason, 0) + count

    def _forget_child(self, parent, block_id):
        siblings = self.children[parent]
        siblings.remove(block_id)
        if not siblings:
            del self.children[parent]

    def match(self, tokens, tokens_per_block, namespace=b""):
        """How many of `tokens`, which have no extra ids, are cached in sequence: at most all but
        the last token."""
        matched, parent, limit = 0, ROOT, len(tokens) - 1
        while True:
            rest = tokens[matched:limit]
            shared = [(common_tokens(node.tokens, rest), block_id) for block_id, node in self.nodes.items()
                      if node.parent == parent and node.namespace == namespace]
            longest, block_id = max(shared, default=(0, ROOT))
            matched += longest
            if longest < tokens_per_block:
                return matched
            parent = block_id


class ShadowTrees:
    """The trees of all windows of a cache, by window size."""

    def __init__(self):
        self.windows = {}
        self.in_snapshot = False

    def begin_snapshot(self):
        self.windows = {}
        self.in_snapshot = True

    def end_snapshot(self):
        self.in_snapshot = False
        for tree in self.windows.values():
            tree.end_snapshot()

    def apply(self, event):
        tree = self.windows.get(event.window_size)
        if tree is None:
            tree = self.windows[event.window_size] = ShadowTree(sliding=event.window_size != 0)
            tree.in_snapshot = self.in_snapshot
        tree.apply(event)

    def contents(self):
        """A form that can be compared: see ShadowTree.contents. An empty window equals one that no
        event named."""
        told = {size: tree.contents() for size, tree in self.windows.items()}
        return {size: contents for size, contents in told.items() if contents[0] or contents[1]}
