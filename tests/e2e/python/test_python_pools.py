"""The Python package's view of the pools: the daemon's own bytes, not a copy."""

import subprocess
import sys

import numpy as np
import pagoda
import pytest

# Another process. It finds a prompt's KV with the package alone and prints it.
READER = """
import sys, pagoda
with pagoda.connect(sys.argv[1]) as client, client.sequence(range(9)) as sequence:
    sequence.wait_ready()
    (pool,) = client.pools()
    print(sequence.matched_tokens, *(float(pool.array[slot, 1, 0, 1, 3, 7]) for slot in sequence.table.slots[:2]))
"""


@pytest.fixture
def client(daemon):
    with pagoda.connect(f"unix:{daemon.unix_socket}") as opened:
        yield opened


def test_a_pool_has_the_shape_that_it_is_documented_with(daemon, client):
    (pool,) = client.pools()
    slots, layers, k_and_v, heads, tokens, head_dim = 64, 2, 2, 2, 4, 8
    assert pool.array.shape == pool.shape == (slots, layers, k_and_v, heads, tokens, head_dim)
    assert (pool.array.dtype, pool.dtype, pool.layers) == (np.float32, "float32", (0, 1))
    assert pool.array[0].nbytes == daemon.primary().block_bytes
    assert client.pools(tier=pagoda.Tier.SECOND) == client.pools(window_size=8) == ()


