"""Copies between a CUDA device and the mapped pool, on streams of their own. Needs torch.

No GPU has run this file yet. The order of copies is tested with streams that do their work at random times, in
tests/e2e/test_python_connector.py.
"""

import logging
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from pagoda.connector.movers import Mark, Mover, Stream

log = logging.getLogger("pagoda.connector")

# Above this, some drivers refuse to register a range at once.
REGISTERED_AT_ONCE = 64 << 30
# cudaHostRegisterPortable: for each context of the process.
_PORTABLE = 1

BatchCopy = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], None]
"""Copies sizes[i] bytes from the address sources[i] to targets[i] on the current stream: (sources, targets, sizes), int64 on the CPU."""


def pieces(address: int, slots: int, slot_bytes: int, most: int = REGISTERED_AT_ONCE) -> Iterator[tuple[int, int]]:
    """(address, size) of parts of whole slots, of at most `most` bytes: a copy must not cross two registrations."""
    at_once = max(most // slot_bytes, 1)
    for first in range(0, slots, at_once):
        yield address + first * slot_bytes, min(at_once, slots - first) * slot_bytes


def fragments(target: torch.Tensor, source: torch.Tensor) -> Iterator[tuple[int, int, int]]:
    """(source address, target address, bytes) of the contiguous parts of two arrays of bytes of one shape."""
    shape = list(target.shape)
    inner = 1
    while shape and all(array.stride(len(shape) - 1) == inner for array in (target, source)):
        inner *= shape.pop()
    outer = len(shape)
    for index in np.ndindex(*shape):
        yield (source.data_ptr() + sum(i * source.stride(axis) for axis, i in zip(range(outer), index)),
               target.data_ptr() + sum(i * target.stride(axis) for axis, i in zip(range(outer), index)), inner)


class _Event(Mark):
    def __init__(self, stream: torch.cuda.Stream) -> None:
        self.event = torch.cuda.Event()
        self.event.record(stream)

    def is_reached(self) -> bool:
        return bool(self.event.query())


class _CudaStream(Stream):
    """A stream of copies, which are given to the device in batches: at a mark, and before a wait."""

    def __init__(self, stream: torch.cuda.Stream, batch_copy: BatchCopy | None) -> None:
        self.stream = stream
        self._batch_copy = batch_copy
        self._copies: list[tuple[torch.Tensor, torch.Tensor]] = []

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        self._copies.append((target, source))

    def mark(self) -> Mark:
        self._flush()
        return _Event(self.stream)

    def wait(self, mark: Mark) -> None:
        assert isinstance(mark, _Event)
        self._flush()
        self.stream.wait_event(mark.event)

    def _flush(self) -> None:
        copies, self._copies = self._copies, []
        if not copies:
            return
        with torch.cuda.stream(self.stream):
            if self._batch_copy is not None:
                rows = torch.tensor([row for copy in copies for row in fragments(*copy)], dtype=torch.int64)
                self._batch_copy(*(rows[:, column].contiguous() for column in range(3)))
                return
            for target, source in copies:
                target.copy_(source, non_blocking=True)


class _Compute(Stream):
    """The engine's own stream, whichever is current."""

    def mark(self) -> Mark:
        return _Event(torch.cuda.current_stream())

    def wait(self, mark: Mark) -> None:
        assert isinstance(mark, _Event)
        torch.cuda.current_stream().wait_event(mark.event)


class CudaMover(Mover):
    """For an engine whose memory lies on `device`."""

    def __init__(self, device: torch.device, batch_copy: BatchCopy | None = None) -> None:
        """`batch_copy`: gives many copies to the device in one call, where the engine has such a function."""
        self._device = device
        self.compute = _Compute()
        self.loads = _CudaStream(torch.cuda.Stream(device), batch_copy)
        self.saves = _CudaStream(torch.cuda.Stream(device), batch_copy)
        self._registered: list[int] = []

    def view(self, memory: Any) -> torch.Tensor:
        return memory  # type: ignore[no-any-return]

    def register(self, pool: npt.NDArray[np.uint8]) -> torch.Tensor:
        whole = torch.from_numpy(pool)
        cudart = torch.cuda.cudart()
        for address, length in pieces(pool.ctypes.data, pool.shape[0], pool.strides[0]):
            failed = int(cudart.cudaHostRegister(address, length, _PORTABLE))
            if failed:  # CUDA remembers the error, and torch would raise it at some later place.
                raise OSError(f"CUDA does not take {length} bytes of the pool as page-locked memory: error {failed}")
            self._registered.append(address)
        return whole

    def copy(self, stream: Stream, target: torch.Tensor, source: torch.Tensor) -> None:
        assert isinstance(stream, _CudaStream)
        stream.copy(target, source)

    def close(self) -> None:
        torch.cuda.synchronize(self._device)
        for address in self._registered:
            torch.cuda.cudart().cudaHostUnregister(address)
        self._registered.clear()
