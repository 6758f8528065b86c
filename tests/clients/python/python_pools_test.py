"""The Python package maps pools of every content and dtype from the test's own map socket. The
tests compare the bytes and check the session in the request. Tests of GPU memory use the driver of
tests/pools/fake_cuda (PAGODA_FAKE_CUDA), and skip without it.
"""

import ctypes
import os
import pickle
import socket
import subprocess
import sys
import threading
import time
import types

import numpy as np
import pagoda
import pytest
from pagoda import _cuda
from pagoda._contract import v1

READ, READ_WRITE = 1, 2
FLOAT32, FLOAT16, BFLOAT16, E4M3, E5M2, UINT8 = range(1, 7)
ELEMENTS, SCALES, OPAQUE = 1, 2, 3
SESSION = {"session_id": 7, "token": (1 << 63) + 5, "token_high": 11}
UUID = bytes(range(16))


def mapping(index, dtype, content, strides, memory_kind=1, **fields):
    """A PoolMapping of 3 slots, whose strides are those of a slot, a layer, K or V, a head and a
    token."""
    names = ("slot_stride_bytes", "layer_stride_bytes", "kv_stride_bytes", "head_stride_bytes", "token_stride_bytes")
    segment = v1.MappingSegment(shm_name=f"/pool{index}", size_bytes=3 * strides[0], num_slots=3, memory_kind=memory_kind, device_uuid=UUID)
    return v1.PoolMapping(pool_index=index, tier=1, dtype=dtype, content=content, num_slots=3, tokens_per_block=4, segments=[segment],
                          **dict(zip(names, strides)), **fields)


# K and V of 2 layers, 2 heads, 8 elements, in fp8; their scales; a layer of latents; 2 opaque
# layers of 13 bytes; one layer of bytes by token.
POOLS = [
    mapping(0, E4M3, ELEMENTS, (256, 128, 64, 32, 8), layers=[0, 1], kv_factor=2, num_kv_heads=2, head_dim=8),
    mapping(1, FLOAT32, SCALES, (32, 16, 8, 4, 0), layers=[0, 1], kv_factor=2, num_kv_heads=2),
    mapping(2, BFLOAT16, ELEMENTS, (48, 48, 48, 48, 12), layers=[2], kv_factor=1, num_kv_heads=1, head_dim=6),
    mapping(3, UINT8, OPAQUE, (26, 13, 13, 0, 0), layers=[3, 4], kv_factor=1),
    mapping(4, UINT8, ELEMENTS, (64, 64, 32, 32, 8), layers=[5], kv_factor=2, num_kv_heads=1, head_dim=8),
    mapping(5, E5M2, ELEMENTS, (64, 64, 32, 32, 8), layers=[6], kv_factor=2, num_kv_heads=1, head_dim=8),
]


class MapSocketOfTheTest:
    """Serves `pools` like the daemon's map socket: one packet with the request, one packet with the
    descriptors as the answer."""

    def __init__(self, path, pools):
        self.path = str(path)
        self.pools = pools
        self.requests = []
        self.ended = 0  # Connections of which nothing is open any more.
        self.memories = []
        for pool in pools:
            memory = os.memfd_create("pool")
            os.truncate(memory, max(pool.segments[0].size_bytes, 1))
            self.memories.append(memory)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(self.path)
        self._listener.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                self._answer(connection)
            self.ended += 1

    def _answer(self, connection):
        request = v1.MapPoolsRequest.FromString(connection.recv(1 << 16))
        self.requests.append(request)
        session = {"session_id": request.session.session_id, "token": request.session.token, "token_high": request.session.token_high}
        if session != SESSION:
            response = v1.MapPoolsResponse()
            response.error.code, response.error.message = 5, "no such session"
            connection.send(response.SerializeToString())
            return
        response = v1.MapPoolsResponse(pools=self.pools)
        mode = os.O_RDONLY if request.access == READ else os.O_RDWR
        opened = [os.open(f"/proc/self/fd/{memory}", mode) for memory in self.memories]
        socket.send_fds(connection, [response.SerializeToString()], opened)
        for descriptor in opened:
            os.close(descriptor)

    def open_files(self):
        """The open files of this process, when the connections to the socket have ended."""
        deadline = time.monotonic() + 60
        while self.ended < len(self.requests):
            assert time.monotonic() < deadline, f"{self.ended} of {len(self.requests)} connections have ended"
            time.sleep(0.001)
        return len(os.listdir("/proc/self/fd"))

    def ref(self, **other):
        told = SESSION | other
        return pagoda.SessionRef(told["session_id"], (told["token"], told["token_high"]), self.path)

    def slot(self, index, slot):
        """The bytes of a pool's slot, as its owner has them."""
        stride = self.pools[index].slot_stride_bytes
        return os.pread(self.memories[index], stride, slot * stride)

    def close(self):
        self._listener.close()
        for memory in self.memories:
            os.close(memory)


