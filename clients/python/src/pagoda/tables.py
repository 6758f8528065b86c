"""A sequence's block tables: where the bytes of its tokens are."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pagoda._extension import native
from pagoda.values import NO_BLOCK, Block


_NO_HANDLES: npt.NDArray[np.uint32] = np.empty((0, 3), np.uint32)


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
        # Entries become Blocks on demand: a connector needs only the slots. They are an array of
        # handles, one row each, if the extension has read all of them; else a list of messages,
        # Blocks and None.
        self._handles: npt.NDArray[np.uint32] | None = _NO_HANDLES
        self._entries: list[Any] = []
        self._are_blocks = True
        # Of the entries; None: not made yet.
        self._slots: npt.NDArray[np.int64] | None = None

    @property
    def blocks(self) -> Sequence[Block | None]:
        """The entries. This is the table's own list: read it, do not change it."""
        self._list()
        if not self._are_blocks:
            self._entries = [entry if entry is None or isinstance(entry, Block) else Block.take(entry) for entry in self._entries]
            self._are_blocks = True
        return self._entries

    @property
    def slots(self) -> npt.NDArray[np.int64]:
        """The slot indexes of the entries; -1 for an empty entry. A copy, in O(entries)."""
        return self._own_slots().copy()

    def token_slots(self, start: int, end: int) -> npt.NDArray[np.int64]:
        """The token slots of the tokens [start, end): slot_index * tokens_per_block + the token's
        position in its block. -1 for an empty entry. IndexError: the table is too short."""
        size = self.tokens_per_block
        if not 0 <= start <= end <= size * len(self):
            raise IndexError(f"tokens [{start}, {end}) in a table of {len(self)} blocks of {size} tokens")
        tokens = np.arange(start, end)
        of_token = self._own_slots()[tokens // size]
        return np.where(of_token < 0, -1, of_token * size + tokens % size)

    def __len__(self) -> int:
        return len(self._entries if self._handles is None else self._handles)

    def __repr__(self) -> str:
        return f"Table(window_size={self.window_size}, blocks={len(self)})"

    def _take(self, message: Any) -> None:
        """Applies a BlockTable, of protobuf or of the extension: it replaces all entries from
        first_block on."""
        if native is None or not isinstance(message, native.BlockTable):
            self._put(message.first_block, message.blocks)
        else:
            self._put_handles(message.first_block, np.frombuffer(message.handles, np.uint32).reshape(-1, 3))

    def _put_blocks(self, first_block: int, blocks: Iterable[Block | None]) -> None:
        if self._handles is None:
            self._put(first_block, blocks)
        else:
            handles = [block or (NO_BLOCK, 0, NO_BLOCK) for block in blocks]
            self._put_handles(first_block, np.array(handles, np.uint32).reshape(-1, 3))

    def _put_handles(self, first_block: int, handles: npt.NDArray[np.uint32]) -> None:
        if self._handles is None:
            self._put(first_block, (Block.of(*handle) for handle in handles.tolist()))
            return
        self._handles = np.concatenate([self._handles[:first_block], handles]) if first_block else handles
        self._slots = None

    def _put(self, first_block: int, entries: Iterable[Any]) -> None:
        """`entries` are Blocks, BlockHandles, or None."""
        self._list()
        new = list(entries)
        self._entries[first_block:] = new
        self._are_blocks = False
        if self._slots is not None:
            self._slots = np.concatenate([self._slots[:first_block], _slots_of(new)])

    def _list(self) -> None:
        """From here on the entries are a list."""
        if self._handles is not None:
            self._entries = [Block.of(*handle) for handle in self._handles.tolist()]
            self._handles = None

    def _own_slots(self) -> npt.NDArray[np.int64]:
        if self._slots is None:
            if self._handles is None:
                self._slots = _slots_of(self._entries)
            else:
                self._slots = self._handles[:, 2].astype(np.int64)
                self._slots[self._slots == NO_BLOCK] = -1
        return self._slots


def _slots_of(entries: Sequence[Any]) -> npt.NDArray[np.int64]:
    slots = np.fromiter((NO_BLOCK if entry is None else entry.slot_index for entry in entries), np.int64, len(entries))
    slots[slots == NO_BLOCK] = -1
    return slots
