"""A primary tier in GPU memory, on the driver of tests/pools/fake_cuda: how pagodad and its clients
use CUDA's interface, and what they report without it. No GPU takes part.
"""

import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import pagoda
import pool_view
import pytest
from pagoda_client import Client
from pagoda_daemon import Daemon
from pagoda.v1 import admin_pb2, types_pb2

CLIENT = pathlib.Path(os.environ["PAGODA_BIN"]).absolute() / "gpu_pool_client"
ENGINE = pathlib.Path(os.environ["PAGODA_BIN"]).absolute() / "pagoda-engine"
PAGODACTL = pathlib.Path(os.environ["PAGODA_BIN"]).absolute() / "pagodactl"
FAKE_CUDA = os.environ["PAGODA_FAKE_CUDA"]
GOLDEN = pathlib.Path(os.environ["PAGODA_GOLDEN"]) / "qwen3_tiny"
# Two pools: layers of different heads.
LAYERS = [{"count": 2, "num_kv_heads": 2, "head_dim": 8}, {"count": 1, "num_kv_heads": 1, "head_dim": 8}]
CUDA = {"primary_memory": "cuda", "primary": 8, "secondary": 16, "layers": LAYERS}
PROMPTS = 6  # Each has three blocks: more than the primary tier holds, but not more than both tiers.


@pytest.fixture
def driver(monkeypatch):
    """The fake driver for processes that start from here on. Returns a function that sets its
    variables."""
    monkeypatch.setenv("LD_LIBRARY_PATH", FAKE_CUDA)
    return lambda **variables: [monkeypatch.setenv(f"FAKE_CUDA_{name}", str(value)) for name, value in variables.items()]


@pytest.fixture
def fail_to_start(tmp_path):
    """fail_to_start(**cache) starts a daemon that ends at once; returns what it said."""
    def start(engine=None, **cache):
        folder = tmp_path / f"failing-{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        daemon = Daemon(folder, cache=CUDA | cache, **({"engine": engine} if engine else {}))
        assert daemon.run_to_its_end() == 1
        return daemon.log.read_text()

    return start


def run_client(daemon, *arguments, **environment):
    """The exit status and the output of gpu_pool_client."""
    command = [CLIENT, f"unix:{daemon.unix_socket}", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=os.environ | environment)
    return done.returncode, done.stdout + done.stderr


def window(daemon):
    return daemon.status().windows[0]


def copies(daemon):
    """Copies by the tiers of source and target."""
    return {(d.source, d.target): d.copies_total for d in daemon.status().transfers.directions}


def test_blocks_are_offloaded_and_onboarded_with_their_bytes(driver, start_daemon):
    driver(DELAY_US=500)
    daemon = start_daemon(cache=CUDA)
    assert "the primary tier lies in GPU memory: cuda:0, Fake device, with 256 of 256 MiB free" in daemon.log.read_text()
    assert run_client(daemon, "write", 1, PROMPTS) == (0, f"cuda:0: {3 * PROMPTS} blocks, 0 wrong\n")
    daemon.settle()
    assert window(daemon).offloaded_blocks_total >= 3 * PROMPTS - 8
    # Another process reads in several rounds, so blocks are offloaded again.
    for _ in range(3):
        assert run_client(daemon, "check", 1, PROMPTS) == (0, f"cuda:0: {3 * PROMPTS} blocks, 0 wrong\n")
    # With other expected values the check fails.
    status, output = run_client(daemon, "check", 2, PROMPTS)
    assert status == 1 and not output.endswith(" 0 wrong\n")
    assert window(daemon).onboarded_blocks_total >= 3 * PROMPTS - 8
    down, up = (types_pb2.TIER_PRIMARY, types_pb2.TIER_SECOND), (types_pb2.TIER_SECOND, types_pb2.TIER_PRIMARY)
    assert copies(daemon)[down] >= 10 and copies(daemon)[up] >= 10
    assert daemon.status().transfers.failed_total == 0


def kv(prompt, block, pool_index, shape):
    """The bits that gpu_pool_client writes with seed 1."""
    state, made = (1 << 32) + prompt * 1000 + block * 10 + pool_index, bytearray()
    for _ in range(4 * np.prod(shape)):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        made.append(state >> 56)
    return np.frombuffer(made, np.uint32).reshape(shape)


