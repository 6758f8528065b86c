"""LMCache inside vLLM's own processes, on the CPU, for bench_lmcache.py. There LMCache 0.5.6 has
only connectors for GPUs. Its server mode does copy on the CPU, so this file gives those copies to
the in-process engine. Everything else is LMCache's own code."""

import sys
import types

# LMCache's backend for GPUDirect Storage imports it. Nothing here uses that backend.
sys.modules.setdefault("aiofile", types.ModuleType("aiofile"))

import lmcache.v1.gpu_connector
import torch
from lmcache.v1.gpu_connector import GPUConnectorInterface
from lmcache.v1.multiprocess.transfer_context.base import compute_kv_layout, gather_paged_kv_to_cpu, scatter_cpu_to_paged_kv
from vllm.distributed.kv_transfer.kv_connector.v1.lmcache_connector import LMCacheConnectorV1


class CpuConnector(GPUConnectorInterface):
    """Copies whole chunks between vLLM's blocks and LMCache's memory objects, in the byte order of
    LMCache's server mode."""

    def __init__(self, kv_shape, layout_hints):
        self._kv_shape, self._layout_hints = kv_shape, layout_hints
        self._block_size = None
        self.load_stream = None  # LMCache's engine reads it.

    def get_shape(self, num_tokens):
        layers, planes, _, heads, head_size = self._kv_shape
        return torch.Size([planes, layers, num_tokens, heads * head_size])

    def batched_from_gpu(self, memory_objs, starts, ends, *, kvcaches, slot_mapping, **_):
        layers, blocks, chunks = self._places(memory_objs, starts, ends, kvcaches, slot_mapping)
        gather_paged_kv_to_cpu(layers, blocks, len(blocks) // len(chunks), layout_hints=self._layout_hints, out=chunks)

    def batched_to_gpu(self, memory_objs, starts, ends, *, kvcaches, slot_mapping, vllm_cached_tokens=0, **_):
        layers, blocks, chunks = self._places(memory_objs, starts, ends, kvcaches, slot_mapping)
        scatter_cpu_to_paged_kv(layers, blocks, chunks, len(blocks) // len(chunks), layout_hints=self._layout_hints,
                                skip_first_n_tokens=max(0, vllm_cached_tokens - starts[0]))

    def from_gpu(self, memory_obj, start, end, **call):
        self.batched_from_gpu([memory_obj], [start], [end], **call)

    def to_gpu(self, memory_obj, start, end, **call):
        self.batched_to_gpu([memory_obj], [start], [end], **call)

    def _places(self, memory_objs, starts, ends, kvcaches, slot_mapping):
        """The layers by name, the blocks of all chunks, and the chunks in the copies' layout: K and
        V of a token side by side."""
        layers = dict(enumerate(kvcaches))
        if self._block_size is None:
            self._block_size, *_ = compute_kv_layout(layers, self._layout_hints)
        blocks = [slot // self._block_size for start, end in zip(starts, ends)
                  for slot in slot_mapping[start:end:self._block_size].tolist()]
        chunks = [one.tensor.view(one.tensor.shape[1], end - start, -1) for one, start, end in zip(memory_objs, starts, ends)]
        return layers, blocks, chunks


class LMCacheInProcess(LMCacheConnectorV1):
    """LMCacheConnectorV1 with the copies above."""

    def __init__(self, vllm_config, role, kv_cache_config):
        lmcache.v1.gpu_connector.CreateGPUConnector = (
            lambda config, metadata, engine, layout_hints=None: CpuConnector(metadata.kv_shape, layout_hints))
        super().__init__(vllm_config, role, kv_cache_config)