@pytest.fixture
def serve(tmp_path):
    served = []

    def start(pools=POOLS):
        served.append(MapSocketOfTheTest(tmp_path / f"{len(served)}.map", pools))
        return served[-1]

    yield start
    for one in served:
        one.close()


@pytest.fixture
def without_ml_dtypes(monkeypatch):
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)


@pytest.fixture
def torch(monkeypatch):
    """A torch that is none: a tensor remembers its dtype and the array that it was made of."""
    class Tensor:
        def __init__(self, source, dtype):
            self.source, self.dtype = source, dtype

        def view(self, dtype):
            return Tensor(self.source, dtype)

    fake = types.SimpleNamespace(
        from_numpy=lambda array: Tensor(array, str(array.dtype)),
        as_tensor=lambda source, device: Tensor(source, f"{source.__cuda_array_interface__['typestr']} on {device}"),
        bfloat16="torch.bfloat16", float8_e4m3fn="torch.float8_e4m3fn", float8_e5m2="torch.float8_e5m2")
    monkeypatch.setitem(sys.modules, "torch", fake)
    return fake


def test_pools_are_shaped_by_their_content(serve, without_ml_dtypes):
    pools = pagoda.map_pools(serve().ref())
    assert [pool.content for pool in pools] == ["elements", "scales", "elements", "opaque", "elements", "elements"]
    assert [pool.dtype for pool in pools] == ["fp8_e4m3", "float32", "bfloat16", "uint8", "uint8", "fp8_e5m2"]
    shapes = [(3, 2, 2, 2, 4, 8), (3, 2, 2, 2), (3, 1, 1, 1, 4, 6), (3, 2, 13), (3, 1, 2, 1, 4, 8), (3, 1, 2, 1, 4, 8)]
    assert [pool.shape for pool in pools] == shapes
    for pool, shape, dtype in zip(pools, shapes, (np.uint8, np.float32, np.uint16, np.uint8, np.uint8, np.uint8)):
        assert pool.array.shape == shape and pool.array.dtype == dtype
        assert pool.array.flags.c_contiguous and not pool.array.flags.writeable
        assert pool.array[0].nbytes == pool.strides[0]


def test_what_is_written_is_the_pools(serve, without_ml_dtypes):
    served = serve()
    _, scales, latents, opaque, *_ = pagoda.map_pools(served.ref())
    opaque.writable_array[1, 1] = np.arange(13)
    assert served.slot(3, 1) == bytes(13) + bytes(range(13)) and served.slot(3, 2) == bytes(26)
    scales.writable_array[2, 1, 1, 0] = 0.25
    assert served.slot(1, 2) == bytes(24) + np.float32(0.25).tobytes() + bytes(4)
    latents.writable_array[0, 0, 0, 0, 3, 5] = 0x3F80
    assert served.slot(2, 0) == bytes(46) + b"\x80\x3f"
    assert opaque.array[1, 1, 12] == 12, "a mapping for reading shows the same bytes"


def test_fp8_is_that_of_ml_dtypes_where_it_is(serve, monkeypatch):
    fake = types.SimpleNamespace(float8_e4m3fn=np.dtype("i1"), float8_e5m2=np.dtype("S1"))
    monkeypatch.setitem(sys.modules, "ml_dtypes", fake)
    pools = pagoda.map_pools(serve().ref())
    assert (pools[0].array.dtype, pools[5].array.dtype, pools[4].array.dtype) == (np.dtype("i1"), np.dtype("S1"), np.uint8)


