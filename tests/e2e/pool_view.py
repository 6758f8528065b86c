"""A pool of the daemon, mapped: KV bytes as a numpy array, without a copy.

    pool_view.py ADDRESS SLOT    prints the bytes of one slot of the first pool, mapped for reading alone, in hexadecimal

Run as a program it is the second process of test_mapping.py.
"""

import mmap
import os
import sys

import numpy as np
from pagoda.v1 import mapping_pb2

DTYPES = {1: np.float32, 2: np.float16}  # By pagoda.v1.DType.


def geometry(pool):
    """(shape, strides) of a PoolMapping: [slot][layer][K, V][kv_head][token][head_dim]; the strides are in bytes."""
    shape = (pool.num_slots, len(pool.layers), pool.kv_factor, pool.num_kv_heads, pool.tokens_per_block, pool.head_dim)
    strides = (pool.slot_stride_bytes, pool.layer_stride_bytes, pool.kv_stride_bytes, pool.head_stride_bytes,
               pool.token_stride_bytes, np.dtype(DTYPES[pool.dtype]).itemsize)
    return shape, strides


def map_pool(pool, access=mapping_pb2.MAP_ACCESS_READ_WRITE):
    """A pool of Client.pools as an array [slot][layer][K, V][kv_head][token][head_dim]. Writes go to the pool."""
    (segment,) = pool.segments
    descriptor = pool.open(access)
    kind = mmap.ACCESS_READ if access == mapping_pb2.MAP_ACCESS_READ else mmap.ACCESS_WRITE
    mapped = mmap.mmap(descriptor, segment.offset_bytes + segment.size_bytes, access=kind)
    os.close(descriptor)
    shape, strides = geometry(pool)
    return np.ndarray(shape, DTYPES[pool.dtype], mapped, segment.offset_bytes, strides)


def main():
    from pagoda_client import Client, connect

    address, slot = sys.argv[1:]
    with Client(connect(address), "pool_view") as client:
        view = map_pool(client.pools()[0], mapping_pb2.MAP_ACCESS_READ)
        print(view[int(slot)].tobytes().hex())


if __name__ == "__main__":
    main()
