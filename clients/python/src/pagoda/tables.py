"""A sequence's block tables: where the bytes of its tokens are."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pagoda._rows import rows
from pagoda.values import NO_BLOCK, Block


class Table:
    """The blocks of a sequence in one window, in token order: token t is in entry t //
    tokens_per_block.

    An entry that a sliding window passed before the sequence was opened is None. An entry that it
    passes later keeps its old value until Sequence.describe updates the tables. Do not use its
    slot.
    """

    def __init__(self, window_size: int, tokens_per_block: int) -> None:
        self.window_size = window_size
        """Tokens; 0 is full attention."""
        self.tokens_per_block = tokens_per_block
        # Handles. The first `_count` rows are the entries. The others are space to grow.
        self._rows: npt.NDArray[np.uint32] = np.empty((0, 3), np.uint32)
        self._count = 0
        # The entries; None: not made yet. A connector needs only the slots.
        self._blocks: tuple[Block | None, ...] | None = None

    @property
    def blocks(self) -> Sequence[Block | None]:
        """The entries now. O(entries) after a change."""
        if self._blocks is None:
            self._blocks = tuple(Block.of(*handle) for handle in self._rows[:self._count].tolist())
        return self._blocks

    @property
    def slots(self) -> npt.NDArray[np.int64]:
        """The slot indexes of the entries; -1 for an empty entry. A copy, in O(entries)."""
        return self._slots(0, self._count)

    def token_slots(self, start: int, end: int) -> npt.NDArray[np.int64]:
        """The token slots of the tokens [start, end): slot_index * tokens_per_block + the token's
        position in its block. -1 for an empty entry. IndexError: the table is too short."""
        size = self.tokens_per_block
        if not 0 <= start <= end <= size * len(self):
            raise IndexError(f"tokens [{start}, {end}) in a table of {len(self)} blocks of {size} tokens")
        tokens, first = np.arange(start, end), start // size
        of_token = self._slots(first, -(-end // size))[tokens // size - first]
        return np.where(of_token < 0, -1, of_token * size + tokens % size)

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        return f"Table(window_size={self.window_size}, blocks={len(self)})"

    def _take(self, message: Any) -> None:
        """Applies a v1.BlockTable."""
        self._put(message.first_block, rows(message.blocks))

    def _put(self, first_block: int, handles: npt.NDArray[np.uint32]) -> None:
        """Replaces all entries from first_block on. O(handles), amortized."""
        first = min(first_block, self._count)
        end = first + len(handles)
        if end > len(self._rows):
            grown = np.empty((max(end, 2 * len(self._rows)), 3), np.uint32)
            grown[:first] = self._rows[:first]
            self._rows = grown
        self._rows[first:end] = handles
        self._count = end
        self._blocks = None

    def _slots(self, first: int, end: int) -> npt.NDArray[np.int64]:
        """The slots of the entries [first, end)."""
        slots = self._rows[first:end, 2].astype(np.int64)
        slots[slots == NO_BLOCK] = -1
        return slots