def test_the_daemon_reads_a_sequence_out_of_gpu_memory(driver, start_daemon):
    driver()
    daemon = start_daemon(cache=CUDA)
    assert run_client(daemon, "write", 1, 1)[0] == 0
    with pagoda.connect(f"unix:{daemon.unix_socket}") as session, session.sequence([*range(12), 7]) as sequence:
        assert sequence.matched_tokens == 12
        for layer, (pool_index, index, *shape) in enumerate([(0, 0, 2, 2, 2, 4, 8), (0, 1, 2, 2, 2, 4, 8), (1, 0, 1, 2, 1, 4, 8)]):
            got = sequence.materialize(layer)
            # (block, K and V, head, token, element) as (K and V, token, head, element).
            expected = np.stack([kv(0, block, pool_index, shape)[index] for block in range(3)]).transpose(1, 0, 3, 2, 4).reshape(2, 12, shape[2], 8)
            assert np.array_equal(np.stack([got.keys, got.values]).view(np.uint32), expected), layer


def test_everybody_says_where_the_tiers_lie(driver, start_daemon):
    driver()
    daemon = start_daemon(cache=CUDA, server={"http_address": "127.0.0.1:0"})
    tiers = {tier.tier: tier for tier in window(daemon).tiers}
    assert tiers[types_pb2.TIER_PRIMARY].memory_kind == types_pb2.MEMORY_KIND_CUDA
    assert tiers[types_pb2.TIER_SECOND].memory_kind == types_pb2.MEMORY_KIND_HOST
    shown = subprocess.run([PAGODACTL, "--endpoint", f"unix:{daemon.unix_socket}", "status"], check=True, capture_output=True, text=True).stdout
    assert re.search(r"primary .* on cuda:0\n", shown) and re.search(r"secondary .* on host in plain pages\n", shown), shown
    told = daemon.told("status", admin_pb2.GetStatusResponse()).windows[0].tiers
    assert [(tier.tier, tier.memory_kind, tier.device) for tier in told] == [
        (types_pb2.TIER_PRIMARY, types_pb2.MEMORY_KIND_CUDA, 0), (types_pb2.TIER_SECOND, types_pb2.MEMORY_KIND_HOST, 0)]
    with Client(daemon.channel) as client:
        kinds = {(pool.tier, segment.memory_kind, len(segment.device_uuid)) for pool in client.pools() for segment in pool.segments}
        assert kinds == {(types_pb2.TIER_PRIMARY, types_pb2.MEMORY_KIND_CUDA, 16), (types_pb2.TIER_SECOND, types_pb2.MEMORY_KIND_HOST, 0)}


def test_a_client_that_cannot_use_the_device_is_told_why(driver, start_daemon):
    driver()
    daemon = start_daemon(cache=CUDA)
    status, output = run_client(daemon, "write", 1, 1, LD_LIBRARY_PATH="")
    assert status == 3 and re.search("UNAVAILABLE: pool /pagoda-.* lies in the memory of the daemon's cuda:0, which this process cannot use: "
                                     "no CUDA driver: libcuda.so.1", output), output
    status, output = run_client(daemon, "write", 1, 1, FAKE_CUDA_FIRST_DEVICE="1")
    assert status == 3 and "CUDA_VISIBLE_DEVICES" in output, output
    # The device is found by its identity, even if this process numbers the devices differently.
    assert run_client(daemon, "write", 1, 1, FAKE_CUDA_FIRST_DEVICE="-1", FAKE_CUDA_DEVICES="2") == (0, "cuda:1: 3 blocks, 0 wrong\n")
    with pagoda.connect(f"unix:{daemon.unix_socket}") as session:
        pools = {pool.tier: pool for pool in session.pools()}
        with pytest.raises(NotImplementedError, match="the pool is in the memory of cuda:0"):
            pools[pagoda.Tier.PRIMARY].array
        with pytest.raises(pagoda.CannotMap, match="no CUDA driver: libcuda.so.1"):
            pools[pagoda.Tier.PRIMARY].device_array  # The test's own process has no driver.
    with Client(daemon.channel) as client, pytest.raises(ValueError, match="lies in MEMORY_KIND_CUDA of device 0"):
        pool_view.map_pool(client.pools()[0])
        assert pools[pagoda.Tier.SECOND].array.shape[0] == 17


