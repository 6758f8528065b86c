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
    data = struct.pack(f"<{len(block.tokens)}I", *block.tokens)
    if block.extra_token_ids:
        data += struct.pack(f"<B{len(block.tokens)}Q", 1, *block.extra_token_ids)
    for item in block.multimodal_items:
        data += struct.pack("<BIII32s", 2, item.token_start, item.token_count, item.item_offset, item.digest)
    return xxh3_64(data, parent_hash)


def namespace_hash(namespace):
    """The hash that the first block of a namespace has for a parent."""
    if not namespace.HasField("lora_id") and not namespace.cache_salt and not namespace.tenant:
        return 0
    name = struct.pack("<BQ", namespace.HasField("lora_id") + 2 * bool(namespace.tenant), namespace.lora_id)
    if namespace.tenant:
        name += struct.pack("<I", len(namespace.tenant.encode())) + namespace.tenant.encode()
    return xxh3_64(name + namespace.cache_salt.encode(), 0)


def common_tokens(one, other):
    """How many first tokens the two share."""
    differing = (i for i, (a, b) in enumerate(zip(one, other)) if a != b)
    return next(differing, min(len(one), len(other)))


@dataclasses.dataclass
class Node:
    parent: object  # A block id, or ROOT.
    namespace: bytes
    tokens: tuple
    hash: int
    tier: int  # TIER_PRIMARY is below TIER_SECONDARY.
    priority: int
    parent_hash: int  # The namespace's at the root.


class ShadowTree:
    """Applies the events of a cache with full attention in order, and checks that each one fits the tree."""

    def __init__(self):
        self.nodes = {}
        self.raw_blocks = set()
        self.removed = {}  # Blocks that left the tree, counted by reason.
        self.in_snapshot = False

    def begin_snapshot(self):
        """What comes until end_snapshot may tell of blocks before their parents."""
        self.__init__()
        self.in_snapshot = True

    def end_snapshot(self):
        self.in_snapshot = False
        for node in self.nodes.values():
            assert node.parent is ROOT or self.nodes[node.parent].tier <= node.tier
            assert node.parent is ROOT or self.nodes[node.parent].hash == node.parent_hash

    def apply(self, event):
        getattr(self, "_apply_" + event.WhichOneof("event"))(getattr(event, event.WhichOneof("event")))

    def _apply_created(self, created):
        assert not self.raw_blocks & set(created.block_ids)
        self.raw_blocks |= set(created.block_ids)

    def _apply_stored(self, stored):
        parent, parent_hash = ROOT, namespace_hash(stored.namespace)
        if stored.HasField("parent_block_id"):
            parent, parent_hash = stored.parent_block_id, stored.parent_hash
            assert self.in_snapshot or self.nodes[parent].hash == parent_hash
        assert stored.blocks
        for block in stored.blocks:
            assert block.block_id not in self.nodes
            assert block.block_hash == block_hash(parent_hash, block)
            assert self.in_snapshot or parent is ROOT or block.tier >= self.nodes[parent].tier
            self.nodes[block.block_id] = Node(parent, stored.namespace.SerializeToString(deterministic=True),
                                              tuple(block.tokens), block.block_hash, block.tier, block.priority, parent_hash)
            parent, parent_hash = block.block_id, block.block_hash

    def _apply_updated(self, updated):
        node = self.nodes[updated.block_id]
        assert node.hash == updated.block_hash
        assert updated.HasField("tier") or updated.HasField("priority")
        if updated.HasField("tier"):
            assert node.tier == updated.tier.old_value
            node.tier = updated.tier.new_value
            if self.in_snapshot:
                return self._set_priority(node, updated)
            assert node.parent is ROOT or node.tier >= self.nodes[node.parent].tier
            assert all(child.tier >= node.tier for child in self.nodes.values() if child.parent == updated.block_id)
        self._set_priority(node, updated)

    @staticmethod
    def _set_priority(node, updated):
        if updated.HasField("priority"):
            assert node.priority == updated.priority.old_value
            node.priority = updated.priority.new_value

    def _apply_removed(self, removed):
        if removed.reason == events_pb2.REMOVAL_REASON_RELEASED:
            assert set(removed.block_ids) <= self.raw_blocks
            self.raw_blocks -= set(removed.block_ids)
            return
        if removed.scope == events_pb2.REMOVAL_SCOPE_WINDOW:
            count = len(self.nodes)
            self.nodes.clear()
        else:
            count = len(removed.block_ids)
            assert len(removed.block_hashes) == count
            for block_id, removed_hash in zip(removed.block_ids, removed.block_hashes):
                assert self.nodes.pop(block_id).hash == removed_hash
            assert self.in_snapshot or not {node.parent for node in self.nodes.values()} & set(removed.block_ids)
        self.removed[removed.reason] = self.removed.get(removed.reason, 0) + count

    def match(self, tokens, tokens_per_block, namespace=b""):
        """How many of `tokens`, which have no extras, are cached one after another; all but the last token at most."""
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