def test_tensors_have_the_pools_own_dtype(serve, torch, without_ml_dtypes):
    pools = pagoda.map_pools(serve().ref())
    assert [pool.tensor.dtype for pool in pools] == ["torch.float8_e4m3fn", "float32", "torch.bfloat16", "uint8", "uint8",
                                                     "torch.float8_e5m2"]
    pools[3].tensor.source[0, 0, 0] = 9
    assert pools[3].array[0, 0, 0] == 9


def test_pools_are_chosen_by_tier_and_window(serve):
    served = serve()
    assert pagoda.map_pools(served.ref(), tier=pagoda.Tier.SECOND) == pagoda.map_pools(served.ref(), window_size=8) == ()
    assert len(pagoda.map_pools(served.ref(), tier=pagoda.Tier.PRIMARY, window_size=0)) == len(POOLS)


def test_looking_makes_no_writer(serve):
    served = serve()
    pool = pagoda.map_pools(served.ref())[3]
    pool.array
    assert [request.access for request in served.requests] == [READ, READ]
    pool.writable_array
    assert served.requests[-1].access == READ_WRITE


# A worker. Its parent passes only the SessionRef, as bytes, and the worker maps with it.
WORKER = """
import sys, pagoda
pool = pagoda.map_pools(bytes.fromhex(sys.argv[1]))[3]
pool.writable_array[2, 0] = 200
"""


def test_another_process_maps_with_the_session_that_it_is_given(serve):
    served = serve()
    ref = served.ref()
    subprocess.run([sys.executable, "-c", WORKER, ref.to_bytes().hex()], check=True)
    assert served.slot(3, 2) == bytes([200] * 13) + bytes(13)
    assert {request.session.SerializeToString() for request in served.requests} == {v1.SessionRef(**SESSION).SerializeToString()}


def test_a_session_ref_travels_and_keeps_its_secret(serve):
    ref = serve().ref()
    assert pagoda.SessionRef.from_bytes(ref.to_bytes()) == pickle.loads(pickle.dumps(ref)) == ref
    assert str(SESSION["token"]) not in repr(ref) and "session_id=7" in repr(ref)
    for given in (b"", b"\x01" * 24, b"\x02" + ref.to_bytes()[1:]):
        with pytest.raises(ValueError, match="not a SessionRef"):
            pagoda.map_pools(given)


def test_a_stranger_is_refused(serve):
    served = serve()
    with pytest.raises(pagoda.PagodaError, match="no such session"):
        pagoda.map_pools(served.ref(token=1))
    with pytest.raises(pagoda.CannotMap, match="no map socket"):
        pagoda.map_pools(pagoda.SessionRef(7, (1, 2), ""))


@pytest.mark.parametrize("change, error, text", [
    ({"dtype": 99}, NotImplementedError, r"unknown \(99\)"),
    ({"content": 99}, NotImplementedError, r"unknown \(99\)"),
    ({"memory_kind": 9}, NotImplementedError, r"memory of a kind that this version cannot map: unknown \(9\)"),
    ({"size_bytes": 25}, ValueError, "a segment of 25 bytes for 3 slots of 26"),
])
def test_what_this_version_does_not_know_is_refused_by_name(serve, change, error, text):
    pool = v1.PoolMapping()
    pool.CopyFrom(POOLS[3])
    for name, value in change.items():
        setattr(pool.segments[0] if name in ("memory_kind", "size_bytes") else pool, name, value)
    (known,) = pagoda.map_pools(serve([pool]).ref())
    with pytest.raises(error, match=text):
        known.array


def test_a_pool_of_no_session_has_no_memory():
    with pytest.raises(ValueError, match="only Client.pools and map_pools"):
        pagoda.Pool.take(POOLS[3]).array


def test_device_arrays_are_of_devices(serve):
    with pytest.raises(NotImplementedError, match="the pool is in the memory of host"):
        pagoda.map_pools(serve().ref())[3].device_array


# ---- On the fake driver ----

