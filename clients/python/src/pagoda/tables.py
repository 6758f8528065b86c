"""A sequence's block tables: where the bytes of its tokens are."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

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
        # Entries arrive as messages and are converted to Blocks on demand: a connector needs only
        # the slots.
        self._entries: list[Any] = []
        self._are_blocks = True
        self._slots = np.empty(0, np.int64)

    @property
    def blocks(self) -> Sequence[Block | None]:
        """The entries. This is the table's own list: read it, do not change it."""
        if not self._are_blocks:
            self._entries = [entry if entry is None or isinstance(entry, Block) else Block.take(entry) for entry in self._entries]
            self._are_blocks = True
        return self._entries

    @property
    def slots(self) -> npt.NDArray[np.int64]:
        """The slot indexes of the entries; -1 for an empty entry. A copy, in O(entries)."""
        return self._slots.copy()

    def token_slots(self, start: int, end: int) -> npt.NDArray[np.int64]:
        """The token slots of the tokens [start, end): slot_index * tokens_per_block + the token's
        position in its block. -1 for an empty entry. IndexError: the table is too short."""
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
        """Applies a BlockTable: it replaces all entries from first_block on."""
        self._put(message.first_block, message.blocks)

    def _put(self, first_block: int, entries: Iterable[Any]) -> None:
        """`entries` are Blocks, BlockHandles, or None."""
        new = list(entries)
        slots = np.fromiter((NO_BLOCK if entry is None else entry.slot_index for entry in new), np.int64, len(new))
        slots[slots == NO_BLOCK] = -1
        self._entries[first_block:] = new
        self._slots = np.concatenate([self._slots[:first_block], slots])
        self._are_blocks = False
