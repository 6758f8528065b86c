// How a cache's KV bytes are laid out: a model's layers, grouped into windows, and in each window
// into pools.
#ifndef PAGODA_POOLS_LAYOUT_H_
#define PAGODA_POOLS_LAYOUT_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "pools/types.h"

namespace pagoda {

// What an element is. The numbers are part of kept memory's identity, so they stay. The two of
// float8 are OCP's FP8, as kernels::ElementType has them; uint8 is bytes that clients alone know.
enum class DType : uint8_t { kFloat32, kFloat16, kBFloat16, kFloat8E4M3, kFloat8E5M2, kUint8 };
uint32_t DTypeBytes(DType dtype);
std::string_view DTypeName(DType dtype);  // "float32"
constexpr bool IsFloat8(DType dtype) {
  return dtype == DType::kFloat8E4M3 || dtype == DType::kFloat8E5M2;
}

// What a layer keeps. K only: multi-head latent attention, whose values are the first elements of
// its keys. Opaque: so many bytes a block, in a packing that the client alone knows.
enum class KvKind : uint8_t { kKeyAndValue, kKeyOnly, kOpaque };

// One attention layer of a model.
struct LayerSpec {
  WindowSize window = kFullAttention;
  uint32_t num_kv_heads = 0;      // 0 in an opaque layer.
  uint32_t head_dim = 0;          // Elements of one head of one token; 0 in an opaque layer.
  DType dtype = DType::kFloat32;  // Not looked at in an opaque layer: its pool is of uint8.
  KvKind kind = KvKind::kKeyAndValue;
  uint64_t bytes_per_block = 0;  // Of an opaque layer: 1 to kMaxOpaqueBytes; 0 in others.
  friend bool operator==(const LayerSpec&, const LayerSpec&) = default;
};

// One model's cache, as every request and event names it.
struct CacheSpec {
  std::string name = "default";
  std::string model_fingerprint;
  uint32_t tokens_per_block = 32;  // A power of two, 1 to 1,024.
  std::vector<LayerSpec> layers;   // In the model's order.
};

// The most bytes that an opaque layer has in a block: 1 GiB.
inline constexpr uint64_t kMaxOpaqueBytes = uint64_t{1} << 30;

// What a slot of a pool holds, contiguous.
enum class PoolContent : uint8_t {
  kElements,  // [layer][K, V][kv_head][token][head_dim]
  // [layer][K, V][kv_head] of float32: what the elements of a block of a pool of float8 are
  // multiplied by when they are read. Of the same layers, heads and kv_factor, in the same slots.
  kScales,
  kOpaque,  // [layer][bytes]
};
std::string_view PoolContentName(PoolContent content);  // "elements"

// The layers of one window that have one (heads, head_dim, dtype, kind), or are opaque and have
// as many bytes; or the scales of such layers. Strides are in bytes; one of an extent that the
// content does not have is 0, but the scales of a block and head, and the bytes of an opaque layer,
// have head_stride_bytes and kv_stride_bytes.
struct PoolLayout {
  std::vector<uint32_t> layers;  // Model layer numbers, ascending: the pool's layer dimension.
  uint32_t num_kv_heads = 0;     // 0 if opaque.
  uint32_t head_dim = 0;         // Of elements alone; else 0.
  DType dtype = DType::kFloat32;
  uint32_t kv_factor = 2;  // 2: K and V. 1: K only, or opaque.
  uint32_t tokens_per_block = 0;
  PoolContent content = PoolContent::kElements;
  uint64_t bytes_per_block = 0;  // Of a layer, if opaque; else 0.

  uint64_t token_stride_bytes() const { return uint64_t{head_dim} * DTypeBytes(dtype); }
  uint64_t head_stride_bytes() const {
    return content == PoolContent::kScales ? DTypeBytes(dtype)
                                           : token_stride_bytes() * tokens_per_block;
  }
  uint64_t kv_stride_bytes() const {
    return content == PoolContent::kOpaque ? bytes_per_block : head_stride_bytes() * num_kv_heads;
  }
  uint64_t layer_stride_bytes() const { return kv_stride_bytes() * kv_factor; }
  uint64_t slot_stride_bytes() const { return layer_stride_bytes() * layers.size(); }
  // Whether the pool behind this one, in its window, holds its scales.
  bool has_scales() const { return content == PoolContent::kElements && IsFloat8(dtype); }
};

struct WindowLayout {
  WindowSize window;
  std::vector<PoolLayout> pools;  // The scales of a pool of float8 are the next one.
  // Bytes of one block in all pools of the window.
  uint64_t block_bytes() const;
};

// Where one model layer's KV lies.
struct LayerLocation {
  uint32_t window_index;  // In CacheLayout::windows().
  uint32_t pool_index;    // In WindowLayout::pools. Of float8: its scales are the pool behind it.
  uint32_t layer_index;   // In the pool's layer dimension.
};

// The whole of it. Immutable.
class CacheLayout {
 public:
  // Groups the spec's layers. Windows are in ascending order, pools in the order of their first
  // layer, the scales of a pool of float8 right behind it. Errors: INVALID_ARGUMENT for no layers
  // or more than 4,096; zero heads, head_dim or window, or more than 2^20 elements of K a token;
  // bytes_per_block of an opaque layer that are not 1 to kMaxOpaqueBytes; heads of an opaque layer
  // or bytes_per_block of another one; a tokens_per_block that is no power of two from 1 to 1,024;
  // unknown kinds and dtypes. So a block has fewer than 2^47 bytes, and a product with a 32-bit
  // number of slots is the only one that may not fit 64 bits: PoolSet::Create and PlanSizes check
  // it.
  static absl::StatusOr<CacheLayout> Create(CacheSpec spec);

  const CacheSpec& spec() const { return spec_; }
  const std::vector<WindowLayout>& windows() const { return windows_; }
  // `layer` is below spec().layers.size().
  const LayerLocation& location(uint32_t layer) const { return locations_[layer]; }

 private:
  CacheLayout() = default;

  CacheSpec spec_;
  std::vector<WindowLayout> windows_;
  std::vector<LayerLocation> locations_;
};

}  // namespace pagoda

#endif  // PAGODA_POOLS_LAYOUT_H_
