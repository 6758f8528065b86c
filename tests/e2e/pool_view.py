"""A pool of the daemon, mapped: KV bytes as a numpy array, without a copy."""

import mmap
import os

import numpy as np
from pagoda.v1 import mapping_pb2, types_pb2

# By pagoda.v1.DType. bfloat16 and fp8 are represented by their bits.
DTYPES = {1: np.float32, 2: np.float16, 3: np.uint16, 4: np.uint8, 5: np.uint8, 6: np.uint8}


def geometry(pool):
    """(shape, strides) of a PoolMapping, the strides in bytes. The dimensions are
    [slot][layer][K, V][kv_head][token][head_dim]; for scales [slot][layer][K, V][kv_head]; for
    opaque bytes [slot][layer][byte]."""
    item = np.dtype(DTYPES[pool.dtype]).itemsize
    if pool.content == types_pb2.POOL_CONTENT_OPAQUE:
        return ((pool.num_slots, len(pool.layers), pool.layer_stride_bytes), (pool.slot_stride_bytes, pool.layer_stride_bytes, item))
    shape = (pool.num_slots, len(pool.layers), pool.kv_factor, pool.num_kv_heads)
    strides = (pool.slot_stride_bytes, pool.layer_stride_bytes, pool.kv_stride_bytes, pool.head_stride_bytes)
    if pool.content == types_pb2.POOL_CONTENT_SCALES:
        return shape, strides
    return shape + (pool.tokens_per_block, pool.head_dim), strides + (pool.token_stride_bytes, item)


def map_pool(pool, access=mapping_pb2.MAP_ACCESS_READ_WRITE):
    """A pool of Client.pools as an array with the geometry's shape. Writes go to the pool. Errors:
    ValueError for a pool that is not in host memory."""
    (segment,) = pool.segments
    if segment.memory_kind not in (types_pb2.MEMORY_KIND_UNSPECIFIED, types_pb2.MEMORY_KIND_HOST):
        kind = types_pb2.MemoryKind.Name(segment.memory_kind)
        raise ValueError(f"pool {segment.shm_name} lies in {kind} of device {segment.device}; numpy maps host memory alone: use the package's "
                         "Pool.device_array or Pool.tensor, or start the daemon with cache.primary_memory: host")
    descriptor = pool.open(access)
    kind = mmap.ACCESS_READ if access == mapping_pb2.MAP_ACCESS_READ else mmap.ACCESS_WRITE
    mapped = mmap.mmap(descriptor, segment.offset_bytes + segment.size_bytes, access=kind)
    os.close(descriptor)
    shape, strides = geometry(pool)
    return np.ndarray(shape, DTYPES[pool.dtype], mapped, segment.offset_bytes, strides)
