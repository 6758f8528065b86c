"""vLLM's KV memory as pages. Each backend has its own arrangement of a page. Only the order of
heads and tokens matters here."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from pagoda.connector import Codec, LayerPages, RankPages
from pagoda.vllm.options import Options

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.kv_cache_interface import KVCacheConfig


class NotCacheable(ValueError):
    """The KV of this model or engine cannot be stored in Pagoda."""


def check(config: "VllmConfig", kv_cache: "KVCacheConfig") -> None:
    """NotCacheable: with the reason."""
    from vllm.v1.kv_cache_interface import KVCacheSpecKind, get_kv_cache_spec_kind, iter_layer_specs

    parallel = config.parallel_config
    if parallel.decode_context_parallel_size > 1 or getattr(parallel, "prefill_context_parallel_size", 1) > 1:
        raise NotCacheable("context parallelism spreads the tokens of a block over ranks: Pagoda's connector does not support it")
    known = {KVCacheSpecKind.FULL_ATTENTION, KVCacheSpecKind.MLA_ATTENTION, KVCacheSpecKind.SLIDING_WINDOW,
             KVCacheSpecKind.SLIDING_WINDOW_MLA}
    for group in kv_cache.kv_cache_groups:
        kind = get_kv_cache_spec_kind(group.kv_cache_spec)
        if kind not in known:
            raise NotCacheable(f"layers of the kind {kind.value} ({group.layer_names[0]}) keep more than keys and values of tokens: "
                               "Pagoda's connector does not support them")
        if not group.enable_kv_transfer or group.host_resident:
            raise NotCacheable(f"vLLM does not allow connectors for the KV of {group.layer_names[0]}")
        if any(getattr(spec, "tokens_per_state", 1) != 1 for spec in iter_layer_specs(group.kv_cache_spec)):
            raise NotCacheable(f"{group.layer_names[0]} keeps one state for several tokens: Pagoda's connector does not support it")


def block_sizes(kv_cache: "KVCacheConfig") -> list[int]:
    """Tokens of a block, by group."""
    return [group.kv_cache_spec.block_size for group in kv_cache.kv_cache_groups]


def window_of(spec: Any) -> int:
    """Tokens; 0 is full attention."""
    from vllm.v1.kv_cache_interface import get_kv_cache_spec_sliding_window, iter_layer_specs

    window = get_kv_cache_spec_sliding_window(spec)
    if window is None:
        return 0
    return int(window) + max(int(getattr(one, "extra_retained_tokens", 0) or 0) for one in iter_layer_specs(spec))


def describe(config: "VllmConfig", kv_cache: "KVCacheConfig", memory: Mapping[str, torch.Tensor], *, tp_rank: int, pp_rank: int,
             backend: str, codec: Codec | None = None) -> tuple[RankPages, dict[LayerPages, torch.Tensor]]:
    """Describes a worker's memory: its report, and each layer's memory as bytes, (blocks, pieces,
    heads, chunk bytes).

    `memory`: as vLLM registers it, logically (blocks, heads, tokens, content). `codec`: converts it
    for the slots.
    NotCacheable: a block is not one run of bytes, or cannot be converted.
    """
    # The number of consecutive ranks that hold the same bytes, according to vLLM: those of latent
    # attention. With fewer heads than ranks, each rank's copy is stored, and other numbers of ranks
    # do not match.
    replicas = max(int(kv_cache.kv_tp_replicas), 1)
    shards = config.parallel_config.tensor_parallel_size // replicas
    layers: dict[LayerPages, torch.Tensor] = {}
    apart = True
    for group_index, group in enumerate(kv_cache.kv_cache_groups):
        for name in group.layer_names:
            if name not in memory:
                raise NotCacheable(f"vLLM registered no memory for layer {name}")
            pages, has_heads_apart = _as_bytes(name, memory[name], kv_cache.num_blocks)
            apart = apart and has_heads_apart
            layers[LayerPages(name, group_index, window_of(group.kv_cache_spec), pages.shape[1], pages.shape[2], pages.shape[3],
                              shard=tp_rank // replicas, shards=shards, is_writer=tp_rank % replicas == 0,
                              stored_chunk_bytes=_stored_bytes(codec, name, pages.shape[3]))] = pages
    # In the model's order, which is the order of the numbers in the names.
    in_order = sorted(layers, key=lambda layer: [int(part) if part.isdigit() else -1 for part in layer.name.split(".")])
    # If heads are not stored separately, another number of ranks cuts a page differently.
    cut = "heads" if apart else f"tp{shards}"
    import vllm

    form = f":{codec.name}" if codec else ""
    return RankPages(pp_rank, tuple(in_order), f"{backend}:{cut}:vllm-{vllm.__version__}{form}"), {layer: layers[layer] for layer in in_order}


def codec_of(options: Options, memory: Mapping[str, torch.Tensor]) -> Codec | None:
    """NotCacheable: KV of this type cannot be converted."""
    if options.stored_dtype == "auto":
        return None
    from pagoda.connector.float8 import Float8

    types = {tensor.dtype for tensor in memory.values()}
    try:
        (dtype,) = types
        return Float8(dtype)
    except ValueError:
        raise NotCacheable(f'stored_dtype "{options.stored_dtype}" is for KV of bfloat16, float16 or float32, and vLLM has '
                           f"{', '.join(sorted(map(str, types)))}") from None


def _stored_bytes(codec: Codec | None, name: str, chunk_bytes: int) -> int:
    try:
        return codec.stored_bytes(chunk_bytes) if codec else 0
    except ValueError as error:
        raise NotCacheable(f"layer {name}: {error}") from None


def _as_bytes(name: str, memory: torch.Tensor, num_blocks: int) -> tuple[torch.Tensor, bool]:
    """Returns a view (blocks, pieces, heads, chunk bytes) of a layer, and whether its heads are
    stored separately. If they are not, "heads" is 1."""
    # The kernels' blocks can be smaller than vLLM's.
    blocks = memory.unsqueeze(1) if memory.shape[0] == num_blocks else memory.unflatten(0, (num_blocks, -1))
    inner = blocks[0, 0]
    if not _is_one_run(inner):
        raise NotCacheable(f"a block of layer {name} is not one run of bytes: {tuple(memory.shape)} with strides {memory.stride()}")
    apart = inner.is_contiguous()
    heads = inner.shape[0] if apart and inner.dim() >= 3 else 1
    item = memory.element_size()
    chunk_bytes = inner.numel() * item // heads
    storage = torch.empty(0, dtype=torch.uint8, device=memory.device).set_(memory.untyped_storage())
    return torch.as_strided(storage, (blocks.shape[0], blocks.shape[1], heads, chunk_bytes),
                            (blocks.stride(0) * item, blocks.stride(1) * item, chunk_bytes, 1), blocks.storage_offset() * item), apart


def _is_one_run(inner: torch.Tensor) -> bool:
    """Whether the elements fill one range of memory, in any order."""
    size = 1
    for extent, stride in sorted(zip(inner.shape, inner.stride()), key=lambda pair: pair[1]):
        if extent > 1 and stride != size:
            return False
        size *= extent
    return True
