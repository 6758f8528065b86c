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


def block_hash(parent_hash, tokens):
    """The published hash of a block, as events/README.md defines it."""
    return xxh3_64(struct.pack(f"<{len(tokens)}I", *tokens), parent_hash)


def namespace_hash(namespace):
    """The hash that the first block of a namespace has for a parent."""
    if not namespace.HasField("lora_id") and not namespace.cache_salt:
        return 0
    head = struct.pack("<BQ", namespace.HasField("lora_id"), namespace.lora_id)
    return xxh3_64(head + namespace.cache_salt.encode(), 0)


@dataclasses.dataclass
class Node:
    parent: object  # A block id, or ROOT.
    namespace: bytes
    tokens: tuple
    hash: int


class ShadowTree:
    """Applies events in order, and checks that each one fits the tree."""

    def __init__(self):
        self.nodes = {}
        self.raw_blocks = set()
        self.removed = {}  # Blocks that left the tree, counted by reason.

    def apply(self, event):
        getattr(self, "_apply_" + event.WhichOneof("event"))(getattr(event, event.WhichOneof("event")))

    def _apply_created(self, created):
        assert not self.raw_blocks & set(created.block_ids)
        self.raw_blocks |= set(created.block_ids)

    def _apply_stored(self, stored):
        parent, parent_hash = ROOT, namespace_hash(stored.namespace)
        if stored.HasField("parent_block_id"):
            parent, parent_hash = stored.parent_block_id, stored.parent_hash
            assert self.nodes[parent].hash == parent_hash
        assert stored.blocks
        for block in stored.blocks:
            assert block.block_id not in self.nodes
            assert block.block_hash == block_hash(parent_hash, block.tokens)
            self.nodes[block.block_id] = Node(
                parent, stored.namespace.SerializeToString(deterministic=True), tuple(block.tokens), block.block_hash)
            parent, parent_hash = block.block_id, block.block_hash

    def _apply_updated(self, updated):
        assert self.nodes[updated.block_id].hash == updated.block_hash

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
        self.removed[removed.reason] = self.removed.get(removed.reason, 0) + count

    def match(self, tokens, tokens_per_block, namespace=b""):
        """How many of `tokens` are cached in whole blocks, or a whole tail at the end; all but the last token at most."""
        matched, parent, limit = 0, ROOT, len(tokens) - 1
        while True:
            rest = tuple(tokens[matched:limit])
            fitting = [(len(node.tokens), block_id) for block_id, node in self.nodes.items()
                       if node.parent == parent and node.namespace == namespace and node.tokens == rest[:len(node.tokens)]]
            longest, block_id = max(fitting, default=(0, ROOT))
            matched += longest
            if longest < tokens_per_block:
                return matched
            parent = block_id
