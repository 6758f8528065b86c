"""SGLang's own cache and host pools without a GPU. SGLang has no CPU kernels on PyPI, so torch
makes the copies between its device pools and its host pools here. Everything else is SGLang's own
code."""

import os
import sys
import types

os.environ.setdefault("HF_HUB_OFFLINE", "1")
# SGLang's test fixtures import its benchmarks, which import the package datasets. Nothing here
# needs it.
if "datasets" not in sys.modules:
    sys.modules["datasets"] = types.ModuleType("datasets")
    sys.modules["datasets"].load_dataset = None

import torch
from sglang.srt.mem_cache.hicache_storage import HiCacheStorageConfig
from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool, MLATokenToKVPool
from sglang.srt.mem_cache.pool_host import base, common
from sglang.srt.mem_cache.pool_host.mha import MHATokenToKVPoolHost
from sglang.srt.mem_cache.pool_host.mla import MLATokenToKVPoolHost
from sglang.srt.mem_cache.storage import StorageBackendFactory

MHA_LAYOUTS = ("layer_first", "page_first", "page_first_direct", "page_head")
MLA_LAYOUTS = ("layer_first", "page_first", "page_first_direct", "page_first_kv_split")
MODEL = "org/model"


def _allocate(dims, dtype, device, pin_memory, allocator, registration_granularity_bytes=None):
    return allocator.allocate(dims, dtype=dtype, device=device)


common.ALLOC_MEMORY_FUNCS["cpu"] = _allocate
base.HICACHE_HOST_MEMORY_RESERVE_BYTES = 0


def mha_pool(layout, *, layers=3, heads=4, head_dim=16, pages=8, page_size=4, dtype=torch.bfloat16):
    """A host pool that mirrors a device pool of so many pages."""
    device = MHATokenToKVPool(size=pages * page_size, page_size=page_size, dtype=dtype, head_num=heads, head_dim=head_dim, layer_num=layers,
                              device="cpu", enable_memory_saver=False)
    return MHATokenToKVPoolHost(device.get_device_pool_infos()[0].buffer_info, 1.0, 0, page_size, layout, pin_memory=False,
                                device_capacity_tokens=pages * page_size, start_layer=0, end_layer=layers - 1)


def mla_pool(layout, *, layers=3, pages=8, page_size=4, dtype=torch.bfloat16, kv_lora_rank=64, rope=16):
    if layout == "page_first_kv_split":
        return _split_pool(layers, pages, page_size, dtype, kv_lora_rank, rope)
    device = MLATokenToKVPool(size=pages * page_size, page_size=page_size, dtype=dtype, kv_lora_rank=kv_lora_rank, qk_rope_head_dim=rope,
                              layer_num=layers, device="cpu", enable_memory_saver=False)
    return MLATokenToKVPoolHost(device.get_device_pool_infos()[0].buffer_info, 1.0, 0, page_size, layout, pin_memory=False,
                                device_capacity_tokens=pages * page_size, start_layer=0, end_layer=layers - 1, target_layer_num=layers)


def _split_pool(layers, pages, page_size, dtype, kv_lora_rank, rope):
    """Behaves like the pool of Ascend NPUs, which has an indexer's keys besides K and V."""
    from sglang.srt.mem_cache.device_pool_info import MLABufferInfo, MLASplitBuffers

    rows = pages * page_size
    buffers = MLASplitBuffers(k=torch.zeros(layers, rows, kv_lora_rank, dtype=dtype), v=torch.zeros(layers, rows, rope, dtype=dtype),
                              index_k=torch.zeros(2, rows, 8, dtype=dtype), index_scales=torch.zeros(2, rows, 1),
                              index_layer_indices=(0, 1), k_width=kv_lora_rank, v_width=rope, index_width=8)
    info = MLABufferInfo(buffers=buffers, data_ptrs=None, layer_indices=tuple(range(layers)), device_layer_num=layers, page_size=page_size,
                         kv_lora_rank=kv_lora_rank, qk_rope_head_dim=rope, kv_cache_dim=kv_lora_rank + rope, dtype=dtype,
                         device=torch.device("cpu"))
    return MLATokenToKVPoolHost(info, 1.0, 0, page_size, "page_first_kv_split", pin_memory=False, device_capacity_tokens=rows,
                                start_layer=0, end_layer=layers - 1, target_layer_num=layers)


