"""A client writes KV through its own mapping of the pool, and another process reads it."""

import subprocess
import sys

import numpy as np
import pool_view
from pagoda_client import Client
from pagoda.v1 import types_pb2


def read_in_another_process(pool, slot):
    """The bytes of a slot as a second process sees them."""
    segment = pool.segments[0]
    shape, strides = (",".join(map(str, values)) for values in pool_view.geometry(pool))
    command = [sys.executable, pool_view.__file__, segment.shm_name, str(segment.offset_bytes), str(segment.size_bytes),
               shape, strides, str(slot)]
    return bytes.fromhex(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def test_a_pool_is_described_as_it_is_laid_out(daemon):
    with Client(daemon.channel) as client:
        (pool,) = client.pools()
        assert (pool.tier, pool.dtype) == (types_pb2.TIER_PRIMARY, types_pb2.DTYPE_FLOAT32)
        shape, strides = pool_view.geometry(pool)
        assert shape == (64, 2, 2, 2, 4, 8)
        contiguous = np.empty(shape, np.float32)
        assert strides == contiguous.strides
        (segment,) = pool.segments
        assert segment.size_bytes == contiguous.nbytes
        assert (segment.first_slot, segment.num_slots) == (0, 64)
        assert daemon.primary().block_bytes == pool.slot_stride_bytes


def test_kv_written_into_an_allocated_block_is_read_by_another_process(daemon):
    with Client(daemon.channel) as client:
        (pool,) = client.pools()
        kv = pool_view.map_pool(pool)
        block = client.allocate(3)[1]
        before = kv.copy()
        written = np.random.default_rng(7).standard_normal(kv.shape[1:], np.float32)
        kv[block.slot_index] = written
        assert read_in_another_process(pool, block.slot_index) == written.tobytes()
        others = np.arange(kv.shape[0]) != block.slot_index
        assert (kv[others] == before[others]).all()


def test_kv_of_a_sequence_lies_where_its_block_table_says(daemon):
    """Each token's K and V at token slot slot_index * tokens_per_block + offset, read back whole by another client's match."""
    tokens = list(range(100, 111))
    with Client(daemon.channel, "writer") as writer, Client(daemon.connect(), "reader") as reader:
        (pool,) = writer.pools()
        kv = pool_view.map_pool(pool)
        table = writer.add(1, tokens).tables[0].blocks
        assert len(table) == 3
        for position, token in enumerate(tokens):
            slot = table[position // 4].slot_index
            kv[slot, :, :, :, position % 4, :] = token
        writer.commit(1, len(tokens))
        writer.free_sequence(1)

        added = reader.add(9, tokens[:8] + [1, 2])
        assert added.matched_tokens == 8
        theirs = pool_view.map_pool(reader.pools()[0])
        for position in range(8):
            slot = added.tables[0].blocks[position // 4].slot_index
            assert (theirs[slot, :, :, :, position % 4, :] == tokens[position]).all()