def test_what_one_client_writes_another_reads(daemon, client):
    with pagoda.connect(f"unix:{daemon.unix_socket}") as other, client.sequence(range(8)) as sequence:
        (pool,), (theirs,) = client.pools(), other.pools()
        view = theirs.array
        for slot in sequence.table.slots:
            pool.writable_array[slot] = slot + 0.5
        sequence.commit(computed=8)
        for slot in sequence.table.slots:
            assert (view[slot] == slot + 0.5).all(), "read through a mapping that was made before"
            assert (pool.array[slot] == slot + 0.5).all()
    assert client.match(range(9)).matched_tokens == 8
    command = [sys.executable, "-c", READER, f"unix:{daemon.unix_socket}"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    assert printed[0] == "8"
    assert [float(value) for value in printed[1:]] == [slot + 0.5 for slot in sequence.table.slots]


def test_token_slots_index_a_pool_seen_by_tokens(client):
    """Attention kernels address a token so: slot_index * tokens_per_block + offset."""
    (pool,) = client.pools()
    by_token = pool.writable_array[:, 1, 0, 1].reshape(-1, 8)  # Layer 1, K, head 1: contiguous only within a slot.
    assert not np.shares_memory(by_token, pool.writable_array)
    with client.sequence(range(10)) as sequence:
        slots = sequence.table.token_slots(0, 10)
        for token, token_slot in enumerate(slots):
            pool.writable_array[token_slot // 4, 1, 0, 1, token_slot % 4] = token
        by_token = pool.array[:, 1, 0, 1].reshape(-1, 8)
        assert by_token[slots, 0].tolist() == list(range(10))


def test_a_view_is_for_reading_unless_asked_otherwise(client):
    (pool,) = client.pools()
    assert not pool.array.flags.writeable and pool.writable_array.flags.writeable
    with pytest.raises(ValueError):
        pool.array[0] = 1
    with pytest.raises(ValueError):
        pool.array.flags.writeable = True
    assert pool.array is pool.array, "mapped once"


def test_a_view_outlives_its_client(daemon):
    with pagoda.connect(f"unix:{daemon.unix_socket}") as client:
        (pool,) = client.pools()
        array = pool.array
        pool.writable_array[...] = 3
    assert (array == 3).all()


def test_bfloat16_comes_as_its_bits(start_daemon):
    daemon = start_daemon(cache={"kv_dtype": "bfloat16", "secondary": 8})
    with pagoda.connect(f"unix:{daemon.unix_socket}") as client:
        primary, secondary = client.pools()
        assert (primary.dtype, primary.array.dtype, primary.tier) == ("bfloat16", np.uint16, pagoda.Tier.PRIMARY)
        assert secondary.shape[1:] == primary.shape[1:] and secondary.tier == pagoda.Tier.SECOND
        assert client.pools(tier=pagoda.Tier.SECOND) == (secondary,)
        primary.writable_array[0] = 0x3F80  # 1.0
        torch = pytest.importorskip("torch")
        assert primary.tensor.dtype == torch.bfloat16 and (primary.tensor[0] == 1).all()


# Layers of every kind: opaque pages, latents, fp8 with its scales.
KINDS = [{"count": 2, "kind": "opaque", "bytes_per_block": 13}, {"count": 1, "num_kv_heads": 1, "head_dim": 8, "kind": "key_only"},
         {"count": 1, "num_kv_heads": 2, "head_dim": 8}]


def numbered(array, slot):
    """Puts bytes of its own into a slot, and returns them."""
    given = np.random.default_rng(slot + array.nbytes).integers(0, 256, array[slot].nbytes, np.uint8)
    array[slot].view(np.uint8).reshape(-1)[:] = given
    return given.tobytes()


def test_pools_of_every_kind_keep_their_bytes_through_the_tiers(start_daemon):
    daemon = start_daemon(cache={"kv_dtype": "fp8_e5m2", "layers": KINDS, "primary": 8, "secondary": 8})
    with pagoda.connect(f"unix:{daemon.unix_socket}") as client:
        pools = client.pools(tier=pagoda.Tier.PRIMARY)
        assert [(pool.content, pool.dtype, pool.shape[1:]) for pool in pools] == [
            ("opaque", "uint8", (2, 13)), ("elements", "fp8_e5m2", (1, 1, 1, 4, 8)), ("scales", "float32", (1, 1, 1)),
            ("elements", "fp8_e5m2", (1, 2, 2, 4, 8)), ("scales", "float32", (1, 2, 2))]
        assert sum(pool.strides[0] for pool in pools) == daemon.primary().block_bytes
        with client.sequence(range(8)) as sequence:
            slots = sequence.table.slots
            written = [[numbered(pool.writable_array, slot) for pool in pools] for slot in slots]
            sequence.commit(computed=8)
        client.offload(range(8))
        daemon.settle()
        with client.sequence(range(100, 132)) as sequence:  # It takes the whole primary tier.
            for slot in sequence.table.slots:
                for pool in pools:
                    numbered(pool.writable_array, slot)
        with client.sequence(range(9)) as sequence:
            sequence.wait_ready()
            assert sequence.matched_tokens == 8
            for slot, expected in zip(sequence.table.slots, written):
                assert [pool.array[slot].tobytes() for pool in pools] == expected


# Maps with the given SessionRef, writes, reports it, and then only waits.
WORKER = """
import sys, time, pagoda
pagoda.map_pools(bytes.fromhex(sys.argv[1]))[0].writable_array[int(sys.argv[2])] = 7
print("mapped", flush=True)
time.sleep(600)
"""


def test_a_worker_maps_under_its_schedulers_session_and_is_waited_for(daemon):
    scheduler = pagoda.connect(f"unix:{daemon.unix_socket}", lease=1)
    assert daemon.primary().free_blocks == 64
    (block,) = scheduler.allocate_blocks(1)
    worker = subprocess.Popen([sys.executable, "-c", WORKER, scheduler.session_ref.to_bytes().hex(), str(block.slot_index)],
                              stdout=subprocess.PIPE, text=True)
    try:
        assert worker.stdout.readline() == "mapped\n"
        (pool,) = scheduler.pools()
        assert (pool.array[block.slot_index] == 7).all()
        scheduler._keep_alive.stopped.set()  # The scheduler hangs. It has mapped only for reading.
        daemon.wait_until(lambda daemon: daemon.primary().in_flight_blocks == 1)
        assert (pool.array[block.slot_index] == 7).all()
        assert daemon.primary().in_flight_blocks == 1, "the worker can still write"
    finally:
        worker.kill()
        worker.wait()
    daemon.wait_until(lambda daemon: daemon.primary().free_blocks == 64)


def test_a_tensor_is_the_pool(client):
    torch = pytest.importorskip("torch")
    (pool,) = client.pools()
    (block,) = client.allocate_blocks(1)
    pool.tensor[block.slot_index] = 2.5
    assert pool.tensor.dtype == torch.float32
    assert (pool.array[block.slot_index] == 2.5).all()
