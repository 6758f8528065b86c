"""The pools: arrays over the daemon's own memory that holds the KV. Nothing is copied."""

import dataclasses
import functools
import mmap
import os
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pagoda._cuda import DeviceMemory
from pagoda._huge_pages import prepare
from pagoda._map_socket import READ, READ_WRITE, MapSocket, SessionRef
from pagoda.values import MemoryPages, Tier

if TYPE_CHECKING:
    import torch

# By pagoda.v1.DType.
_DTYPES = {1: "float32", 2: "float16", 3: "bfloat16", 4: "fp8_e4m3", 5: "fp8_e5m2", 6: "uint8"}
# The types that every numpy has. bfloat16 and fp8 are represented by their bits.
_BITS: dict[str, type[np.generic]] = {"float32": np.float32, "float16": np.float16, "bfloat16": np.uint16, "fp8_e4m3": np.uint8,
                                      "fp8_e5m2": np.uint8, "uint8": np.uint8}
# Their names in ml_dtypes and in torch.
_FP8 = {"fp8_e4m3": "float8_e4m3fn", "fp8_e5m2": "float8_e5m2"}
# By pagoda.v1.PoolContent. 0 is an older daemon's, which has only elements.
_CONTENTS = {0: "elements", 1: "elements", 2: "scales", 3: "opaque"}

# By pagoda.v1.MemoryKind. 0 is an older daemon's, which has only host memory.
_HOST_MEMORY = (0, 1)
_CUDA_MEMORY = 2


def _memory(segment: Any) -> str:
    if segment.memory_kind in _HOST_MEMORY:
        return "host"
    return f"cuda:{segment.device}" if segment.memory_kind == _CUDA_MEMORY else f"unknown ({segment.memory_kind})"


def _array_dtype(dtype: str) -> np.dtype[Any]:
    """The numpy dtype of a pool's dtype. For fp8 it is ml_dtypes' type if that package is
    installed, otherwise the bits'."""
    if dtype in _FP8:
        try:
            import ml_dtypes
        except ImportError:
            return np.dtype(np.uint8)
        return np.dtype(getattr(ml_dtypes, _FP8[dtype]))
    return np.dtype(_BITS[dtype])


@dataclasses.dataclass(frozen=True)
class Segment:
    """A part of a pool: `size_bytes` bytes at `offset_bytes` of a piece of memory."""

    shm_name: str
    """For people. The memory itself comes over the daemon's map socket."""
    offset_bytes: int
    size_bytes: int
    memory: str = "host"
    """"host", or "cuda:0" for memory of that device, with the daemon's index."""
    device_uuid: bytes = b""
    """The device's 16 bytes of identity. This process finds the device by it."""
    pages: MemoryPages = MemoryPages.UNSPECIFIED
    """The pages of host memory. The segment is a multiple of a page. Slots lie as in plain pages;
    the padding for huge pages is after the last slot."""


class DeviceArray:
    """A pool's bytes on a CUDA device, for packages that use `__cuda_array_interface__` (CuPy,
    Numba, torch.as_tensor), without a copy. It is mapped as long as this object exists.
    `Pool.device_array` makes it.

    The interface is version 3 without a stream: the reader must wait for the ready tickets and for
    the kernels that wrote. bfloat16 and fp8 appear as their bits, int16 and uint8, because the
    interface has no name for them.
    """

    def __init__(self, memory: DeviceMemory, offset_bytes: int, shape: tuple[int, ...], strides: tuple[int, ...], typestr: str,
                 writable: bool) -> None:
        self._memory = memory
        self._offset = offset_bytes
        self.shape = shape
        self.strides = strides
        """Bytes."""
        self.device = memory.device
        """The device's index in this process."""
        self._typestr = typestr
        self._writable = writable

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"shape": self.shape, "strides": self.strides, "typestr": self._typestr, "version": 3,
                "data": (self._memory.address + self._offset, not self._writable)}

    def read_slot(self, slot: int) -> npt.NDArray[np.uint8]:
        """Returns a host copy of one slot's bytes. Does not wait for work that runs on the device.
        Errors: IndexError, CannotMap."""
        return self._memory.read(self._slot(slot), self.strides[0])

    def write_slot(self, slot: int, given: npt.NDArray[Any]) -> None:
        """Copies one slot's bytes, given as an array of any dtype. They are in the slot when the
        call returns. Errors: IndexError, ValueError (another number of bytes, or the memory is
        mapped read-only), CannotMap."""
        given = np.ascontiguousarray(given)
        if given.nbytes != self.strides[0]:
            raise ValueError(f"{given.nbytes} bytes for a slot of {self.strides[0]}")
        self._memory.write(self._slot(slot), given.reshape(-1).view(np.uint8))

    def _slot(self, slot: int) -> int:
        if not 0 <= slot < self.shape[0]:
            raise IndexError(f"slot {slot} of {self.shape[0]}")
        return self._offset + slot * self.strides[0]