FAKE = os.path.join(os.environ.get("PAGODA_FAKE_CUDA", "/nowhere"), "libcuda.so.1")
GRANULE = 2 << 20


@pytest.fixture
def driver(monkeypatch):
    """The fake driver in the place of libcuda.so.1, and the identity of its device 0."""
    if not os.path.exists(FAKE):
        pytest.skip("no fake driver: PAGODA_FAKE_CUDA is not set")
    library = ctypes.CDLL(FAKE)
    monkeypatch.setattr(_cuda.ctypes, "CDLL", lambda name: {"libcuda.so.1": library}[name])
    _cuda._driver.cache_clear()
    assert library.cuInit(0) == 0
    uuid = ctypes.create_string_buffer(16)
    assert library.cuDeviceGetUuid_v2(uuid, 0) == 0
    yield uuid.raw
    _cuda._driver.cache_clear()


def on_device(uuid, index=0, **fields):
    pool = v1.PoolMapping()
    pool.CopyFrom(POOLS[index])
    pool.segments[0].memory_kind = 2
    pool.segments[0].device_uuid = uuid
    for name, value in fields.items():
        setattr(pool, name, value)
    return pool


def device_memory(served, index=0):
    """Stands for the descriptor that the driver exports: a file of whole granules, named like the
    fake driver's files."""
    memory = os.memfd_create("fake-cuda-memory")
    os.truncate(memory, GRANULE)
    os.close(served.memories[index])
    served.memories[index] = memory


def test_a_device_pool_is_an_array_of_the_device(driver, serve, torch):
    served = serve([on_device(driver), on_device(driver, 2)])
    device_memory(served, 0)
    device_memory(served, 1)
    pool, bfloat = pagoda.map_pools(served.ref())
    array = pool.device_array
    interface = array.__cuda_array_interface__
    assert (interface["shape"], interface["strides"], interface["typestr"], interface["version"]) == (pool.shape, pool.strides, "|u1", 3)
    address, read_only = interface["data"]
    assert address != 0 and not read_only and array.device == 0
    array.write_slot(2, np.arange(256, dtype=np.uint8))
    assert served.slot(0, 2) == bytes(range(256)), "the bytes are in the daemon's memory"
    assert array.read_slot(2).tobytes() == bytes(range(256)) and not array.read_slot(1).any()
    assert pool.tensor.dtype == "torch.float8_e4m3fn" and pool.tensor.source is array
    assert bfloat.device_array.__cuda_array_interface__["typestr"] == "<i2" and bfloat.tensor.dtype == "torch.bfloat16"
    with pytest.raises(IndexError, match="slot 3 of 3"):
        array.read_slot(3)
    with pytest.raises(ValueError, match="8 bytes for a slot of 256"):
        array.write_slot(0, np.zeros(1))
    with pytest.raises(NotImplementedError, match="is in the memory of cuda:0, which numpy cannot read"):
        pool.array


def test_a_device_that_this_process_cannot_use_is_named(driver, serve, monkeypatch):
    served = serve([on_device(bytes(16))])
    with pytest.raises(pagoda.CannotMap, match="does not see the pool's device"):
        pagoda.map_pools(served.ref())[0].device_array
    served = serve([on_device(driver)])  # The driver has not exported this file.
    with pytest.raises(pagoda.CannotMap, match="cuMemImportFromShareableHandle: CUDA_ERROR_INVALID_VALUE"):
        pagoda.map_pools(served.ref())[0].device_array
    _cuda._driver.cache_clear()

    def missing(name):
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(_cuda.ctypes, "CDLL", missing)
    with pytest.raises(pagoda.CannotMap, match="no CUDA driver: libcuda.so.1"):
        pagoda.map_pools(served.ref())[0].device_array


def test_a_device_array_gives_its_memory_back(driver, serve):
    served = serve([on_device(driver)])
    device_memory(served)

    def mapped():
        with open("/proc/self/maps") as maps:
            return sum("fake-cuda-memory" in line for line in maps)

    before = mapped()
    open_before = served.open_files()
    pool = pagoda.map_pools(served.ref())[0]
    pool.device_array
    assert served.open_files() > open_before
    del pool
    assert mapped() == before and served.open_files() == open_before
