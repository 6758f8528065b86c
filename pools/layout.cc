#include "pools/layout.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/error.h"

namespace pagoda {
namespace {

constexpr uint32_t kMaxTokensPerBlock = 1024;
// Far above any model; with them a slot's bytes fit 64 bits with room to spare.
constexpr uint64_t kMaxElementsPerToken = uint64_t{1} << 20;  // Of K, in a layer.
constexpr size_t kMaxLayers = 4096;

absl::Status CheckSpec(const CacheSpec& spec) {
  if (spec.layers.empty() || spec.layers.size() > kMaxLayers) {
    return MakeError(Reason::kInvalidArgument, absl::StrCat("a cache of ", spec.layers.size(),
                                                            " layers, not 1 to ", kMaxLayers));
  }
  if (!std::has_single_bit(spec.tokens_per_block) || spec.tokens_per_block > kMaxTokensPerBlock) {
    return MakeError(Reason::kInvalidArgument,
                     absl::StrCat("tokens_per_block is ", spec.tokens_per_block,
                                  ", not a power of two from 1 to ", kMaxTokensPerBlock));
  }
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const LayerSpec& layer = spec.layers[i];
    if (layer.num_kv_heads == 0 || layer.head_dim == 0 || layer.window.value() == 0) {
      return MakeError(
          Reason::kInvalidArgument,
          absl::StrCat("layer ", i, " has num_kv_heads ", layer.num_kv_heads, ", head_dim ",
                       layer.head_dim, ", window ", WindowName(layer.window), "; none may be 0"));
    }
    const uint64_t elements = uint64_t{layer.num_kv_heads} * layer.head_dim;
    if (elements > kMaxElementsPerToken) {
      return MakeError(Reason::kInvalidArgument,
                       absl::StrCat("layer ", i, " has ", elements, " elements a token; at most ",
                                    kMaxElementsPerToken, " are served"));
    }
  }
  return absl::OkStatus();
}

PoolLayout EmptyPool(const LayerSpec& layer, uint32_t tokens_per_block) {
  PoolLayout pool;
  pool.num_kv_heads = layer.num_kv_heads;
  pool.head_dim = layer.head_dim;
  pool.dtype = layer.dtype;
  pool.kv_factor = layer.kind == KvKind::kKeyAndValue ? 2 : 1;
  pool.tokens_per_block = tokens_per_block;
  return pool;
}

bool SameShape(const PoolLayout& a, const PoolLayout& b) {
  return a.num_kv_heads == b.num_kv_heads && a.head_dim == b.head_dim && a.dtype == b.dtype &&
         a.kv_factor == b.kv_factor;
}

// The position of the element for which `matches` holds; appends `fresh` where there is none.
template <class T, class Predicate>
uint32_t FindOrAppend(std::vector<T>& items, Predicate matches, T fresh) {
  const auto it = std::find_if(items.begin(), items.end(), matches);
  const auto index = static_cast<uint32_t>(it - items.begin());
  if (it == items.end()) items.push_back(std::move(fresh));
  return index;
}

}  // namespace

uint32_t DTypeBytes(DType dtype) { return dtype == DType::kFloat32 ? 4 : 2; }

std::string_view DTypeName(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return "float32";
    case DType::kFloat16:
      return "float16";
    case DType::kBFloat16:
      return "bfloat16";
  }
  return "unknown";
}

uint64_t WindowLayout::block_bytes() const {
  uint64_t bytes = 0;
  for (const PoolLayout& pool : pools) bytes += pool.slot_stride_bytes();
  return bytes;
}

absl::StatusOr<CacheLayout> CacheLayout::Create(CacheSpec spec) {
  if (absl::Status status = CheckSpec(spec); !status.ok()) return status;

  CacheLayout layout;
  for (const LayerSpec& layer : spec.layers) {
    FindOrAppend(
        layout.windows_, [&](const WindowLayout& w) { return w.window == layer.window; },
        WindowLayout{layer.window, {}});
  }
  std::sort(layout.windows_.begin(), layout.windows_.end(),
            [](const WindowLayout& a, const WindowLayout& b) { return a.window < b.window; });

  for (uint32_t i = 0; i < spec.layers.size(); ++i) {
    const LayerSpec& layer = spec.layers[i];
    const uint32_t window_index = FindOrAppend(
        layout.windows_, [&](const WindowLayout& w) { return w.window == layer.window; },
        WindowLayout{});
    std::vector<PoolLayout>& pools = layout.windows_[window_index].pools;
    const PoolLayout fresh = EmptyPool(layer, spec.tokens_per_block);
    const uint32_t pool_index = FindOrAppend(
        pools, [&](const PoolLayout& p) { return SameShape(p, fresh); }, fresh);
    layout.locations_.push_back(
        {window_index, pool_index, static_cast<uint32_t>(pools[pool_index].layers.size())});
    pools[pool_index].layers.push_back(i);
  }
  layout.spec_ = std::move(spec);
  return layout;
}

}  // namespace pagoda
