"""Copies between a CUDA device and the mapped pool, on separate streams. Needs torch.

tests/gpu/test_connector.py checks them on a GPU, byte by byte.
tests/e2e/python/test_python_connector.py tests the order of copies without a GPU, with streams that
work at random times.
"""

import math
import mmap
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from pagoda._cuda import copy_all, page_lock, page_unlock
from pagoda.connector.movers import Mark, Mover, Places, Stream

# Some drivers refuse to register a larger range at once.
REGISTERED_AT_ONCE = 64 << 30
# The engine's bytes that are converted at once. Python takes about as long to begin a small
# conversion as a large one. During a conversion of 16-bit KV, loads and saves each need about five
# times as much device memory.
CONVERTED_AT_ONCE = 16 << 20
# The copies that are given to the driver at once. It copies them while the next ones are listed.
COPIES_AT_ONCE = 512


def pieces(address: int, slots: int, slot_bytes: int, most: int) -> Iterator[tuple[int, int]]:
    """Yields (address, size) of parts of a pool, each of about `most` bytes. Each part is whole
    slots, because a copy must not cross two registrations, and whole pages, because CUDA does not
    register a page twice. The last part can be shorter."""
    in_whole_pages = mmap.PAGESIZE // math.gcd(slot_bytes, mmap.PAGESIZE)
    at_once = max(most // slot_bytes // in_whole_pages, 1) * in_whole_pages
    for first in range(0, slots, at_once):
        yield address + first * slot_bytes, min(at_once, slots - first) * slot_bytes


def contiguous(target: torch.Tensor, source: torch.Tensor) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], int]:
    """Returns (offsets in the target, offsets in the source, bytes) of the contiguous parts of two
    byte arrays of the same shape."""
    shape = list(target.shape)
    size = 1
    while shape and all(array.stride(len(shape) - 1) == size or shape[-1] == 1 for array in (target, source)):
        size *= shape.pop()
    indices = np.indices(shape, np.int64).reshape(len(shape), math.prod(shape))

    def offsets(array: torch.Tensor) -> npt.NDArray[np.int64]:
        return np.asarray(array.stride()[:len(shape)], np.int64) @ indices

    return offsets(target), offsets(source), size


def _addresses(places: Places, blocks: Sequence[int]) -> npt.NDArray[np.int64]:
    rows, within = np.divmod(np.asarray(blocks, np.int64), places.per_row)
    array = places.array
    return array.data_ptr() + rows * array.stride(0) + within * (places.pieces * array.stride(1))  # type: ignore[no-any-return]


class _Event(Mark):
    def __init__(self, stream: torch.cuda.Stream) -> None:
        self.event = torch.cuda.Event()
        self.event.record(stream)

    def is_reached(self) -> bool:
        return bool(self.event.query())


class _CudaStream(Stream):
    """A stream of copies. Copies are collected and given to the driver in groups."""

    def __init__(self, stream: torch.cuda.Stream, device: int) -> None:
        self.stream = stream
        self._device = device
        # Addresses of targets and sources, and sizes in bytes.
        self._copies: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]] = []
        self._count = 0
        self._kept: list[torch.Tensor] = []  # The sources of the copies, kept alive.

    def add(self, targets: npt.NDArray[np.int64], sources: npt.NDArray[np.int64], size: int, kept: torch.Tensor | None = None) -> None:
        self._copies.append((targets, sources, np.full(targets.size, size, np.int64)))
        if kept is not None:
            self._kept.append(kept)
        self._count += targets.size
        if self._count >= COPIES_AT_ONCE:
            self.begin()

    def mark(self) -> Mark:
        self.begin()
        return _Event(self.stream)

    def wait(self, mark: Mark) -> None:
        assert isinstance(mark, _Event)
        self.begin()
        self.stream.wait_event(mark.event)

    def begin(self) -> None:
        copies, self._copies, self._count = self._copies, [], 0
        if copies:
            targets, sources, sizes = (np.concatenate(column).astype(np.uint64) for column in zip(*copies))
            copy_all(self._device, self.stream.cuda_stream, targets, sources, sizes)
        # These tensors were made on this stream, so their memory is reused only after the copies.
        self._kept.clear()

    def drop(self) -> None:
        self._copies, self._count = [], 0
        self._kept.clear()


