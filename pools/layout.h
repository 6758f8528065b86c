// The layout of a cache's KV bytes: a model's layers are grouped into windows, and each window's
// layers into pools.
#ifndef PAGODA_POOLS_LAYOUT_H_
#define PAGODA_POOLS_LAYOUT_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "pools/types.h"

namespace pagoda {

// The type of an element. The numbers are part of the identity of kept memory, so they must not
// change. The two float8 types are OCP's FP8, as in kernels::ElementType. uint8 stands for bytes
// that only the clients understand.
enum class DType : uint8_t { kFloat32, kFloat16, kBFloat16, kFloat8E4M3, kFloat8E5M2, kUint8 };
uint32_t DTypeBytes(DType dtype);
std::string_view DTypeName(DType dtype);  // "float32"
constexpr bool IsFloat8(DType dtype) {
  return dtype == DType::kFloat8E4M3 || dtype == DType::kFloat8E5M2;
}

// The content of a layer. K only: multi-head latent attention, whose values are the first elements
// of its keys. Opaque: a fixed number of bytes per block, in a packing that only the client knows.
enum class KvKind : uint8_t { kKeyAndValue, kKeyOnly, kOpaque };

// One attention layer of a model.
struct LayerSpec {
  WindowSize window = kFullAttention;
  uint32_t num_kv_heads = 0;      // 0 in an opaque layer.
  uint32_t head_dim = 0;          // Elements of one head of one token; 0 in an opaque layer.
  DType dtype = DType::kFloat32;  // Ignored in an opaque layer: its pool is of uint8.
  KvKind kind = KvKind::kKeyAndValue;
  uint64_t bytes_per_block = 0;  // In an opaque layer: 1 to kMaxOpaqueBytes. Else 0.
  friend bool operator==(const LayerSpec&, const LayerSpec&) = default;
};

// One model's cache. Requests and events name it.
struct CacheSpec {
  std::string name = "default";
  std::string model_fingerprint;
  uint32_t tokens_per_block = 32;  // A power of two, 1 to 1,024.
  std::vector<LayerSpec> layers;   // In the model's order.
};

// The largest bytes_per_block of an opaque layer: 1 GiB.
inline constexpr uint64_t kMaxOpaqueBytes = uint64_t{1} << 30;

// The content of a pool's slot, contiguous.
enum class PoolContent : uint8_t {
  kElements,  // [layer][K, V][kv_head][token][head_dim]
  // [layer][K, V][kv_head] of float32. A reader multiplies a float8 block's elements by these
  // scales. A pool of scales has the layers, heads and kv_factor of its float8 pool, in the same
  // slots.
  kScales,
  kOpaque,  // [layer][bytes]
};
std::string_view PoolContentName(PoolContent content);  // "elements"

// A pool holds the layers of one window that have the same (heads, head_dim, dtype, kind), or
// opaque layers with the same number of bytes, or the scales of float8 layers. Strides are in
// bytes. The stride of a dimension that the content lacks is 0. Exceptions: scales have
// head_stride_bytes and kv_stride_bytes, and opaque bytes have kv_stride_bytes.
struct PoolLayout {
  std::vector<uint32_t> layers;  // Model layer numbers, ascending: the pool's layer dimension.
  uint32_t num_kv_heads = 0;     // 0 if opaque.
  uint32_t head_dim = 0;         // 0 for scales and opaque bytes.
  DType dtype = DType::kFloat32;
  uint32_t kv_factor = 2;  // 2: K and V. 1: K only, or opaque.
  uint32_t tokens_per_block = 0;
  PoolContent content = PoolContent::kElements;
  uint64_t bytes_per_block = 0;  // Per layer, if opaque; else 0.

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
  // Whether the next pool of the window holds this pool's scales.
  bool has_scales() const { return content == PoolContent::kElements && IsFloat8(dtype); }
};

struct WindowLayout {
  WindowSize window;
  std::vector<PoolLayout> pools;  // The scales of a float8 pool are in the next pool.
  // The bytes of one block in all pools of the window.
  uint64_t block_bytes() const;
};

// The layout of a whole cache. Immutable.
class CacheLayout {
 public:
  // Groups the spec's layers. Windows are in ascending order. Pools are in the order of their first
  // layer; a pool of scales directly follows its float8 pool.
  //
  // Errors, all INVALID_ARGUMENT:
  // - no layers, or more than 4,096;
  // - zero heads, head_dim or window, or more than 2^20 elements of K per token;
  // - an opaque layer with heads, or with bytes_per_block outside 1 to kMaxOpaqueBytes;
  // - bytes_per_block in another layer;
  // - tokens_per_block that is not a power of two from 1 to 1,024;
  // - an unknown kind or dtype.
  //
  // A block thus has fewer than 2^47 bytes. Only a product with a 32-bit number of slots can exceed
  // 64 bits; PoolSet::Create and PlanSizes check that product.
  static absl::StatusOr<CacheLayout> Create(CacheSpec spec);

  const CacheSpec& spec() const { return spec_; }
  const std::vector<WindowLayout>& windows() const { return windows_; }

 private:
  CacheLayout() = default;

  CacheSpec spec_;
  std::vector<WindowLayout> windows_;
};

}  // namespace pagoda

#endif  // PAGODA_POOLS_LAYOUT_H_