def buffers(pool):
    """All tensors of a host pool."""
    if pool.layout == "page_first_kv_split":
        return [pool.k_buffer, pool.v_buffer, pool.index_k_buffer, pool.index_k_scale_buffer]
    return [pool.kv_buffer]


def fill(pool, seed):
    """Random bytes everywhere."""
    generator = torch.Generator().manual_seed(seed)
    for tensor in buffers(pool):
        bits = tensor.view(torch.uint8)
        bits.copy_(torch.randint(0, 256, bits.shape, generator=generator, dtype=torch.uint8))


def page_bytes(pool, page):
    """What SGLang says a page is, by its addresses."""
    import ctypes

    indices = torch.arange(page * pool.page_size, (page + 1) * pool.page_size)
    return b"".join(ctypes.string_at(pointer, size) for pointer, size in zip(*pool.get_page_buffer_meta(indices)))


def indices(pool, pages):
    return torch.cat([torch.arange(page * pool.page_size, (page + 1) * pool.page_size) for page in pages])


def config(endpoint, *, mla=False, tp_rank=0, tp_size=1, tp_lcm_size=None, model=MODEL, interface_v1=1, pp_rank=0, pp_size=1, **pagoda):
    """The configuration that SGLang makes of its flags."""
    return HiCacheStorageConfig(
        tp_rank=tp_rank, tp_size=tp_size, pp_rank=pp_rank, pp_size=pp_size, attn_cp_rank=0, attn_cp_size=1, is_mla_model=mla,
        enable_storage_metrics=False, is_page_first_layout=False, model_name=model, tp_lcm_size=tp_lcm_size, extra_config=extra_config(
            endpoint, interface_v1=interface_v1, **pagoda))


def extra_config(endpoint, *, interface_v1=1, **pagoda):
    return {"backend_name": "pagoda", "module_path": "pagoda.sglang", "class_name": "PagodaHiCacheStorage", "interface_v1": interface_v1,
            "pagoda": {"endpoint": endpoint, "host": "16MiB", **pagoda}}


def storage(endpoint, pool, **changes):
    """Made by SGLang's own factory, as SGLang's controller does it."""
    made = StorageBackendFactory.create_backend("dynamic", config(endpoint, **changes), pool)
    made.register_mem_pool_host(pool)
    return made


# --- SGLang's radix cache, with torch instead of the kernels ---

def _layers(pool):
    """(device buffer, the host's of the same layer and kind, with tokens first)."""
    axis = {"layer_first": 0, "page_first": 1}[pool.layout]
    if isinstance(pool, MLATokenToKVPoolHost):
        return [[(device, pool.kv_buffer.select(axis, layer))] for layer, device in enumerate(pool.device_kv_buffers)]
    return [[(pool.device_k_buffers[layer], pool.kv_buffer[0].select(axis, layer)),
             (pool.device_v_buffers[layer], pool.kv_buffer[1].select(axis, layer))] for layer in range(pool.layer_num)]


def _backup(self, device_pool, host_indices, device_indices, io_backend):
    for layer in _layers(self):
        for device, host in layer:
            host[host_indices] = device[device_indices]


def _load(self, device_pool, host_indices, device_indices, layer_id, io_backend, *, is_draft=False):
    for device, host in _layers(self)[layer_id]:
        device[device_indices] = host[host_indices]


def use_torch_for_copies(monkeypatch):
    for pool in (MHATokenToKVPoolHost, MLATokenToKVPoolHost):
        monkeypatch.setattr(pool, "backup_from_device_all_layer", _backup)
        monkeypatch.setattr(pool, "load_to_device_per_layer", _load)
