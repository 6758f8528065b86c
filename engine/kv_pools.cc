#include "engine/kv_pools.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "pools/error.h"

namespace pagoda {
namespace {

kernels::ElementType ElementTypeOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return kernels::ElementType::kFloat16;
    case DType::kBFloat16:
      return kernels::ElementType::kBFloat16;
    case DType::kFloat32:
      break;
  }
  return kernels::ElementType::kFloat32;
}

// The pool's layer at `index` of its layer dimension.
kernels::KvLayer LayerOf(const MappedPool& pool, uint64_t index) {
  const PoolLayout& layout = pool.mapping().layout;
  std::byte* const keys = pool.bytes().data() + index * layout.layer_stride_bytes();
  return {.keys = keys,
          .values = keys + layout.kv_stride_bytes(),
          .type = ElementTypeOf(layout.dtype),
          .num_slots = pool.mapping().num_slots,
          .num_kv_heads = layout.num_kv_heads,
          .tokens_per_block = layout.tokens_per_block,
          .head_dim = layout.head_dim,
          .slot_stride_bytes = layout.slot_stride_bytes(),
          .head_stride_bytes = layout.head_stride_bytes(),
          .token_stride_bytes = layout.token_stride_bytes()};
}

// Whether a pool can hold layers of the model.
absl::Status CheckPool(const PoolMapping& mapping, const ModelConfig& config) {
  const PoolLayout& layout = mapping.layout;
  const MappingSegment& segment = mapping.segments.front();
  if (segment.place.kind != MemoryKind::kHost) {
    return MakeError(Reason::kInvalidArgument,
                     absl::StrCat("pool ", mapping.pool_index, " lies in the memory of ",
                                  PlaceName(segment.place),
                                  "; this engine's kernels run on the CPU, so the daemon needs "
                                  "cache.primary_memory: host"));
  }
  if (mapping.window == kFullAttention && layout.kv_factor == 2 &&
      layout.num_kv_heads == config.num_kv_heads && layout.head_dim == config.head_dim) {
    return absl::OkStatus();
  }
  return MakeError(
      Reason::kInvalidArgument,
      absl::StrCat("pool ", mapping.pool_index, " of window ", WindowName(mapping.window), " has ",
                   layout.num_kv_heads, " heads of ", layout.head_dim, " with kv_factor ",
                   layout.kv_factor, "; the model needs full attention, ", config.num_kv_heads,
                   " heads of ", config.head_dim, " and kv_factor 2"));
}

}  // namespace

absl::StatusOr<KvPools> KvPools::Map(CacheClient& client, const ModelConfig& config) {
  absl::StatusOr<std::vector<std::unique_ptr<MappedPool>>> mapped =
      client.MapPools(MemoryAccess::kReadWrite);
  if (!mapped.ok()) return mapped.status();

  KvPools result;
  result.layers_.resize(config.num_layers);
  for (std::unique_ptr<MappedPool>& pool : *mapped) {
    const PoolMapping& mapping = pool->mapping();
    if (mapping.tier != Tier::kPrimary) continue;
    if (absl::Status status = CheckPool(mapping, config); !status.ok()) return status;
    for (size_t i = 0; i < mapping.layout.layers.size(); ++i) {
      const uint32_t layer = mapping.layout.layers[i];
      if (layer < config.num_layers) result.layers_[layer] = LayerOf(*pool, i);
    }
    result.pools_.push_back(std::move(pool));
  }
  const auto missing = std::find_if(result.layers_.begin(), result.layers_.end(),
                                    [](const auto& layer) { return layer.keys == nullptr; });
  if (missing != result.layers_.end()) {
    return MakeError(Reason::kInvalidArgument,
                     absl::StrCat("no pool holds layer ", missing - result.layers_.begin(),
                                  " of the model's ", config.num_layers));
  }
  return result;
}

}  // namespace pagoda
