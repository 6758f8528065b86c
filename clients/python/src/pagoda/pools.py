"""The pools: where KV bytes lie, as arrays over the daemon's own memory. Nothing is copied."""

import dataclasses
import functools
import mmap
import os
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pagoda._map_socket import READ, READ_WRITE, MapSocket
from pagoda._huge_pages import prepare
from pagoda.values import MemoryPages, Tier

if TYPE_CHECKING:
    import torch

# By pagoda.v1.DType. numpy has no bfloat16: its bits come as uint16.
_DTYPES = {1: "float32", 2: "float16", 3: "bfloat16"}
_ARRAY_DTYPES: dict[str, type[np.generic]] = {"float32": np.float32, "float16": np.float16, "bfloat16": np.uint16}


_HOST_MEMORY = (0, 1)  # By pagoda.v1.MemoryKind; 0 is a daemon from before there was another.
_CUDA_MEMORY = 2


def _memory(segment: Any) -> str:
    if segment.memory_kind in _HOST_MEMORY:
        return "host"
    return f"cuda:{segment.device}" if segment.memory_kind == _CUDA_MEMORY else f"unknown ({segment.memory_kind})"


@dataclasses.dataclass(frozen=True)
class Segment:
    """A part of a pool: `size_bytes` bytes from `offset_bytes` on of a piece of shared memory."""

    shm_name: str
    """For people. The memory itself comes over the daemon's map socket."""
    offset_bytes: int
    size_bytes: int
    memory: str = "host"
    """"host", or "cuda:0" where it lies on that device of the daemon's: this package maps host memory alone."""
    pages: MemoryPages = MemoryPages.UNSPECIFIED
    """Of host memory. The segment is a multiple of a page: slots lie as in plain pages, and what huge pages add lies behind the last one."""


@dataclasses.dataclass(frozen=True)
class Pool:
    """A pool of a window: one slot for each of its blocks, in one tier.

    Its arrays have the shape (slots, layers, K and V, KV heads, tokens of a block, head dimension); where the pool holds K only, the third
    extent is 1. An array is mapped when it is first asked for, over the daemon's map socket, and stays mapped as long as it or this object
    lives; after the daemon's end it is memory of nobody. Errors of that first time: CannotMap (another machine, no map socket, a user that
    may not, a cgroup that refuses huge pages), UNKNOWN_SESSION, STALE_SESSION, DRAINING.
    """

    window_size: int
    """Tokens; 0 is full attention."""
    pool_index: int
    tier: Tier
    dtype: str
    """"float32", "float16" or "bfloat16"."""
    layers: tuple[int, ...]
    """The model's layers in this pool, in the order of the arrays' second axis."""
    shape: tuple[int, int, int, int, int, int]
    strides: tuple[int, int, int, int, int, int]
    """Bytes."""
    segments: tuple[Segment, ...]
    map_socket: MapSocket | None = dataclasses.field(default=None, repr=False, compare=False)
    """How the session gets the memory."""

    @classmethod
    def take(cls, message: Any) -> "Pool":
        dtype = _DTYPES.get(message.dtype, f"unknown ({message.dtype})")
        return cls(
            message.window_size, message.pool_index, Tier(message.tier), dtype, tuple(message.layers),
            (message.num_slots, len(message.layers), message.kv_factor, message.num_kv_heads, message.tokens_per_block,
             message.head_dim),
            (message.slot_stride_bytes, message.layer_stride_bytes, message.kv_stride_bytes, message.head_stride_bytes,
             message.token_stride_bytes, np.dtype(_ARRAY_DTYPES.get(dtype, np.uint8)).itemsize),
            tuple(Segment(part.shm_name, part.offset_bytes, part.size_bytes, _memory(part), MemoryPages(part.pages)) for part in message.segments))

    @functools.cached_property
    def array(self) -> npt.NDArray[Any]:
        """The pool's bytes, mapped for reading: writing raises ValueError, and the kernel would not let it. bfloat16 comes as its bits,
        uint16."""
        return self._map(READ)

    @functools.cached_property
    def writable_array(self) -> npt.NDArray[Any]:
        """The pool's bytes, mapped for writing. Write into slots of your own sequences and blocks only, and where a result has a ready
        ticket, once that is done: nothing stops other writes, and they change KV that others read.

        Before the first time the daemon notes this process: what the session has when it ends without close() stays out of use until this
        process has ended. So each session maps for itself, and a child process does, too: one that os.fork or multiprocessing made inherits this
        array, must not write into it, and must not outlive its parent.
        """
        return self._map(READ_WRITE)

    @functools.cached_property
    def tensor(self) -> "torch.Tensor":
        """writable_array as a tensor of torch, on the CPU and over the same bytes, of the pool's own dtype; needs torch."""
        import torch

        if self.dtype == "bfloat16":
            return torch.from_numpy(self.writable_array.view(np.int16)).view(torch.bfloat16)
        return torch.from_numpy(self.writable_array)

    def _map(self, access: int) -> npt.NDArray[Any]:
        if len(self.segments) != 1 or self.dtype not in _ARRAY_DTYPES:
            raise NotImplementedError(f"a pool of {len(self.segments)} segments of {self.dtype}: this version maps pools of one "
                                      f"segment of {', '.join(_ARRAY_DTYPES)}")
        if (memory := self.segments[0].memory) != "host":
            raise NotImplementedError(f"the pool lies in the memory of {memory}, and this package maps host memory alone: clients/cpp (MapPools) "
                                      "maps a GPU's, or the daemon is started with cache.primary_memory: host")
        if self.map_socket is None:
            raise ValueError("a Pool that Client.pools did not make has no memory")
        (segment,) = self.segments
        descriptor = self.map_socket.open(self.window_size, self.pool_index, self.tier, access)
        try:
            mapped = mmap.mmap(descriptor, segment.offset_bytes + segment.size_bytes,
                               access=mmap.ACCESS_READ if access == READ else mmap.ACCESS_WRITE)
        finally:
            os.close(descriptor)
        prepare(mapped, segment.pages, writable=access == READ_WRITE)
        return np.ndarray(self.shape, _ARRAY_DTYPES[self.dtype], mapped, segment.offset_bytes, self.strides)
