"""Blocks as the Python package shows them: their states, the end of raw blocks, and the KV of a
sequence as arrays."""

import asyncio
import concurrent.futures
import threading

import numpy as np
import pagoda
import pagoda.aio
import pytest
from pagoda import BlockFill, BlockState

pytestmark = pytest.mark.usefixtures("transport")

# Two layers with full attention, one with a window of 8 tokens, one with K only, and opaque bytes.
LAYERS = [{"count": 2, "num_kv_heads": 2, "head_dim": 8}, {"count": 1, "window": 8, "num_kv_heads": 1, "head_dim": 4},
          {"count": 1, "num_kv_heads": 1, "head_dim": 8, "kind": "key_only"}, {"count": 1, "kind": "opaque", "bytes_per_block": 16}]


@pytest.fixture
def client(daemon):
    with pagoda.connect(f"unix:{daemon.unix_socket}") as opened:
        yield opened


def connected(daemon):
    return pagoda.connect(f"unix:{daemon.unix_socket}")


def write(client, sequence, tokens, generator):
    """Writes random elements for the first tokens of the sequence. Returns K and V of each layer,
    as they lie in the pools: (tokens, heads, elements) by layer and part."""
    written = {}
    for pool in client.pools(tier=pagoda.Tier.PRIMARY):
        if pool.content != "elements":
            continue
        array = pool.writable_array
        for token in range(tokens):
            block = sequence.tables[pool.window_size].blocks[token // 4]
            if block is None:
                continue
            place = array[block.slot_index, :, :, :, token % 4]
            place[...] = generator.standard_normal(place.shape).astype(np.float32) if array.dtype.kind == "f" \
                else generator.integers(0, 0x78, place.shape)
            for index, layer in enumerate(pool.layers):
                for part in range(place.shape[1]):
                    written.setdefault((layer, part), np.zeros((tokens, *place.shape[2:]), array.dtype))[token] = place[index, part]
    return written


def test_a_finalised_block_takes_no_more_tokens(client):
    first, second = client.allocate_blocks(2)
    assert client.describe_blocks([first]) == (BlockState(1, 0, False, False),)
    client.fill_blocks([BlockFill(first, 3), BlockFill(second, 4, finalize=True)])
    assert client.describe_blocks([second, first, second]) == (BlockState(1, 4, True, False), BlockState(1, 3, False, False),
                                                               BlockState(1, 4, True, False))
    with pytest.raises(pagoda.Conflict) as refused:
        client.fill_blocks([BlockFill(first, 4), BlockFill(second, 4)])
    assert refused.value.reason == "BLOCK_FINALIZED"
    with pytest.raises(pagoda.BadRequest, match="COMPUTED_BACKWARDS"):
        client.fill_blocks([BlockFill(first, 2)])
    assert client.describe_blocks([first]) == (BlockState(1, 3, False, False),), "all or nothing"
    client.free_blocks([first, second])
    with pytest.raises(pagoda.Conflict, match="STALE_HANDLE"):
        client.describe_blocks([first])


def test_the_blocks_of_a_sequence_tell_their_holders(daemon, client):
    with client.sequence(range(6)) as sequence, connected(daemon) as other:
        sequence.commit(computed=6)
        with client.batch() as batch:
            told = batch.describe_blocks(sequence.table.blocks)
        assert told.result() == (BlockState(1, 4, True, True), BlockState(1, 2, False, False))
        with other.sequence(range(6)) as theirs, sequence.fork():
            assert theirs.matched_tokens >= 4
            assert [state.holders for state in client.describe_blocks(sequence.table.blocks)] == [3, 2]
        with pytest.raises(pagoda.Conflict, match="FOREIGN_BLOCK"):
            other.describe_blocks(sequence.table.blocks[:1])


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "fp8_e4m3"])
def test_a_sequence_materialises_as_arrays(start_daemon, dtype):
    daemon = start_daemon(cache={"kv_dtype": dtype, "layers": LAYERS, "primary": 16})
    with connected(daemon) as client, client.sequence(range(21)) as sequence:
        for pool in client.pools(tier=pagoda.Tier.PRIMARY):
            if pool.content == "scales":
                pool.writable_array[...] = 0.5
        written = write(client, sequence, 20, np.random.default_rng(1))
        sequence.commit(computed=20)

        def numbers(bits):
            if dtype == "bfloat16":
                return (bits.astype(np.uint32) << 16).view(np.float32)
            return bits if dtype != "fp8_e4m3" else fp8_e4m3(bits.view(np.uint8)) * np.float32(0.5)

        for layer, first in ((0, 0), (1, 0), (2, 12), (3, 0)):
            got = sequence.materialize(layer)
            assert got.first_token == first, "the window of 8 tokens has the blocks of the last ones"
            assert got.keys.dtype == (np.float16 if dtype == "float16" else np.float32)
            assert np.array_equal(got.keys, numbers(written[layer, 0])[first:])
            if layer == 3:
                assert got.values is None
            else:
                assert np.array_equal(got.values, numbers(written[layer, 1])[first:])
        part = sequence.materialize(1, begin=6, end=9)
        assert part.first_token == 6 and np.array_equal(part.values, numbers(written[1, 1])[6:9])
        assert sequence.materialize(0, begin=20).keys.shape == (0, 2, 8)
        with pytest.raises(pagoda.Conflict, match="WINDOW_PASSED"):
            sequence.materialize(2, begin=3)
        for layer, begin, end in ((4, None, None), (5, None, None), (0, None, 21), (0, 9, 8)):
            with pytest.raises(pagoda.BadRequest, match="INVALID_ARGUMENT"):
                sequence.materialize(layer, begin=begin, end=end)
        with pytest.raises(ValueError, match="at least 1"):
            sequence.materialize(0, end=0)


