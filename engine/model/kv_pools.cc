#include "engine/model/kv_pools.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "engine/model/model_input.h"

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

// What a layer needs, or a pool has.
std::string Describe(WindowSize window, uint32_t num_kv_heads, uint32_t head_dim,
                     uint32_t kv_factor) {
  return absl::StrCat("window ", WindowName(window), ", ", num_kv_heads, " heads of ", head_dim,
                      kv_factor == 2 ? ", K and V" : ", K alone");
}

// Whether a pool's layer is the model's layer of that number.
absl::Status CheckLayer(const PoolMapping& mapping, uint32_t layer, const ModelConfig& config) {
  const PoolLayout& layout = mapping.layout;
  const std::string pool = absl::StrCat("pool ", mapping.pool_index, " of the cache's window ",
                                        WindowName(mapping.window));
  if (layer >= config.layers.size()) {
    return MakeError(Reason::kInvalidArgument,
                     absl::StrCat(pool, " holds layer ", layer, ", the model has ",
                                  config.layers.size(), " layers"));
  }
  const LayerConfig& wanted = config.layers[layer];
  if (mapping.window == wanted.window && layout.num_kv_heads == wanted.num_kv_heads &&
      layout.head_dim == config.head_dim && layout.kv_factor == 2) {
    return absl::OkStatus();
  }
  return MakeError(
      Reason::kInvalidArgument,
      absl::StrCat(pool, " holds layer ", layer, " as ",
                   Describe(mapping.window, layout.num_kv_heads, layout.head_dim, layout.kv_factor),
                   "; the model needs ",
                   Describe(wanted.window, wanted.num_kv_heads, config.head_dim, 2)));
}

}  // namespace

kernels::KvLayer LayerOfPool(const PoolLayout& layout, uint64_t index, std::byte* slots,
                             uint32_t num_slots) {
  std::byte* const keys = slots + index * layout.layer_stride_bytes();
  return {.keys = keys,
          .values = keys + layout.kv_stride_bytes(),
          .type = ElementTypeOf(layout.dtype),
          .num_slots = num_slots,
          .num_kv_heads = layout.num_kv_heads,
          .tokens_per_block = layout.tokens_per_block,
          .head_dim = layout.head_dim,
          .slot_stride_bytes = layout.slot_stride_bytes(),
          .head_stride_bytes = layout.head_stride_bytes(),
          .token_stride_bytes = layout.token_stride_bytes()};
}

absl::StatusOr<KvPools> KvPools::Map(CacheClient& client, const ModelConfig& config) {
  absl::StatusOr<std::vector<std::unique_ptr<MappedPool>>> mapped =
      client.MapPools(MemoryAccess::kReadWrite);
  if (!mapped.ok()) return mapped.status();

  KvPools result;
  result.layers_.resize(config.layers.size());
  result.windows_ = WindowsOf(config);
  for (const LayerConfig& layer : config.layers) {
    const auto window =
        std::lower_bound(result.windows_.begin(), result.windows_.end(), layer.window);
    result.window_indices_.push_back(static_cast<size_t>(window - result.windows_.begin()));
  }
  for (std::unique_ptr<MappedPool>& pool : *mapped) {
    const PoolMapping& mapping = pool->mapping();
    if (mapping.tier != Tier::kPrimary) continue;
    const MemoryPlace& place = pool->memory().place;
    if (result.pools_.empty()) result.place_ = place;
    if (place != result.place_) {
      return MakeError(Reason::kInvalidArgument,
                       absl::StrCat("primary pools lie in the memory of ", PlaceName(result.place_),
                                    " and of ", PlaceName(place)));
    }
    for (size_t i = 0; i < mapping.layout.layers.size(); ++i) {
      const uint32_t layer = mapping.layout.layers[i];
      if (absl::Status status = CheckLayer(mapping, layer, config); !status.ok()) return status;
      result.layers_[layer] =
          LayerOfPool(mapping.layout, i, reinterpret_cast<std::byte*>(pool->memory().address),
                      mapping.num_slots);
    }
    result.pools_.push_back(std::move(pool));
  }
  const auto missing = std::find_if(result.layers_.begin(), result.layers_.end(),
                                    [](const auto& layer) { return layer.keys == nullptr; });
  if (missing != result.layers_.end()) {
    return MakeError(Reason::kInvalidArgument,
                     absl::StrCat("no pool holds layer ", missing - result.layers_.begin(),
                                  " of the model's ", config.layers.size()));
  }
  return result;
}

}  // namespace pagoda
