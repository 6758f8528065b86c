"""A pool of the daemon, mapped: KV bytes as a numpy array, without a copy.

    pool_view.py SHM_NAME OFFSET SIZE SHAPE STRIDES SLOT    prints the bytes of one slot in hexadecimal

SHAPE and STRIDES are comma-separated. Run as a program it is the second process of test_mapping.py.
"""

import mmap
import sys

import numpy as np

DTYPES = {1: np.float32, 2: np.float16}  # By pagoda.v1.DType.


def map_segment(shm_name, offset_bytes, size_bytes, shape, strides, dtype=np.float32):
    """The segment as an array of `shape`; `strides` are in bytes. Writes go to the pool."""
    with open("/dev/shm" + shm_name, "r+b") as memory:
        mapped = mmap.mmap(memory.fileno(), offset_bytes + size_bytes)
    return np.ndarray(shape, dtype, mapped, offset_bytes, strides)


def geometry(pool):
    """(shape, strides) of a PoolMapping: [slot][layer][K, V][kv_head][token][head_dim]."""
    shape = (pool.num_slots, len(pool.layers), pool.kv_factor, pool.num_kv_heads, pool.tokens_per_block, pool.head_dim)
    strides = (pool.slot_stride_bytes, pool.layer_stride_bytes, pool.kv_stride_bytes, pool.head_stride_bytes,
               pool.token_stride_bytes, np.dtype(DTYPES[pool.dtype]).itemsize)
    return shape, strides


def map_pool(pool):
    """The pool as an array [slot][layer][K, V][kv_head][token][head_dim]."""
    segment = pool.segments[0]
    return map_segment(segment.shm_name, segment.offset_bytes, segment.size_bytes, *geometry(pool), DTYPES[pool.dtype])


def main():
    shm_name, offset, size, shape, strides, slot = sys.argv[1:]
    shape, strides = (tuple(map(int, text.split(","))) for text in (shape, strides))
    view = map_segment(shm_name, int(offset), int(size), shape, strides)
    print(view[int(slot)].tobytes().hex())


if __name__ == "__main__":
    main()
