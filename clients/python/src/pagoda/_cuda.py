"""Maps memory of a CUDA device that the daemon exports, with the driver's own calls. Needs only
libcuda.so.1."""

import ctypes
import functools
import threading
import weakref
from typing import Any

import grpc
import numpy as np
import numpy.typing as npt

from pagoda.errors import CannotMap, Details

# From cuda.h.
_POSIX_FILE_DESCRIPTOR = 1
_PINNED = 1
_ON_DEVICE = 1
_PROT_READ, _PROT_READ_WRITE = 1, 3
_GRANULARITY_MINIMUM = 0
_IN_STREAM_ORDER = 1
_FOR_ALL_CONTEXTS = 1


class _Location(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]


class _AllocationFlags(ctypes.Structure):
    _fields_ = [("compression_type", ctypes.c_ubyte), ("gpu_direct_rdma", ctypes.c_ubyte), ("usage", ctypes.c_ushort),
                ("reserved", ctypes.c_ubyte * 4)]


class _AllocationProperties(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("handle_types", ctypes.c_int), ("location", _Location), ("win32", ctypes.c_void_p),
                ("flags", _AllocationFlags)]


class _Access(ctypes.Structure):
    _fields_ = [("location", _Location), ("flags", ctypes.c_int)]


class _CopyAttributes(ctypes.Structure):
    _fields_ = [("source_access_order", ctypes.c_int), ("source_hint", _Location), ("target_hint", _Location), ("flags", ctypes.c_uint)]


_Address = ctypes.c_uint64  # CUdeviceptr.
_Handle = ctypes.c_uint64  # CUmemGenericAllocationHandle.

# By exported name, with the types of the arguments. All return a CUresult.
_CALLS: dict[str, tuple[Any, ...]] = {
    "cuGetErrorName": (ctypes.c_int, ctypes.POINTER(ctypes.c_char_p)),
    "cuInit": (ctypes.c_uint,),
    "cuDeviceGetCount": (ctypes.POINTER(ctypes.c_int),),
    "cuDeviceGetUuid_v2": (ctypes.c_char_p, ctypes.c_int),
    "cuDevicePrimaryCtxRetain": (ctypes.POINTER(ctypes.c_void_p), ctypes.c_int),
    "cuDevicePrimaryCtxRelease_v2": (ctypes.c_int,),
    "cuCtxPushCurrent_v2": (ctypes.c_void_p,),
    "cuCtxPopCurrent_v2": (ctypes.POINTER(ctypes.c_void_p),),
    "cuMemGetAllocationGranularity": (ctypes.POINTER(ctypes.c_size_t), ctypes.POINTER(_AllocationProperties), ctypes.c_int),
    "cuMemImportFromShareableHandle": (ctypes.POINTER(_Handle), ctypes.c_void_p, ctypes.c_int),
    "cuMemRelease": (_Handle,),
    "cuMemAddressReserve": (ctypes.POINTER(_Address), ctypes.c_size_t, ctypes.c_size_t, _Address, ctypes.c_ulonglong),
    "cuMemAddressFree": (_Address, ctypes.c_size_t),
    "cuMemMap": (_Address, ctypes.c_size_t, ctypes.c_size_t, _Handle, ctypes.c_ulonglong),
    "cuMemUnmap": (_Address, ctypes.c_size_t),
    "cuMemSetAccess": (_Address, ctypes.c_size_t, ctypes.POINTER(_Access), ctypes.c_size_t),
    "cuMemcpyHtoD_v2": (_Address, ctypes.c_void_p, ctypes.c_size_t),
    "cuMemcpyDtoH_v2": (ctypes.c_void_p, _Address, ctypes.c_size_t),
    "cuStreamSynchronize": (ctypes.c_void_p,),
    "cuMemHostRegister_v2": (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint),
    "cuMemHostUnregister": (ctypes.c_void_p,),
    "cuMemcpyAsync": (_Address, _Address, ctypes.c_size_t, ctypes.c_void_p),
}
# Only in CUDA 13 and later.
_CALLS_IF_THERE: dict[str, tuple[Any, ...]] = {
    "cuMemcpyBatchAsync_v2": (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.POINTER(_CopyAttributes),
                              ctypes.POINTER(ctypes.c_size_t), ctypes.c_size_t, ctypes.c_void_p),
}


