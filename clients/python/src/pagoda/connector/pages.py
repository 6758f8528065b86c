"""How an engine's pages lie in the slots of a cache, for any number of ranks.

A slot holds, for each layer, the pages of all ranks: `[piece][head][chunk]`. A piece is a part of the block that the
engine stores as one (its kernels' blocks, or several engine blocks in one block of the cache). A chunk is what one head
has in a piece, as opaque bytes. A rank of tensor parallelism has a range of the heads, so what one rank wrote two ranks
can read. Engines whose heads do not lie apart have one "head" for each rank; other numbers of ranks then do not match.
"""

import dataclasses
import hashlib
import json
from collections.abc import Sequence

from pagoda.caches import Layers


@dataclasses.dataclass(frozen=True)
class LayerPages:
    """What one rank has of one layer."""

    name: str
    group: int
    """The engine's KV cache group: layers of one group share a block table."""
    window: int
    """Of attention, in tokens; 0 is full attention."""
    pieces: int
    """Of one engine block."""
    heads: int
    """Of this rank."""
    chunk_bytes: int
    """Of one head in one piece."""
    shard: int
    """Which range of heads this rank has, of `shards`. Ranks with the same shard hold the same bytes."""
    shards: int
    is_writer: bool
    """Whether this rank saves the shard: one of its replicas does."""
    stored_chunk_bytes: int = 0
    """Of a chunk in a slot, where a Codec makes it another form; 0: chunk_bytes."""

    @property
    def slot_chunk_bytes(self) -> int:
        return self.stored_chunk_bytes or self.chunk_bytes

    @property
    def block_bytes(self) -> int:
        """Of one engine block of this rank in a slot."""
        return self.pieces * self.heads * self.slot_chunk_bytes


@dataclasses.dataclass(frozen=True)
class RankPages:
    """What a worker says of itself when it has its memory: its layers, in the order of the model."""

    stage: int
    """Of pipeline parallelism."""
    layers: tuple[LayerPages, ...]
    packing: str
    """How the engine's kernels arrange a chunk: the backend's name, its version, the order of the axes."""


def _shared(layer: LayerPages) -> tuple[object, ...]:
    """What all ranks of a stage have of a layer."""
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
    """Of each layer: pieces of a block of the cache, heads, bytes of a chunk in a slot and in the engine."""
    packing: str

    @classmethod
    def merge(cls, ranks: Sequence[RankPages], block_sizes: Sequence[int]) -> "PageLayout":
        """Of the reports of all ranks. `block_sizes`: tokens of a block of each group.

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
        """For open_cache: runs of layers that are alike."""
        groups: list[Layers] = []
        for _, window, size in self.layers:
            if groups and (groups[-1].window, groups[-1].bytes_per_block) == (window, size):
                groups[-1] = dataclasses.replace(groups[-1], count=groups[-1].count + 1)
            else:
                groups.append(Layers.opaque(1, bytes_per_block=size, window=window))
        return groups

    def digest(self, *more: str) -> str:
        """16 digits that tell this layout, and `more`, from others."""
        facts = [self.tokens_per_block, self.layers, self.shapes, self.packing, *more]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]
