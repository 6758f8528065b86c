"""Copies between an engine's memory and the mapped pool: by the CPU at once, or by a GPU on streams of its own."""

import abc
import concurrent.futures
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt


PARALLEL_BYTES = 1 << 20  # Less is not worth waking a thread.


def runs(blocks: Sequence[int], slots: Sequence[int]) -> list[tuple[int, int, int]]:
    """(first block, first slot, count): pairs where both go up by one become one copy."""
    found: list[tuple[int, int, int]] = []
    for block, slot in zip(blocks, slots):
        if found and block == found[-1][0] + found[-1][2] and slot == found[-1][1] + found[-1][2]:
            found[-1] = (found[-1][0], found[-1][1], found[-1][2] + 1)
        else:
            found.append((block, slot, 1))
    return found


class Mark(abc.ABC):
    """A place in a stream's work."""

    @abc.abstractmethod
    def is_reached(self) -> bool:
        """Whether all work before it is done. Does not block."""


class Stream(abc.ABC):
    """Work that is done in its order."""

    @abc.abstractmethod
    def mark(self) -> Mark:
        """Here."""

    @abc.abstractmethod
    def wait(self, mark: Mark) -> None:
        """What is given to this stream from now on begins after the mark. Does not block."""


class Mover(abc.ABC):
    """Copies, and the streams on which it does so."""

    compute: Stream
    """The engine's own."""
    loads: Stream
    saves: Stream

    @abc.abstractmethod
    def view(self, memory: Any) -> Any:
        """The engine's memory of a layer as bytes: (blocks, pieces, heads, chunk bytes), without a copy."""

    @abc.abstractmethod
    def register(self, pool: npt.NDArray[np.uint8]) -> Any:
        """A mapped pool, made ready for copies."""

    @abc.abstractmethod
    def copy(self, stream: Stream, target: Any, source: Any) -> None:
        """`target[...] = source`, behind what the stream has."""

    def close(self) -> None:
        """Waits for all copies, and forgets the pools."""


class _Done(Mark):
    def is_reached(self) -> bool:
        return True


class _HostStream(Stream):
    """Copies are collected, and done at a mark: by several threads where they are large, for one does not reach the memory's rate."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._others = concurrent.futures.ThreadPoolExecutor(max(threads - 1, 1), "pagoda-copy")
        self._copies: list[tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]] = []

    def add(self, target: npt.NDArray[np.uint8], source: npt.NDArray[np.uint8]) -> None:
        self._copies.append((target, source))

    def mark(self) -> Mark:
        copies, self._copies = self._copies, []
        threads = min(self._threads, len(copies))
        if threads > 1 and sum(target.nbytes for target, _ in copies) >= threads * PARALLEL_BYTES:
            running = [self._others.submit(_copy_all, copies[first::threads]) for first in range(1, threads)]
            _copy_all(copies[::threads])
            for one in running:
                one.result()
        else:
            _copy_all(copies)
        return _Done()

    def wait(self, mark: Mark) -> None:
        pass


def _copy_all(copies: Sequence[tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]]) -> None:
    for target, source in copies:
        target[...] = source


class HostMover(Mover):
    """For an engine whose memory is the host's. Copies are done when their mark is made."""

    def __init__(self, threads: int | None = None) -> None:
        """`threads`: for large copies; else half of the processors, at most 4. With all of them they wait for the engine's own."""
        threads = threads or max(min((os.cpu_count() or 1) // 2, 4), 1)
        self.compute, self.loads, self.saves = (_HostStream(threads) for _ in range(3))

    def view(self, memory: Any) -> npt.NDArray[np.uint8]:
        return memory  # type: ignore[no-any-return]

    def register(self, pool: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
        return pool

    def copy(self, stream: Stream, target: Any, source: Any) -> None:
        assert isinstance(stream, _HostStream)
        stream.add(target, source)