def _cannot(why: str) -> CannotMap:
    return CannotMap(Details(grpc.StatusCode.UNAVAILABLE, why))


class _Driver:
    """CUDA's driver, initialised."""

    def __init__(self) -> None:
        try:
            library = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise _cannot(f"no CUDA driver: {error}") from None
        for name, arguments in _CALLS.items():
            try:
                function = getattr(library, name)
            except AttributeError as error:
                raise _cannot(f"the CUDA driver is too old: {error}") from None
            function.argtypes, function.restype = arguments, ctypes.c_int
            setattr(self, name, function)
        for name, arguments in _CALLS_IF_THERE.items():
            function = getattr(library, name, None)
            if function is not None:
                function.argtypes, function.restype = arguments, ctypes.c_int
            setattr(self, name, function)
        self.call("cuInit", 0)

    def call(self, name: str, *arguments: Any) -> None:
        """Errors: CannotMap with the call and the driver's name of the error."""
        result = getattr(self, name)(*arguments)
        if result == 0:
            return
        text = ctypes.c_char_p()
        if getattr(self, "cuGetErrorName")(result, ctypes.byref(text)) != 0 or text.value is None:
            raise _cannot(f"{name}: an unknown error, {result}")
        raise _cannot(f"{name}: {text.value.decode()}")

    def find(self, uuid: bytes) -> int:
        """The index in this process of the device with that identity."""
        count = ctypes.c_int()
        self.call("cuDeviceGetCount", ctypes.byref(count))
        found = ctypes.create_string_buffer(16)
        for device in range(count.value):
            self.call("cuDeviceGetUuid_v2", found, device)
            if found.raw == uuid:
                return device
        raise _cannot("this process does not see the pool's device (CUDA_VISIBLE_DEVICES)")


# A failure is not cached: the next call looks for the driver again.
_driver = functools.cache(_Driver)


class _Current:
    """Makes the device's context current in this thread for the `with` block."""

    def __init__(self, driver: _Driver, context: Any) -> None:
        self._driver, self._context = driver, context

    def __enter__(self) -> None:
        self._driver.call("cuCtxPushCurrent_v2", self._context)

    def __exit__(self, *error: object) -> None:
        self._driver.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))  # type: ignore[attr-defined]


class _Mapping:
    """Resources that must be released, in the order in which they were taken."""

    def __init__(self, driver: _Driver, device: int) -> None:
        self._driver = driver
        self._device = device
        self.context = ctypes.c_void_p()
        self._undo: list[tuple[str, tuple[Any, ...]]] = []
        driver.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), device)
        self._released = threading.Lock()

    def taken(self, undo: str, *arguments: Any) -> None:
        self._undo.append((undo, arguments))

    def release(self) -> None:
        """Releases everything, once. At the end of the process the driver may already be gone; then
        every call fails, which is harmless."""
        if not self._released.acquire(blocking=False):
            return
        if self._driver.cuCtxPushCurrent_v2(self.context) == 0:  # type: ignore[attr-defined]
            for name, arguments in reversed(self._undo):
                getattr(self._driver, name)(*arguments)
            self._driver.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))  # type: ignore[attr-defined]
        self._driver.cuDevicePrimaryCtxRelease_v2(self._device)  # type: ignore[attr-defined]


@functools.cache
def _primary_context(device: int) -> _Current:
    """A device's primary context, which CUDA's runtime also uses. It is kept until the process
    ends."""
    context = ctypes.c_void_p()
    _driver().call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    return _Current(_driver(), context)


def page_lock(device: int, address: int, size_bytes: int) -> None:
    """Page-locks host memory, so that all devices can copy from and to it directly. CUDA's runtime
    is not informed. Errors: CannotMap, as of DeviceMemory."""
    with _primary_context(device):
        _driver().call("cuMemHostRegister_v2", address, size_bytes, _FOR_ALL_CONTEXTS)


def page_unlock(device: int, address: int) -> None:
    with _primary_context(device):
        _driver().call("cuMemHostUnregister", address)


