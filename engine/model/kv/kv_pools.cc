#include "engine/model/kv/kv_pools.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "engine/model/backend/model_input.h"

namespace pagoda {
namespace {

std::string NameOf(const PoolMapping& mapping) {
  return absl::StrCat("pool ", mapping.pool_index, " of the cache's window ",
                      WindowName(mapping.window));
}

// Describes the needs of a layer, or the properties of a pool.
std::string Describe(WindowSize window, uint32_t num_kv_heads, uint32_t head_dim,
                     uint32_t kv_factor) {
  return absl::StrCat("window ", WindowName(window), ", ", num_kv_heads, " heads of ", head_dim,
                      kv_factor == 2 ? ", K and V" : ", K only");
}

// Checks that a pool's layer matches the model's layer of the same number.
absl::Status CheckLayer(const PoolMapping& mapping, uint32_t layer, const ModelConfig& config) {
  const PoolLayout& layout = mapping.layout;
  const std::string pool = NameOf(mapping);
  if (layer >= config.layers.size()) {
    return MakeError(Reason::kInvalidArgument,
                     absl::StrCat(pool, " holds layer ", layer, ", but the model has ",
                                  config.layers.size(), " layers"));
  }
  const LayerConfig& wanted = config.layers[layer];
  const uint32_t kv_factor = wanted.kind == KvKind::kKeyOnly ? 1 : 2;
  const bool opaque = layout.content == PoolContent::kOpaque;
  if (layout.dtype == DType::kUint8) {
    return MakeError(Reason::kInvalidArgument,
                     absl::StrCat(pool, " holds layer ", layer, " as ",
                                  opaque ? "opaque bytes" : "uint8", ", which no kernel reads"));
  }
  if (mapping.window == wanted.window && layout.num_kv_heads == wanted.num_kv_heads &&
      layout.head_dim == config.head_dim && layout.kv_factor == kv_factor) {
    return absl::OkStatus();
  }
  return MakeError(
      Reason::kInvalidArgument,
      absl::StrCat(pool, " holds layer ", layer, " as ",
                   Describe(mapping.window, layout.num_kv_heads, layout.head_dim, layout.kv_factor),
                   "; the model needs ",
                   Describe(wanted.window, wanted.num_kv_heads, config.head_dim, kv_factor)));
}

}  // namespace

kernels::ElementType ElementTypeOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return kernels::ElementType::kFloat16;
    case DType::kBFloat16:
      return kernels::ElementType::kBFloat16;
    case DType::kFloat8E4M3:
      return kernels::ElementType::kFloat8E4M3;
    case DType::kFloat8E5M2:
      return kernels::ElementType::kFloat8E5M2;
    case DType::kFloat32:
    case DType::kUint8:
      break;
  }
  return kernels::ElementType::kFloat32;
}

kernels::KvLayer LayerOfPool(const PoolLayout& layout, uint64_t index, std::byte* slots,
                             uint32_t num_slots) {
  std::byte* const keys = slots + index * layout.layer_stride_bytes();
  return {.keys = keys,
          .values = layout.kv_factor == 2 ? keys + layout.kv_stride_bytes() : keys,
          .type = ElementTypeOf(layout.dtype),
          .num_slots = num_slots,
          .num_kv_heads = layout.num_kv_heads,
          .tokens_per_block = layout.tokens_per_block,
          .head_dim = layout.head_dim,
          .slot_stride_bytes = layout.slot_stride_bytes(),
          .head_stride_bytes = layout.head_stride_bytes(),
          .token_stride_bytes = layout.token_stride_bytes()};
}

kernels::KvScales ScalesOfPool(const PoolLayout& layout, uint64_t index, const std::byte* slots) {
  const auto* keys = reinterpret_cast<const float*>(slots + index * layout.layer_stride_bytes());
  return {.keys = keys,
          .values = layout.kv_factor == 2 ? keys + layout.num_kv_heads : keys,
          .per_head = true,
          .slot_stride = layout.slot_stride_bytes() / sizeof(float)};
}

absl::Status KvPools::AddLayers(const MappedPool& pool, const ModelConfig& config) {
  const PoolMapping& mapping = pool.mapping();
  const PoolLayout& layout = mapping.layout;
  for (size_t i = 0; i < layout.layers.size(); ++i) {
    const uint32_t layer = layout.layers[i];
    if (absl::Status status = CheckLayer(mapping, layer, config); !status.ok()) return status;
    layers_[layer] = LayerOfPool(layout, i, reinterpret_cast<std::byte*>(pool.memory().address),
                                 mapping.num_slots);
    layers_[layer].value_dim = config.layers[layer].value_dim;
  }
  return absl::OkStatus();
}

// Adds the scales of layers that AddLayers has added.
absl::Status KvPools::AddScales(const MappedPool& pool) {
  const PoolMapping& mapping = pool.mapping();
  const PoolLayout& layout = mapping.layout;
  for (size_t i = 0; i < layout.layers.size(); ++i) {
    const uint32_t layer = layout.layers[i];
    const bool fits = layer < layers_.size() && kernels::IsFloat8(layers_[layer].type) &&
                      layers_[layer].num_kv_heads == layout.num_kv_heads &&
                      (layers_[layer].values == layers_[layer].keys) == (layout.kv_factor == 1) &&
                      layers_[layer].num_slots == mapping.num_slots;
    if (!fits) {
      return MakeError(
          Reason::kInvalidArgument,
          absl::StrCat(NameOf(mapping), " holds scales of layer ", layer,
                       ", but no float8 pool with the same number of heads has this layer"));
    }
    layers_[layer].scales =
        ScalesOfPool(layout, i, reinterpret_cast<const std::byte*>(pool.memory().address));
  }
  return absl::OkStatus();
}

absl::Status KvPools::CheckComplete() const {
  for (size_t i = 0; i < layers_.size(); ++i) {
    if (layers_[i].keys == nullptr) {
      return MakeError(Reason::kInvalidArgument,
                       absl::StrCat("no pool holds layer ", i, " of the model's ", layers_.size()));
    }
    if (kernels::IsFloat8(layers_[i].type) && layers_[i].scales.keys == nullptr) {
      return MakeError(Reason::kInvalidArgument,
                       absl::StrCat("no pool holds the scales of layer ", i));
    }
  }
  return absl::OkStatus();
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
    if (mapping.tier != kPrimaryTier) continue;
    const MemoryPlace& place = pool->memory().place;
    if (result.pools_.empty()) result.place_ = place;
    if (place != result.place_) {
      return MakeError(Reason::kInvalidArgument,
                       absl::StrCat("primary pools lie in the memory of ", PlaceName(result.place_),
                                    " and of ", PlaceName(place)));
    }
    if (mapping.layout.content != PoolContent::kScales) {
      if (absl::Status status = result.AddLayers(*pool, config); !status.ok()) return status;
    }
    result.pools_.push_back(std::move(pool));
  }
  for (const std::unique_ptr<MappedPool>& pool : result.pools_) {
    if (pool->mapping().layout.content != PoolContent::kScales) continue;
    if (absl::Status status = result.AddScales(*pool); !status.ok()) return status;
  }
  if (absl::Status status = result.CheckComplete(); !status.ok()) return status;
  return result;
}

}  // namespace pagoda