def fp8_e4m3(bits):
    """OCP's E4M3, of finite numbers."""
    exponent, fraction = (bits >> 3) & 15, (bits & 7).astype(np.float32)
    normal = (1 + fraction / 8) * np.exp2(exponent.astype(np.float32) - 7)
    return np.where(exponent == 0, fraction / 8 * np.float32(2.0**-6), normal).astype(np.float32) * np.where(bits >> 7, -1, 1)


def test_a_prefix_that_comes_up_from_below_is_read_when_it_is_there(start_daemon):
    daemon = start_daemon(cache={"primary": 16, "secondary": 16})
    with connected(daemon) as client:
        with client.sequence(range(12)) as sequence:
            written = write(client, sequence, 12, np.random.default_rng(2))
            sequence.commit(computed=12)
        client.offload(range(12))
        with client.sequence(range(13)) as again:
            assert again.matched_tokens == 12
            got = again.materialize(1)  # Without wait_ready.
            assert np.array_equal(got.keys, written[1, 0]) and np.array_equal(got.values, written[1, 1])


def test_the_asyncio_client_has_the_same(daemon):
    async def run():
        async with pagoda.aio.connect(f"unix:{daemon.unix_socket}") as client:
            (block,) = await client.allocate_blocks(1)
            await client.fill_blocks([BlockFill(block, 1, finalize=True)])
            with pytest.raises(pagoda.Conflict, match="BLOCK_FINALIZED"):
                await client.fill_blocks([BlockFill(block, 2)])
            async with client.sequence(range(6)) as sequence:
                (pool,) = await client.pools()
                pool.writable_array[sequence.table.slots] = 3
                await sequence.commit(computed=6)
                got = await sequence.materialize(0)
                assert got.keys.shape == (6, 2, 8) and (got.values == 3).all()
                assert (await client.describe_blocks(sequence.table.blocks))[0] == BlockState(1, 4, True, True)
            with pytest.raises(pagoda.NotFound, match="UNKNOWN_SEQUENCE"):
                await sequence.materialize(0)

    asyncio.run(run())


# A message that has bytes of another sequence would have a wrong number in it.
def test_what_is_read_is_the_sequences_while_others_take_and_free_blocks(start_daemon):
    daemon = start_daemon(cache={"layers": [{"count": 1, "num_kv_heads": 8, "head_dim": 512}], "primary": 64, "secondary": 16})
    stopped = threading.Event()

    def churn():
        with connected(daemon) as other:
            (pool, _) = other.pools()
            number = 1_000_000
            while not stopped.is_set():
                number += 100
                with other.sequence(range(number, number + 80)) as sequence:
                    sequence.wait_ready()
                    pool.writable_array[sequence.table.slots] = -1
                    sequence.commit(computed=80)

    thread = threading.Thread(target=churn)
    with connected(daemon) as client:
        (pool, _) = client.pools()
        thread.start()
        try:
            for number in range(1, 25):
                with client.sequence(range(number * 1000, number * 1000 + 120)) as sequence:
                    sequence.wait_ready()
                    pool.writable_array[sequence.table.slots] = number
                    sequence.commit(computed=120)
                    got = sequence.materialize(0)
                    assert (got.keys == number).all() and (got.values == number).all()
        finally:
            stopped.set()
            thread.join()


# The daemon reads slots without a lock. What it sends must be the KV of one moment, even if the
# client cuts the sequence and writes other KV in the same place while the daemon reads.
def test_a_message_is_never_of_two_lives_of_a_sequence(start_daemon):
    # A token has 8 MiB: reading it takes longer than a call.
    daemon = start_daemon(cache={"layers": [{"count": 1, "num_kv_heads": 256, "head_dim": 4096}], "primary": 2})
    counts = {"read": 0, "refused": 0}
    stopped = threading.Event()

    def read():
        while not stopped.is_set():
            try:
                got = sequence.materialize(0, begin=1, end=2)
            except pagoda.BadRequest:  # Cut, and not computed again yet; or cut meanwhile.
                counts["refused"] += 1
                continue
            counts["read"] += 1
            number = got.keys[0, 0, 0]
            assert number > 0 and (got.keys == number).all() and (got.values == number).all()

    with connected(daemon) as client, client.sequence(range(1)) as sequence, concurrent.futures.ThreadPoolExecutor() as pool:
        (memory,) = client.pools()
        token = memory.writable_array[sequence.table.slots[0], 0, :, :, 1]
        reading = pool.submit(read)
        try:
            for number in range(1, 5000):
                if reading.done() or (number > 120 and min(counts.values()) > 10):
                    break
                sequence.truncate(1)
                sequence.append(number)
                token[...] = number
                sequence.commit(computed=2)
        finally:
            stopped.set()
        reading.result()
    assert counts["read"] and counts["refused"], counts
