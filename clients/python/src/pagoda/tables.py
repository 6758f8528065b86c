"""A sequence's block tables: where its tokens' bytes lie."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pagoda.values import Block


class Table:
    """The blocks of a sequence in one window, in token order: token t lives in entry t // tokens_per_block.

    An entry that a sliding window passed before the sequence was opened is None. One that it passes later stays as it was until
    Sequence.describe fetches the tables anew: do not touch its slot.
    """

    def __init__(self, window_size: int, tokens_per_block: int) -> None:
        self.window_size = window_size
        """Tokens; 0 is full attention."""
        self.tokens_per_block = tokens_per_block
        self._blocks: list[Block | None] = []

    @property
    def blocks(self) -> Sequence[Block | None]:
        """The entries. The sequence's own list: read it, do not change it."""
        return self._blocks

    @property
    def slots(self) -> npt.NDArray[np.int64]:
        """The entries' slot indexes; -1 for an empty entry. A copy, in O(entries)."""
        return np.array([-1 if block is None else block.slot_index for block in self._blocks], np.int64)

    def token_slots(self, start: int, end: int) -> npt.NDArray[np.int64]:
        """The token slots of the tokens [start, end): slot_index * tokens_per_block + the token's place in its block. -1 where the entry is
        empty. IndexError: the table does not reach that far."""
        size = self.tokens_per_block
        if not 0 <= start <= end <= size * len(self._blocks):
            raise IndexError(f"tokens [{start}, {end}) in a table of {len(self._blocks)} blocks of {size} tokens")
        first = start // size
        part = self._blocks[first:-(-end // size)]
        slots = np.array([-1 if block is None else block.slot_index for block in part], np.int64)
        tokens = np.arange(start, end)
        of_token = slots[tokens // size - first]
        return np.where(of_token < 0, -1, of_token * size + tokens % size)

    def __len__(self) -> int:
        return len(self._blocks)

    def __repr__(self) -> str:
        return f"Table(window_size={self.window_size}, blocks={len(self._blocks)})"

    def _take(self, message: Any) -> None:
        """Applies a BlockTable: entries from first_block on are other ones, and there are none after."""
        self._put(message.first_block, (Block.take(handle) for handle in message.blocks))

    def _put(self, first_block: int, blocks: Iterable[Block | None]) -> None:
        self._blocks[first_block:] = blocks