@dataclasses.dataclass(frozen=True)
class Pool:
    """A pool of a window in one tier. It has one slot for each block.

    `content` determines the shape of its arrays:
    * "elements": (slots, layers, K and V, KV heads, tokens of a block, head dimension). If the pool
      holds K only, the third extent is 1.
    * "scales": (slots, layers, K and V, KV heads) of float32. The fp8 elements of the pool before
      it (`pool_index` - 1) are multiplied by the scale of the same slot, layer and head when they
      are read, for all tokens of the block.
    * "opaque": (slots, layers, bytes) of uint8, in a packing that only the clients know.

    An array is mapped over the daemon's map socket when it is first used. It stays mapped as long
    as it or this object exists, even after the daemon's end; the memory then belongs to no daemon.
    Errors of the first use: CannotMap (another machine, no map socket, missing permission, a cgroup
    that refuses huge pages, a GPU that this process cannot use), UNKNOWN_SESSION, STALE_SESSION,
    DRAINING; NotImplementedError if the memory is of another kind than the array, or unknown to
    this version.
    """

    window_size: int
    """Tokens; 0 is full attention."""
    pool_index: int
    tier: Tier
    dtype: str
    """"float32", "float16", "bfloat16", "fp8_e4m3", "fp8_e5m2" or "uint8"."""
    layers: tuple[int, ...]
    """The model's layers in this pool, in the order of the arrays' second axis."""
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    """Bytes."""
    segments: tuple[Segment, ...]
    map_socket: MapSocket | None = dataclasses.field(default=None, repr=False, compare=False)
    """The socket through which the session gets the memory."""
    content: str = "elements"
    """"elements", "scales" or "opaque"."""

    @classmethod
    def take(cls, message: Any) -> "Pool":
        dtype = _DTYPES.get(message.dtype, f"unknown ({message.dtype})")
        content = _CONTENTS.get(message.content, f"unknown ({message.content})")
        item = np.dtype(_BITS.get(dtype, np.uint8)).itemsize
        if content == "opaque":
            shape: tuple[int, ...] = (message.num_slots, len(message.layers), message.layer_stride_bytes)
            strides: tuple[int, ...] = (message.slot_stride_bytes, message.layer_stride_bytes, item)
        else:
            shape = (message.num_slots, len(message.layers), message.kv_factor, message.num_kv_heads)
            strides = (message.slot_stride_bytes, message.layer_stride_bytes, message.kv_stride_bytes, message.head_stride_bytes)
            if content != "scales":
                shape += (message.tokens_per_block, message.head_dim)
                strides += (message.token_stride_bytes, item)
        return cls(
            message.window_size, message.pool_index, Tier(message.tier), dtype, tuple(message.layers), shape, strides,
            tuple(Segment(part.shm_name, part.offset_bytes, part.size_bytes, _memory(part), part.device_uuid, MemoryPages(part.pages))
                  for part in message.segments),
            content=content)

    @functools.cached_property
    def array(self) -> npt.NDArray[Any]:
        """The pool's bytes, mapped read-only. Writing raises ValueError, and the kernel also
        prevents it. bfloat16 appears as its bits, uint16. fp8 appears as ml_dtypes' float8_e4m3fn
        or float8_e5m2 if that package is installed, otherwise as its bits, uint8."""
        return self._map(READ)

    @functools.cached_property
    def writable_array(self) -> npt.NDArray[Any]:
        """The pool's bytes, mapped for writing. Write only into slots of your own sequences and
        blocks. If a result has a ready ticket, wait until it is done. Nothing prevents other
        writes; they would change KV that other clients read.

        On the first use, the daemon records this process as a writer. If the session then ends
        without close(), its blocks are quarantined until this process has ended. Each session
        therefore maps for itself, and so does each child process. A child of os.fork or
        multiprocessing inherits this array; it must not write into it, and must not outlive its
        parent. A process without its own session maps under another process's session with
        map_pools.
        """
        return self._map(READ_WRITE)

    @functools.cached_property
    def device_array(self) -> DeviceArray:
        """The pool's bytes on a CUDA device, mapped for writing; the daemon records this process as
        a writer. For pools whose segment's `memory` is "cuda:0". The device is found by its
        identity, so its index under CUDA_VISIBLE_DEVICES can differ from the daemon's."""
        (segment,) = self._known_segments()
        if not segment.memory.startswith("cuda:"):
            raise NotImplementedError(f"the pool is in the memory of {segment.memory}: use array, writable_array or tensor")
        descriptor = self._socket().open(self.window_size, self.pool_index, self.tier, READ_WRITE)
        try:
            memory = DeviceMemory(descriptor, segment.device_uuid, segment.offset_bytes + segment.size_bytes, writable=True)
        finally:
            os.close(descriptor)
        bits = np.dtype(np.int16 if self.dtype == "bfloat16" else _BITS[self.dtype])
        return DeviceArray(memory, segment.offset_bytes, self.shape, self.strides, bits.str, writable=True)

    @functools.cached_property
    def tensor(self) -> "torch.Tensor":
        """The pool's bytes as a torch tensor, mapped for writing, in the pool's own dtype
        (torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2, torch.uint8) and in place: on the
        CPU through writable_array, or on the GPU through device_array. Needs torch, and for fp8 a
        version that has it."""
        import torch

        if self._known_segments()[0].memory == "host":
            bits = self.writable_array
            whole = torch.from_numpy(bits.view(np.int16) if self.dtype == "bfloat16" else bits.view(_BITS[self.dtype]))
        else:
            whole = torch.as_tensor(self.device_array, device=f"cuda:{self.device_array.device}")
        own = _FP8.get(self.dtype, "bfloat16" if self.dtype == "bfloat16" else None)
        return whole if own is None else whole.view(getattr(torch, own))

    def _known_segments(self) -> tuple[Segment]:
        """The single segment of a pool that this version can map."""
        if len(self.segments) != 1 or self.dtype not in _BITS or self.content not in _CONTENTS.values():
            raise NotImplementedError(f"a pool of {len(self.segments)} segments of {self.content} of {self.dtype}: this version maps pools of "
                                      f"one segment of {', '.join(dict.fromkeys(_CONTENTS.values()))} of {', '.join(_BITS)}")
        (segment,) = self.segments
        if segment.memory != "host" and not segment.memory.startswith("cuda:"):
            raise NotImplementedError(f"the pool is in memory of a kind that this version cannot map: {segment.memory}")
        if segment.size_bytes < self.shape[0] * self.strides[0]:
            raise ValueError(f"a segment of {segment.size_bytes} bytes for {self.shape[0]} slots of {self.strides[0]}")
        return (segment,)

    def _socket(self) -> MapSocket:
        if self.map_socket is None:
            raise ValueError("this Pool has no memory: only Client.pools and map_pools make pools with memory")
        return self.map_socket

    def _map(self, access: int) -> npt.NDArray[Any]:
        (segment,) = self._known_segments()
        if segment.memory != "host":
            raise NotImplementedError(f"the pool is in the memory of {segment.memory}, which numpy cannot read: use device_array or tensor, "
                                      "or start the daemon with cache.primary_memory: host")
        descriptor = self._socket().open(self.window_size, self.pool_index, self.tier, access)
        try:
            mapped = mmap.mmap(descriptor, segment.offset_bytes + segment.size_bytes,
                               access=mmap.ACCESS_READ if access == READ else mmap.ACCESS_WRITE)
        finally:
            os.close(descriptor)
        prepare(mapped, segment.pages, writable=access == READ_WRITE)
        return np.ndarray(self.shape, _array_dtype(self.dtype), mapped, segment.offset_bytes, self.strides)


def map_pools(session: SessionRef | bytes, *, tier: Tier | None = None, window_size: int | None = None,
              timeout: float = 10.0) -> tuple[Pool, ...]:
    """Returns the pools, or those of a tier or a window, for a process without its own session,
    such as an engine's worker under the session of its scheduler. Asks only the daemon's map
    socket. Maps nothing yet.

    `session`: the scheduler's Client.session_ref, or its to_bytes(). If such a pool is mapped for
    writing, the daemon records this process as another writer of the session. If the session ends
    without close(), its blocks are quarantined until all writers have ended. `timeout`: seconds to
    wait for each of the daemon's answers, now and when a pool is mapped.
    Errors: CannotMap, UNKNOWN_SESSION, STALE_SESSION, DRAINING; ValueError for bytes that to_bytes
    did not make.
    """
    ref = SessionRef.from_bytes(session) if isinstance(session, bytes) else session
    socket = MapSocket(ref, timeout=timeout)
    return tuple(dataclasses.replace(pool, map_socket=socket) for pool in map(Pool.take, socket.describe())
                 if tier in (None, pool.tier) and window_size in (None, pool.window_size))
