"""A sequence's block tables: where its tokens' bytes lie."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pagoda.values import NO_BLOCK, Block


class Table:
    """The blocks of a sequence in one window, in token order: token t lives in entry t // tokens_per_block.

    An entry that a sliding window passed before the sequence was opened is None. One that it passes later stays as it was until
    Sequence.describe fetches the tables anew: do not touch its slot.
    """

    def __init__(self, window_size: int, tokens_per_block: int) -> None:
        self.window_size = window_size
        """Tokens; 0 is full attention."""
        self.tokens_per_block = tokens_per_block
        # Entries come as messages and become Blocks where somebody looks: a connector reads the slots alone.
        self._entries: list[Any] = []
        self._are_blocks = True
        self._slots = np.empty(0, np.int64)

    @property
    def blocks(self) -> Sequence[Block | None]:
        """The entries. The sequence's own list: read it, do not change it."""
        if not self._are_blocks:
            self._entries = [entry if entry is None or isinstance(entry, Block) else Block.take(entry) for entry in self._entries]
            self._are_blocks = True
        return self._entries

    @property
    def slots(self) -> npt.NDArray[np.int64]:
        """The entries' slot indexes; -1 for an empty entry. A copy, in O(entries)."""
        return self._slots.copy()

    def token_slots(self, start: int, end: int) -> npt.NDArray[np.int64]:
        """The token slots of the tokens [start, end): slot_index * tokens_per_block + the token's place in its block. -1 where the entry is
        empty. IndexError: the table does not reach that far."""
        size = self.tokens_per_block
        if not 0 <= start <= end <= size * len(self._entries):
            raise IndexError(f"tokens [{start}, {end}) in a table of {len(self._entries)} blocks of {size} tokens")
        tokens = np.arange(start, end)
        of_token = self._slots[tokens // size]
        return np.where(of_token < 0, -1, of_token * size + tokens % size)

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"Table(window_size={self.window_size}, blocks={len(self._entries)})"

    def _take(self, message: Any) -> None:
        """Applies a BlockTable: entries from first_block on are other ones, and there are none after."""
        self._put(message.first_block, message.blocks)

    def _put(self, first_block: int, entries: Iterable[Any]) -> None:
        """The entries are Blocks, BlockHandles, or None."""
        new = list(entries)
        slots = np.fromiter((NO_BLOCK if entry is None else entry.slot_index for entry in new), np.int64, len(new))
        slots[slots == NO_BLOCK] = -1
        self._entries[first_block:] = new
        self._slots = np.concatenate([self._slots[:first_block], slots])
        self._are_blocks = False
