"""The layout of an engine's pages in the slots of a cache, for any number of ranks.

A slot holds, for each layer, the pages of all ranks: `[piece][head][chunk]`. A piece is a part of
the block that the engine stores as one (its kernels' blocks, or several engine blocks in one block
of the cache). A chunk is one head's bytes in a piece, and is opaque. Each rank of tensor
parallelism has a range of the heads, so two ranks can read pages that one rank wrote. If an
engine's heads are not stored separately, each rank has one "head". Then other numbers of ranks do
not match.
"""

import dataclasses
import hashlib
import json
from collections.abc import Sequence

from pagoda.caches import Layers


@dataclasses.dataclass(frozen=True)
class LayerPages:
    """One rank's part of one layer."""

    name: str
    group: int
    """The engine's KV cache group. The layers of a group share a block table."""
    window: int
    """The attention window in tokens; 0 is full attention."""
    pieces: int
    """The pieces of one engine block."""
    heads: int
    """The heads of this rank."""
    chunk_bytes: int
    """The bytes of one head in one piece."""
    shard: int
    """The range of heads of this rank, out of `shards`. Ranks with the same shard hold the same
    bytes."""
    shards: int
    is_writer: bool
    """Whether this rank saves the shard. One of its replicas does."""
    stored_chunk_bytes: int = 0
    """The bytes of a chunk in a slot, if a Codec converts it; 0: chunk_bytes."""

    @property
    def slot_chunk_bytes(self) -> int:
        return self.stored_chunk_bytes or self.chunk_bytes

    @property
    def block_bytes(self) -> int:
        """The bytes in a slot of one engine block of this rank."""
        return self.pieces * self.heads * self.slot_chunk_bytes


@dataclasses.dataclass(frozen=True)
class RankPages:
    """A worker's report of its memory: its layers, in the order of the model."""

    stage: int
    """The stage of pipeline parallelism."""
    layers: tuple[LayerPages, ...]
    packing: str
    """How the engine's kernels arrange a chunk: the backend's name, its version, the order of the
    axes."""


def _shared(layer: LayerPages) -> tuple[object, ...]:
    """The properties of a layer that all ranks of a stage share."""
    return layer.name, layer.group, layer.window, layer.pieces, layer.heads, layer.chunk_bytes, layer.slot_chunk_bytes, layer.shards


@dataclasses.dataclass(frozen=True)
class PageLayout:
    """The layers of a cache, of all stages and ranks."""

    tokens_per_block: int
    blocks_per_slot: tuple[int, ...]
    """For each group of the engine: how many of its blocks are one block of the cache."""
    group_windows: tuple[int, ...]
    layers: tuple[tuple[str, int, int], ...]
    """(name, window, bytes of one block of the cache), in the order of the model."""
    shapes: tuple[tuple[int, int, int, int], ...]
    """For each layer: pieces of a block of the cache, heads, and bytes of a chunk in a slot and in
    the engine."""
    packing: str

    @classmethod
    def merge(cls, ranks: Sequence[RankPages], block_sizes: Sequence[int]) -> "PageLayout":
        """Merges the reports of all ranks. `block_sizes`: tokens of a block of each group.

        ValueError: the ranks disagree, or the engine's blocks do not fit a cache.
        """
        tokens_per_block = max(block_sizes)
        for size in block_sizes:
            if tokens_per_block % size or tokens_per_block & (tokens_per_block - 1) or tokens_per_block > 1024:
                raise ValueError(f"Pagoda takes blocks of 1 to 1,024 tokens, a power of two; the engine has {list(block_sizes)}: "
                                 "set its block size to 16, 32, 64, 128 or 256")
        blocks_per_slot = tuple(tokens_per_block // size for size in block_sizes)
        stages: dict[int, tuple[LayerPages, ...]] = {}
        for rank in ranks:
            there = stages.setdefault(rank.stage, rank.layers)
            alike = [_shared(layer) for layer in there]
            if alike != [_shared(layer) for layer in rank.layers]:
                raise ValueError("the ranks of a pipeline stage have different layers")
        packings = {rank.packing for rank in ranks}
        if len(packings) != 1:
            raise ValueError(f"the ranks pack their pages in different ways: {', '.join(sorted(packings))}")
        in_order = [layer for stage in sorted(stages) for layer in stages[stage]]
        windows = [0] * len(block_sizes)
        for layer in in_order:
            windows[layer.group] = layer.window
        layers = tuple((layer.name, layer.window, blocks_per_slot[layer.group] * layer.block_bytes * layer.shards) for layer in in_order)
        shapes = tuple((blocks_per_slot[layer.group] * layer.pieces, layer.heads * layer.shards, layer.slot_chunk_bytes, layer.chunk_bytes)
                       for layer in in_order)
        return cls(tokens_per_block, blocks_per_slot, tuple(windows), layers, shapes, packings.pop())

    def cache_layers(self) -> list[Layers]:
        """The layers for open_cache: groups of equal layers."""
        groups: list[Layers] = []
        for _, window, size in self.layers:
            if groups and (groups[-1].window, groups[-1].bytes_per_block) == (window, size):
                groups[-1] = dataclasses.replace(groups[-1], count=groups[-1].count + 1)
            else:
                groups.append(Layers.opaque(1, bytes_per_block=size, window=window))
        return groups

    def digest(self, *more: str) -> str:
        """16 digits that distinguish this layout, together with `more`, from others."""
        facts = [self.tokens_per_block, self.layers, self.shapes, self.packing, *more]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]
