"""Copies between an engine's memory and the mapped pool: by the CPU at once, or by a GPU on
separate streams."""

import abc
import concurrent.futures
import dataclasses
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

PARALLEL_BYTES = 1 << 20  # A smaller copy is not worth another thread.


def runs(blocks: Sequence[int], slots: Sequence[int]) -> list[tuple[int, int, int]]:
    """Yields (first block, first slot, count): pairs in which both numbers increase by one become
    one copy."""
    found: list[tuple[int, int, int]] = []
    for block, slot in zip(blocks, slots):
        if found and block == found[-1][0] + found[-1][2] and slot == found[-1][1] + found[-1][2]:
            found[-1] = (found[-1][0], found[-1][1], found[-1][2] + 1)
        else:
            found.append((block, slot, 1))
    return found


class Mark(abc.ABC):
    """A position in a stream's work."""

    @abc.abstractmethod
    def is_reached(self) -> bool:
        """Whether all work before the mark is done. Does not block."""


class Stream(abc.ABC):
    """Work that is done in order."""

    @abc.abstractmethod
    def mark(self) -> Mark:
        """A mark at the stream's current end."""

    @abc.abstractmethod
    def wait(self, mark: Mark) -> None:
        """Later work of this stream begins after the mark. Does not block."""

    def begin(self) -> None:
        """Begins the collected copies. Raises the error of a failed copy. Other copies may have run
        then; the rest is dropped."""

    def drop(self) -> None:
        """Drops the collected copies that have not begun."""


@dataclasses.dataclass(frozen=True)
class Places:
    """The places of a layer's blocks. Row r holds the blocks r * per_row to (r + 1) * per_row - 1,
    each as `pieces` entries of axis 1."""

    array: Any
    """Bytes: (rows, per_row * pieces, heads, chunk bytes). The last axis is contiguous."""
    pieces: int
    per_row: int = 1

    def blocks(self, first: int, count: int) -> Any:
        """Returns (count, pieces, heads, chunk bytes), without a copy. `count` can be above 1 only
        if a row is one block."""
        assert count == 1 or self.per_row == 1
        row, place = divmod(first, self.per_row)
        return self.array[row:row + count, place * self.pieces:(place + 1) * self.pieces]


class Codec(abc.ABC):
    """Another form of a chunk, in which slots hold it."""

    name: str
    """Distinguishes this form from others in a cache's identity."""

    @abc.abstractmethod
    def stored_bytes(self, chunk_bytes: int) -> int:
        """The bytes of a chunk in a slot. ValueError: chunks of this size have no such form."""

    @abc.abstractmethod
    def encode(self, chunks: Any) -> Any:
        """Converts chunks (..., chunk bytes) to the slots' form (..., stored bytes). Returns a new
        array of the same kind."""

    @abc.abstractmethod
    def decode(self, stored: Any) -> Any:
        """Converts to the engine's form. Returns a new array."""


class Mover(abc.ABC):
    """Makes copies, on its streams."""

    compute: Stream
    """The engine's own stream."""
    loads: Stream
    saves: Stream

    @abc.abstractmethod
    def view(self, memory: Any) -> Any:
        """The engine's memory of a layer as bytes: (blocks, pieces, heads, chunk bytes), without a
        copy."""

    @abc.abstractmethod
    def register(self, pool: npt.NDArray[np.uint8]) -> Any:
        """Prepares a mapped pool for copies. Can take seconds. Can be called from another thread
        than the copies."""

    def unregister(self, pool: Any) -> None:
        """Undoes `register`; `pool` is its result. Call it after all copies have ended."""

    @abc.abstractmethod
    def copy_blocks(self, stream: Stream, target: Places, targets: Sequence[int], source: Places, sources: Sequence[int],
                    convert: Callable[[Any], Any] | None = None) -> None:
        """Copies block sources[i] to block targets[i], converted with `convert`, a function of a
        Codec, if it is given. The copies come after the stream's earlier work. All have begun at
        the next mark."""

    def close(self) -> None:
        """Waits for all copies, and forgets the pools."""


class ArrayMover(Mover):
    """Copies arrays. Blocks that are adjacent on both sides are one copy."""

    @abc.abstractmethod
    def copy(self, stream: Stream, target: Any, source: Any, convert: Callable[[Any], Any] | None = None) -> None:
        """`target[...] = source`, converted with `convert` if given, after the stream's earlier
        work."""

    def copy_blocks(self, stream: Stream, target: Places, targets: Sequence[int], source: Places, sources: Sequence[int],
                    convert: Callable[[Any], Any] | None = None) -> None:
        if target.per_row == source.per_row == 1:
            pairs = runs(targets, sources)
        else:
            pairs = [(target_block, source_block, 1) for target_block, source_block in zip(targets, sources)]
        for target_block, source_block, count in pairs:
            self.copy(stream, target.blocks(target_block, count), source.blocks(source_block, count), convert)


# Target, source, and the conversion.
_Copy = tuple[Any, Any, Callable[[Any], Any] | None]


class _Done(Mark):
    def is_reached(self) -> bool:
        return True


class _HostStream(Stream):
    """Collects copies and makes them when they begin. Large ones use several threads, because one
    thread does not reach the memory's bandwidth."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._others = concurrent.futures.ThreadPoolExecutor(max(threads - 1, 1), "pagoda-copy")
        self._copies: list[_Copy] = []

    def add(self, *copy: Any) -> None:
        self._copies.append(copy)

    def begin(self) -> None:
        copies, self._copies = self._copies, []
        threads = min(self._threads, len(copies))
        if threads > 1 and sum(target.nbytes for target, *_ in copies) >= threads * PARALLEL_BYTES:
            running = [self._others.submit(_copy_all, copies[first::threads]) for first in range(1, threads)]
            try:
                _copy_all(copies[::threads])
            finally:
                concurrent.futures.wait(running)
            for one in running:
                one.result()
        else:
            _copy_all(copies)

    def drop(self) -> None:
        self._copies = []

    def mark(self) -> Mark:
        self.begin()
        return _Done()

    def wait(self, mark: Mark) -> None:
        pass


def _copy_all(copies: Sequence[_Copy]) -> None:
    for target, source, convert in copies:
        target[...] = source if convert is None else convert(source)


class HostMover(ArrayMover):
    """For an engine whose memory is on the host. The copies are done when their mark is made."""

    def __init__(self, threads: int | None = None) -> None:
        """`threads`: for large copies; default: half of the processors, at most 4. With more, they
        would wait for the engine's own threads."""
        threads = threads or max(min((os.cpu_count() or 1) // 2, 4), 1)
        self.compute, self.loads, self.saves = (_HostStream(threads) for _ in range(3))

    def view(self, memory: Any) -> npt.NDArray[np.uint8]:
        return memory  # type: ignore[no-any-return]

    def register(self, pool: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
        return pool

    def copy(self, stream: Stream, target: Any, source: Any, convert: Callable[[Any], Any] | None = None) -> None:
        assert isinstance(stream, _HostStream)
        stream.add(target, source, convert)