# Writes a slot of the first pool under the given session, through the package's own mapping of the
# device's memory.
WORKER = """
import sys, pagoda
import numpy as np
(pool, *_) = pagoda.map_pools(bytes.fromhex(sys.argv[1]), tier=pagoda.Tier.PRIMARY)
array = pool.device_array
assert array.__cuda_array_interface__["shape"] == pool.shape
array.write_slot(3, np.full(pool.strides[0], int(sys.argv[2]), np.uint8))
print(array.read_slot(3).tobytes().hex())
"""


def test_the_python_package_maps_the_devices_memory(driver, start_daemon):
    driver()
    daemon = start_daemon(cache=CUDA)
    with pagoda.connect(f"unix:{daemon.unix_socket}") as session:
        (pool, *_) = session.pools(tier=pagoda.Tier.PRIMARY)
        # Each worker is a process with the driver, which this process does not have. The second
        # worker reads the bytes of the first.
        for number in (5, 6):
            command = [sys.executable, "-c", WORKER, session.session_ref.to_bytes().hex(), str(number)]
            printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            assert bytes.fromhex(printed) == bytes([number]) * pool.strides[0]


def test_without_a_device_the_host_does(start_daemon):
    daemon = start_daemon(cache=CUDA | {"primary_memory": "auto"})
    log = daemon.log.read_text()
    assert "the primary tier lies in host memory: no CUDA driver: libcuda.so.1" in log
    assert window(daemon).tiers[0].memory_kind == types_pb2.MEMORY_KIND_HOST
    assert run_client(daemon, "write", 1, PROMPTS)[0] == 0
    assert run_client(daemon, "check", 1, PROMPTS) == (0, f"host: {3 * PROMPTS} blocks, 0 wrong\n")


def test_auto_takes_the_device_unless_something_needs_the_host(driver, start_daemon):
    driver()
    assert "in GPU memory" in start_daemon(cache=CUDA | {"primary_memory": "auto"}).log.read_text()
    assert "in host memory: cache.primary_memory says so" in start_daemon(cache=CUDA | {"primary_memory": "host"}).log.read_text()
    model = start_daemon(cache={"primary": 64, "primary_memory": "auto"}, engine={"model_dir": str(GOLDEN)})
    # The fake driver runs no kernels, so the engine's runtime finds no device.
    assert re.search("in host memory: the daemon's own engine cannot compute on cuda:0: .*\\n(.*\\n)*.*model loaded: .* on cpu", model.log.read_text())
    on_cpu = start_daemon(cache={"primary": 64, "primary_memory": "auto"}, engine={"model_dir": str(GOLDEN), "backend": "cpu"})
    assert "in host memory: the daemon's own engine runs on the CPU (engine.backend)" in on_cpu.log.read_text()
    no_device = CUDA | {"primary_memory": "auto", "device": 3}
    assert "in host memory: there is no CUDA device 3; this process sees 1" in start_daemon(cache=no_device).log.read_text()


def test_a_device_that_cannot_be_had_is_an_error_that_says_why(driver, fail_to_start, monkeypatch):
    driver()
    assert "cache.device 3 cannot be used: there is no CUDA device 3; this process sees 1" in fail_to_start(device=3)
    log = fail_to_start(primary="300MiB")
    assert re.search(r"GPU memory of \d+ bytes on CUDA device 0, where \d+ of 268435456 are free", log), log
    # The cache configures no layers: the model has them.
    model = {"model_dir": str(GOLDEN)}
    assert "the primary pools lie in the memory of cuda:0, and the engine cannot compute there" in fail_to_start(engine=model, layers=None)
    assert "engine.backend is cpu and cache.primary_memory is cuda" in fail_to_start(engine=model | {"backend": "cpu"}, layers=None)
    assert "GPU memory ends with the daemon" in fail_to_start(warm_restart=True, model={"name": "org/tiny"})
    driver(PINNED_MIB=0)
    log = fail_to_start()
    assert re.search("the secondary pool /pagoda-.* cannot be pinned for cuda:0: cuMemHostRegister: CUDA_ERROR_OUT_OF_MEMORY", log), log
    driver(DEVICES=0)
    assert "cuInit: CUDA_ERROR_NO_DEVICE" in fail_to_start()
    monkeypatch.delenv("LD_LIBRARY_PATH")
    assert "cache.device 0 cannot be used: no CUDA driver: libcuda.so.1" in fail_to_start()


