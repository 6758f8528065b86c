"""An engine's pages, and their copies to and from the slots of a cache."""

import abc
import concurrent.futures
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pagoda.connector.movers import runs

Bytes = npt.NDArray[np.uint8]

# The least that one thread copies: for less, waking another thread costs more than it saves.
_PIECE = 2 << 20


class PageMemory(abc.ABC):
    """Pages of equal size, each with a number. A slot holds the bytes of one page in an order that
    the implementation fixes."""

    page_bytes: int

    @abc.abstractmethod
    def load(self, slots: Bytes, pages: Sequence[int], places: Sequence[int]) -> None:
        """Copies `slots[places[i]]` into page `pages[i]`. `slots`: (slots, page_bytes)."""

    @abc.abstractmethod
    def save(self, slots: Bytes, pages: Sequence[int], places: Sequence[int]) -> None:
        """Copies page `pages[i]` into `slots[places[i]]`."""


class ArrayPages(PageMemory):
    """Pages in arrays of bytes, in any place and order. Neighbours are one copy."""

    def __init__(self, *parts: Bytes) -> None:
        """`parts`: views of the engine's memory whose first axis is the page number. A slot holds
        the page's bytes of each part, part by part, in the order of the part's axes."""
        self._parts: list[tuple[Bytes, int, int]] = []
        end = 0
        for part in parts:
            size = math.prod(part.shape[1:])
            self._parts.append((part, end, end + size))
            end += size
        self.page_bytes = end

    def load(self, slots: Bytes, pages: Sequence[int], places: Sequence[int]) -> None:
        for part, inside in self._views(slots):
            for page, place, count in runs(pages, places):
                part[page:page + count] = inside[place:place + count]

    def save(self, slots: Bytes, pages: Sequence[int], places: Sequence[int]) -> None:
        for part, inside in self._views(slots):
            for page, place, count in runs(pages, places):
                inside[place:place + count] = part[page:page + count]

    def _views(self, slots: Bytes) -> Iterator[tuple[Bytes, Bytes]]:
        """Yields each part and the slots in its shape. These are views, because the last axis of
        the slots is contiguous."""
        for part, start, end in self._parts:
            yield part, slots[:, start:end].reshape(slots.shape[0], *part.shape[1:])


class Buffers(PageMemory):
    """Pages that are separate buffers: page i is `buffers[i]`."""

    def __init__(self, buffers: Sequence[Any]) -> None:
        """`buffers`: arguments of numpy.frombuffer, all of the same size."""
        self._buffers = [np.frombuffer(buffer, np.uint8) for buffer in buffers]
        sizes = {buffer.nbytes for buffer in self._buffers}
        if len(sizes) > 1:
            raise ValueError(f"pages of different sizes: {sorted(sizes)}")
        self.page_bytes = sizes.pop() if sizes else 0

    def load(self, slots: Bytes, pages: Sequence[int], places: Sequence[int]) -> None:
        for page, place in zip(pages, places):
            self._buffers[page][:] = slots[place]

    def save(self, slots: Bytes, pages: Sequence[int], places: Sequence[int]) -> None:
        for page, place in zip(pages, places):
            slots[place] = self._buffers[page]


class Copier:
    """Copies pages with several threads, because one does not reach the memory's bandwidth.
    Thread-safe."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._others = concurrent.futures.ThreadPoolExecutor(max(threads - 1, 1), "pagoda-copy")

    def copy(self, copy: Callable[[Bytes, Sequence[int], Sequence[int]], None], slots: Bytes, pages: Sequence[int],
             places: Sequence[int]) -> None:
        """`copy`: the load or the save of a PageMemory. Raises the error of a thread when all
        threads have ended."""
        size = -(-len(pages) // max(min(self._threads, len(pages) * slots.shape[1] // _PIECE), 1))
        parts = [(slots, pages[first:first + size], places[first:first + size]) for first in range(0, len(pages), size or 1)]
        running = [self._others.submit(copy, *part) for part in parts[1:]]
        try:
            for part in parts[:1]:
                copy(*part)
        finally:
            concurrent.futures.wait(running)
        for done in running:
            done.result()

    def close(self) -> None:
        self._others.shutdown(wait=False)
