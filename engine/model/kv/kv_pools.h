#ifndef PAGODA_ENGINE_MODEL_KV_KV_POOLS_H_
#define PAGODA_ENGINE_MODEL_KV_KV_POOLS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/checkpoint/config/model_config.h"
#include "kernels/types.h"
#include "manager/api/cache_client.h"
#include "pools/pool.h"

namespace pagoda {

// The same type for kernels. uint8, which no kernel reads, is kFloat32.
kernels::ElementType ElementTypeOf(DType dtype);

// The layer at `index` of a pool's layer dimension, for a pool whose `num_slots` slots begin at
// `slots`. Without scales. If the pool has K only, the values are the keys. REQUIRES: a pool of
// elements, other than uint8.
kernels::KvLayer LayerOfPool(const PoolLayout& layout, uint64_t index, std::byte* slots,
                             uint32_t num_slots);

// The scales of that layer, per head and slot, for a pool of scales whose slots begin at `slots`.
// REQUIRES: a pool of scales.
kernels::KvScales ScalesOfPool(const PoolLayout& layout, uint64_t index, const std::byte* slots);

// The client's primary pools, mapped, in the form that the kernels take. There can be any number of
// windows, and in a window one pool for each number of KV heads, with its scales if it is float8.
// Immutable; movable. Several threads can read it. The cache decides who accesses which slots.
class KvPools {
 public:
  // Errors: INVALID_ARGUMENT if the pools do not match the model's layers, with the layer and the
  // difference: another window, number of heads, head_dim, or K only; opaque or uint8 layers, which
  // no kernel reads; float8 without scales; a layer that no pool holds or the model does not have;
  // pools in several places. Those of CacheClient::MapPools.
  static absl::StatusOr<KvPools> Map(CacheClient& client, const ModelConfig& config);

  // K and V of each layer, in the model's order. Valid while this object exists, also after a move.
  absl::Span<const kernels::KvLayer> layers() const { return layers_; }

  // The mapped pools, with those of scales. For copies of whole slots, which work in every place.
  absl::Span<const std::unique_ptr<MappedPool>> pools() const { return pools_; }

  // The memory that the addresses belong to: the host's, or a device's with its index in this
  // process.
  const MemoryPlace& place() const { return place_; }

  // The index of the layer's window in windows().
  size_t window_index(size_t layer) const { return window_indices_[layer]; }

  // WindowsOf the model: the order of ModelInput::windows, and of SequenceInput::tables.
  absl::Span<const WindowSize> windows() const { return windows_; }

 private:
  KvPools() = default;
  absl::Status AddLayers(const MappedPool& pool, const ModelConfig& config);
  absl::Status AddScales(const MappedPool& pool);
  absl::Status CheckComplete() const;

  std::vector<std::unique_ptr<MappedPool>> pools_;
  std::vector<kernels::KvLayer> layers_;  // Into pools_.
  MemoryPlace place_;
  std::vector<WindowSize> windows_;
  std::vector<size_t> window_indices_;  // By layer.
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_MODEL_KV_KV_POOLS_H_