def test_memory_that_is_not_pinned_is_a_warning_where_that_may_be(driver, start_daemon):
    driver(PINNED_MIB=0)
    for pinning, warned in (("preferred", True), ("off", False)):
        daemon = start_daemon(cache=CUDA | {"pin_lower": pinning})
        assert ("cannot be pinned" in daemon.log.read_text()) == warned
        assert run_client(daemon, "write", 1, PROMPTS)[0] == 0
        assert run_client(daemon, "check", 1, PROMPTS) == (0, f"cuda:0: {3 * PROMPTS} blocks, 0 wrong\n")


def test_a_share_is_one_of_the_devices_memory(driver, start_daemon):
    driver(MEMORY_MIB=64)
    daemon = start_daemon(cache=CUDA | {"primary": "50%"})
    (tier,) = [tier for tier in window(daemon).tiers if tier.tier == types_pb2.TIER_PRIMARY]
    assert 31 << 20 < tier.capacity_blocks * tier.block_bytes <= 32 << 20


def test_a_copy_that_fails_loses_its_block_and_not_the_daemon(driver, start_daemon):
    # Every copy to the device fails, in one call or one by one.
    driver(FAIL="cuMemcpyBatchAsync:0:400")
    daemon = start_daemon(cache=CUDA)
    assert run_client(daemon, "write", 1, PROMPTS)[0] == 0
    daemon.settle()
    assert daemon.status().transfers.failed_total > 0
    assert "cuMemcpyBatchAsync: CUDA_ERROR_INVALID_HANDLE" in daemon.log.read_text()
    assert window(daemon).lost_blocks_total > 0
    status, output = run_client(daemon, "check", 1, 2)
    assert status == 0 and output.endswith("blocks, 0 wrong\n"), output


def test_an_engine_says_what_it_needs(driver, start_daemon):
    driver()
    daemon = start_daemon(cache={"primary_memory": "cuda", "model_dir": str(GOLDEN), "tokens_per_block": 8})

    def refusal(backend):
        command = [ENGINE, "--connect", f"unix:{daemon.unix_socket}", "--model", GOLDEN, "--backend", backend, "--requests", "-"]
        done = subprocess.run(command, input="", capture_output=True, text=True, timeout=60)
        assert done.returncode != 0
        return done.stderr

    assert "in the memory of cuda:0, which the backend cpu does not reach: the daemon needs cache.primary_memory: host" in refusal("cpu")
    # The engine maps the pools, but cannot compute on the fake device.
    assert "in the memory of cuda:0, and the engine cannot compute there" in refusal("auto")


# Copies like those of a connector: to the device's memory and back into other page-locked memory,
# on a stream.
COPIES = """
import ctypes, mmap, sys, pagoda
import numpy as np
from pagoda._cuda import _driver, _primary_context, copy_all, page_lock, page_unlock
(pool, *_) = pagoda.map_pools(bytes.fromhex(sys.argv[1]), tier=pagoda.Tier.PRIMARY)
device, size = pool.device_array, pool.strides[0]
host = np.frombuffer(mmap.mmap(-1, 1 << 20), np.uint8)
host[:] = np.random.default_rng(1).integers(0, 255, host.size)
address = host.ctypes.data
page_lock(0, address, host.size)
stream = ctypes.c_void_p()
with _primary_context(0):
    assert ctypes.CDLL("libcuda.so.1").cuStreamCreate(ctypes.byref(stream), 1) == 0
at = device.__cuda_array_interface__["data"][0]
slots = np.arange(4, dtype=np.uint64) * size
sizes = np.full(4, size, np.uint64)
if sys.argv[2] == "one by one":
    _driver().cuMemcpyBatchAsync_v2 = None
copy_all(0, stream.value, at + slots[::-1], address + slots, sizes)
copy_all(0, stream.value, address + 8 * size + slots, at + slots, sizes)
with _primary_context(0):
    _driver().call("cuStreamSynchronize", stream)
for slot in range(4):
    assert (host[(8 + slot) * size:][:size] == host[(3 - slot) * size:][:size]).all(), slot
try:
    page_lock(0, address, host.size)
except pagoda.CannotMap as error:
    print(error)
page_unlock(0, address)
page_lock(0, address, host.size)
"""


@pytest.mark.parametrize("calls", ["in one call", "one by one"])
def test_a_connectors_copies(driver, start_daemon, calls):
    driver()
    daemon = start_daemon(cache=CUDA)
    with pagoda.connect(f"unix:{daemon.unix_socket}") as session:
        command = [sys.executable, "-c", COPIES, session.session_ref.to_bytes().hex(), calls]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert "cuMemHostRegister" in done.stdout
