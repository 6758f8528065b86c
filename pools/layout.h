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

enum class DType : uint8_t { kFloat32, kFloat16, kBFloat16 };
uint32_t DTypeBytes(DType dtype);
std::string_view DTypeName(DType dtype);  // "float32"

enum class KvKind : uint8_t { kKeyAndValue, kKeyOnly };  // K only: multi-head latent attention.

// One attention layer of a model.
struct LayerSpec {
  WindowSize window = kFullAttention;
  uint32_t num_kv_heads = 0;
  uint32_t head_dim = 0;  // Elements of one head of one token.
  DType dtype = DType::kFloat32;
  KvKind kind = KvKind::kKeyAndValue;
  friend bool operator==(const LayerSpec&, const LayerSpec&) = default;
};

// One model's cache, as every request and event names it.
struct CacheSpec {
  std::string name = "default";
  std::string model_fingerprint;
  uint32_t tokens_per_block = 32;  // A power of two, 1 to 1,024.
  std::vector<LayerSpec> layers;   // In the model's order.
};

// The layers of one window that have one (heads, head_dim, dtype, kind). A slot's bytes are
// [layer][K, V][kv_head][token][head_dim], contiguous. Strides are in bytes.
struct PoolLayout {
  std::vector<uint32_t> layers;  // Model layer numbers, ascending: the pool's layer dimension.
  uint32_t num_kv_heads = 0;
  uint32_t head_dim = 0;
  DType dtype = DType::kFloat32;
  uint32_t kv_factor = 2;  // 2: K and V. 1: K only.
  uint32_t tokens_per_block = 0;

  uint64_t token_stride_bytes() const { return uint64_t{head_dim} * DTypeBytes(dtype); }
  uint64_t head_stride_bytes() const { return token_stride_bytes() * tokens_per_block; }
  uint64_t kv_stride_bytes() const { return head_stride_bytes() * num_kv_heads; }
  uint64_t layer_stride_bytes() const { return kv_stride_bytes() * kv_factor; }
  uint64_t slot_stride_bytes() const { return layer_stride_bytes() * layers.size(); }
};

struct WindowLayout {
  WindowSize window;
  std::vector<PoolLayout> pools;
  // Bytes of one block in all pools of the window.
  uint64_t block_bytes() const;
};

// Where one model layer's KV lies.
struct LayerLocation {
  uint32_t window_index;  // In CacheLayout::windows().
  uint32_t pool_index;    // In WindowLayout::pools.
  uint32_t layer_index;   // In the pool's layer dimension.
};

// The whole of it. Immutable.
class CacheLayout {
 public:
  // Groups the spec's layers. Windows are in ascending order, pools in the order of their first
  // layer. Errors: INVALID_ARGUMENT for no layers or absurdly many, zero or absurd heads and
  // head_dim, or a tokens_per_block that is no power of two from 1 to 1,024.
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