class _Compute(Stream):
    """The engine's current stream."""

    def mark(self) -> Mark:
        return _Event(torch.cuda.current_stream())

    def wait(self, mark: Mark) -> None:
        assert isinstance(mark, _Event)
        torch.cuda.current_stream().wait_event(mark.event)


class CudaMover(Mover):
    """For an engine whose memory is on `device`."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._index = torch.cuda.current_device() if device.index is None else device.index
        self.compute = _Compute()
        self.loads = _CudaStream(torch.cuda.Stream(device), self._index)
        self.saves = _CudaStream(torch.cuda.Stream(device), self._index)
        # By the pool's address: the addresses of its pieces.
        self._registered: dict[int, list[int]] = {}

    def view(self, memory: Any) -> torch.Tensor:
        return memory  # type: ignore[no-any-return]

    def register(self, pool: npt.NDArray[np.uint8]) -> torch.Tensor:
        whole = torch.from_numpy(pool)
        assert whole.data_ptr() % mmap.PAGESIZE == 0
        locked = self._registered.setdefault(whole.data_ptr(), [])
        try:
            for address, length in pieces(whole.data_ptr(), pool.shape[0], pool.strides[0], REGISTERED_AT_ONCE):
                page_lock(self._index, address, length)
                locked.append(address)
        except BaseException:
            self.unregister(whole)
            raise
        return whole

    def unregister(self, pool: Any) -> None:
        self.loads.stream.synchronize()
        self.saves.stream.synchronize()
        for address in self._registered.pop(pool.data_ptr(), ()):
            page_unlock(self._index, address)

    def copy_blocks(self, stream: Stream, target: Places, targets: Sequence[int], source: Places, sources: Sequence[int],
                    convert: Callable[[Any], Any] | None = None) -> None:
        assert isinstance(stream, _CudaStream)
        if convert is None:
            self._add(stream, target, targets, source, sources)
            return
        at_once = max(CONVERTED_AT_ONCE // (source if source.array.is_cuda else target).blocks(0, 1).numel(), 1)
        with torch.cuda.stream(stream.stream):
            for first in range(0, len(sources), at_once):
                self._convert(stream, target, targets[first:first + at_once], source, sources[first:first + at_once], convert)

    def _convert(self, stream: _CudaStream, target: Places, targets: Sequence[int], source: Places, sources: Sequence[int],
                 convert: Callable[[Any], Any]) -> None:
        """Converts on the device, in both directions."""
        assert (source if source.array.is_cuda else target).per_row == 1
        if source.array.is_cuda:
            made = convert(source.array[self._on_device(sources)])
            self._add(stream, target, targets, Places(made, source.pieces), range(len(sources)), made)
            stream.begin()
        else:
            made = torch.empty((len(sources), *source.blocks(0, 1).shape[1:]), dtype=torch.uint8, device=self._device)
            self._add(stream, Places(made, source.pieces), range(len(sources)), source, sources, made)
            stream.begin()
            target.array[self._on_device(targets)] = convert(made)

    def _add(self, stream: _CudaStream, target: Places, targets: Sequence[int], source: Places, sources: Sequence[int],
             kept: torch.Tensor | None = None) -> None:
        target_offsets, source_offsets, size = contiguous(target.blocks(0, 1)[0], source.blocks(0, 1)[0])
        stream.add(np.add.outer(_addresses(target, targets), target_offsets).reshape(-1),
                   np.add.outer(_addresses(source, sources), source_offsets).reshape(-1), size, kept)

    def _on_device(self, indices: Sequence[int]) -> torch.Tensor:
        return torch.tensor(list(indices), dtype=torch.int64).pin_memory().to(self._device, non_blocking=True)

    def close(self) -> None:
        self.loads.stream.synchronize()
        self.saves.stream.synchronize()
        for addresses in self._registered.values():
            for address in addresses:
                page_unlock(self._index, address)
        self._registered.clear()