def copy_all(device: int, stream: int, targets: npt.NDArray[np.uint64], sources: npt.NDArray[np.uint64], sizes: npt.NDArray[np.uint64]) -> None:
    """Begins copies of sizes[i] bytes from sources[i] to targets[i] on a stream of the device that
    is not the null stream. The addresses are of the device or of page-locked memory. Errors:
    CannotMap, as of DeviceMemory."""
    if not len(sizes):
        return
    driver = _driver()
    targets, sources, sizes = (np.ascontiguousarray(column, np.uint64) for column in (targets, sources, sizes))
    with _primary_context(device):
        if getattr(driver, "cuMemcpyBatchAsync_v2") is None:
            for target, source, size in zip(targets.tolist(), sources.tolist(), sizes.tolist()):
                driver.call("cuMemcpyAsync", target, source, size, stream)
            return
        attributes, first = _CopyAttributes(_IN_STREAM_ORDER), ctypes.c_size_t(0)
        driver.call("cuMemcpyBatchAsync_v2", targets.ctypes.data, sources.ctypes.data, sizes.ctypes.data, len(sizes),
                    ctypes.byref(attributes), ctypes.byref(first), 1, stream)


class DeviceMemory:
    """`size_bytes` bytes of a device, mapped as long as this object exists. Thread-safe."""

    def __init__(self, descriptor: int, uuid: bytes, size_bytes: int, writable: bool) -> None:
        """Does not take over the descriptor: the caller closes it.

        `uuid`: the device's 16 bytes of identity. Errors: CannotMap (no driver, a device that this
        process does not see, a failed call).
        """
        self._driver = _driver()
        self.device = self._driver.find(uuid)
        """The device's index in this process."""
        self.size_bytes = size_bytes
        self._writable = writable
        mapping = _Mapping(self._driver, self.device)
        self._context = mapping.context
        self._finalizer = weakref.finalize(self, mapping.release)
        try:
            with _Current(self._driver, self._context):
                self.address = self._map(descriptor, mapping)
        except BaseException:
            self._finalizer()
            raise

    def _map(self, descriptor: int, mapping: _Mapping) -> int:
        call = self._driver.call
        properties = _AllocationProperties(_PINNED, _POSIX_FILE_DESCRIPTOR, _Location(_ON_DEVICE, self.device))
        granule = ctypes.c_size_t()
        call("cuMemGetAllocationGranularity", ctypes.byref(granule), ctypes.byref(properties), _GRANULARITY_MINIMUM)
        allocated = -(-self.size_bytes // granule.value) * granule.value
        handle = _Handle()
        # The driver expects the descriptor's number instead of a pointer.
        call("cuMemImportFromShareableHandle", ctypes.byref(handle), ctypes.c_void_p(descriptor), _POSIX_FILE_DESCRIPTOR)
        mapping.taken("cuMemRelease", handle)
        address = _Address()
        call("cuMemAddressReserve", ctypes.byref(address), allocated, 0, 0, 0)
        mapping.taken("cuMemAddressFree", address, allocated)
        call("cuMemMap", address, allocated, 0, handle, 0)
        mapping.taken("cuMemUnmap", address, allocated)
        access = _Access(_Location(_ON_DEVICE, self.device), _PROT_READ_WRITE if self._writable else _PROT_READ)
        call("cuMemSetAccess", address, allocated, ctypes.byref(access), 1)
        return address.value

    def read(self, offset_bytes: int, count: int) -> npt.NDArray[np.uint8]:
        """Returns a copy of `count` bytes. Does not wait for work that runs on the device."""
        self._check(offset_bytes, count)
        taken = np.empty(count, np.uint8)
        with _Current(self._driver, self._context):
            self._driver.call("cuMemcpyDtoH_v2", taken.ctypes.data, self.address + offset_bytes, count)
        return taken

    def write(self, offset_bytes: int, given: npt.NDArray[np.uint8]) -> None:
        """Copies contiguous bytes. They are in place when the call returns."""
        self._check(offset_bytes, given.nbytes)
        if not self._writable:
            raise ValueError("the memory is mapped read-only")
        with _Current(self._driver, self._context):
            self._driver.call("cuMemcpyHtoD_v2", self.address + offset_bytes, given.ctypes.data, given.nbytes)
            # The call returns when it has read the bytes. Non-blocking streams and other processes
            # do not wait for the null stream, so synchronize it.
            self._driver.call("cuStreamSynchronize", None)

    def _check(self, offset_bytes: int, count: int) -> None:
        if offset_bytes < 0 or count < 0 or offset_bytes + count > self.size_bytes:
            raise IndexError(f"bytes {offset_bytes} to {offset_bytes + count} of {self.size_bytes}")
