#include "pools/layout.h"

#include <algorithm>
#include <bit>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/error.h"

namespace pagoda {
namespace {

constexpr uint32_t kMaxTokensPerBlock = 1024;
// Far above any model. With these limits a slot's bytes easily fit 64 bits.
constexpr uint64_t kMaxElementsPerToken = uint64_t{1} << 20;  // K elements of one layer.
constexpr size_t kMaxLayers = 4096;

absl::Status Refuse(size_t layer, const std::string& why) {
  return MakeError(Reason::kInvalidArgument, absl::StrCat("layer ", layer, why));
}

absl::Status CheckOpaque(size_t i, const LayerSpec& layer) {
  if (layer.num_kv_heads != 0 || layer.head_dim != 0) {
    return Refuse(i, absl::StrCat(" is opaque, and has num_kv_heads ", layer.num_kv_heads,
                                  " and head_dim ", layer.head_dim, "; both have to be 0"));
  }
  if (layer.bytes_per_block == 0 || layer.bytes_per_block > kMaxOpaqueBytes) {
    return Refuse(i, absl::StrCat(" is opaque, of ", layer.bytes_per_block,
                                  " bytes_per_block, not 1 to ", kMaxOpaqueBytes));
  }
  return absl::OkStatus();
}

absl::Status CheckElements(size_t i, const LayerSpec& layer) {
  if (layer.dtype > DType::kUint8) {
    return Refuse(i, absl::StrCat(" has the unknown dtype ", static_cast<int>(layer.dtype)));
  }
  if (layer.bytes_per_block != 0) {
    return Refuse(i, absl::StrCat(" has bytes_per_block ", layer.bytes_per_block,
                                  ", which only opaque layers have"));
  }
  if (layer.num_kv_heads == 0 || layer.head_dim == 0) {
    return Refuse(i, absl::StrCat(" has num_kv_heads ", layer.num_kv_heads, ", head_dim ",
                                  layer.head_dim, "; none may be 0"));
  }
  const uint64_t elements = uint64_t{layer.num_kv_heads} * layer.head_dim;
  if (elements > kMaxElementsPerToken) {
    return Refuse(i, absl::StrCat(" has ", elements, " elements per token; at most ",
                                  kMaxElementsPerToken, " are supported"));
  }
  return absl::OkStatus();
}

absl::Status CheckLayer(size_t i, const LayerSpec& layer) {
  if (layer.window.value() == 0) return Refuse(i, " has window 0; none may be 0");
  switch (layer.kind) {
    case KvKind::kKeyAndValue:
    case KvKind::kKeyOnly:
      return CheckElements(i, layer);
    case KvKind::kOpaque:
      return CheckOpaque(i, layer);
  }
  return Refuse(i, absl::StrCat(" has the unknown kind ", static_cast<int>(layer.kind)));
}

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
    if (absl::Status status = CheckLayer(i, spec.layers[i]); !status.ok()) return status;
  }
  return absl::OkStatus();
}

PoolLayout EmptyPool(const LayerSpec& layer, uint32_t tokens_per_block) {
  if (layer.kind == KvKind::kOpaque) {
    return {.layers = {},
            .dtype = DType::kUint8,
            .kv_factor = 1,
            .tokens_per_block = tokens_per_block,
            .content = PoolContent::kOpaque,
            .bytes_per_block = layer.bytes_per_block};
  }
  return {.layers = {},
          .num_kv_heads = layer.num_kv_heads,
          .head_dim = layer.head_dim,
          .dtype = layer.dtype,
          .kv_factor = layer.kind == KvKind::kKeyAndValue ? 2u : 1u,
          .tokens_per_block = tokens_per_block};
}

PoolLayout EmptyScales(const PoolLayout& of) {
  return {.layers = {},
          .num_kv_heads = of.num_kv_heads,
          .dtype = DType::kFloat32,
          .kv_factor = of.kv_factor,
          .tokens_per_block = of.tokens_per_block,
          .content = PoolContent::kScales};
}

bool SameShape(const PoolLayout& a, const PoolLayout& b) {
  return a.num_kv_heads == b.num_kv_heads && a.head_dim == b.head_dim && a.dtype == b.dtype &&
         a.kv_factor == b.kv_factor && a.content == b.content &&
         a.bytes_per_block == b.bytes_per_block;
}

// Adds model layer `i` to the pool of its shape: an existing one, or `fresh` with its scales.
void AddToPools(uint32_t i, const PoolLayout& fresh, std::vector<PoolLayout>& pools) {
  const auto it = std::find_if(pools.begin(), pools.end(),
                               [&](const PoolLayout& p) { return SameShape(p, fresh); });
  const auto index = static_cast<uint32_t>(it - pools.begin());
  if (it == pools.end()) {
    pools.push_back(fresh);
    if (fresh.has_scales()) pools.push_back(EmptyScales(fresh));
  }
  pools[index].layers.push_back(i);
  if (fresh.has_scales()) pools[index + 1].layers.push_back(i);
}

// The position of the element for which `matches` holds. Appends `fresh` if there is none.
template <class T, class Predicate>
uint32_t FindOrAppend(std::vector<T>& items, Predicate matches, T fresh) {
  const auto it = std::find_if(items.begin(), items.end(), matches);
  const auto index = static_cast<uint32_t>(it - items.begin());
  if (it == items.end()) items.push_back(std::move(fresh));
  return index;
}

}  // namespace

uint32_t DTypeBytes(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return 4;
    case DType::kFloat16:
    case DType::kBFloat16:
      return 2;
    case DType::kFloat8E4M3:
    case DType::kFloat8E5M2:
    case DType::kUint8:
      break;
  }
  return 1;
}

std::string_view DTypeName(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return "float32";
    case DType::kFloat16:
      return "float16";
    case DType::kBFloat16:
      return "bfloat16";
    case DType::kFloat8E4M3:
      return "fp8_e4m3";
    case DType::kFloat8E5M2:
      return "fp8_e5m2";
    case DType::kUint8:
      return "uint8";
  }
  return "unknown";
}

std::string_view PoolContentName(PoolContent content) {
  switch (content) {
    case PoolContent::kElements:
      return "elements";
    case PoolContent::kScales:
      return "scales";
    case PoolContent::kOpaque:
      return "opaque bytes";
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
    AddToPools(i, EmptyPool(layer, spec.tokens_per_block), layout.windows_[window_index].pools);
  }
  layout.spec_ = std::move(spec);
  return layout;
}

}  // namespace pagoda
