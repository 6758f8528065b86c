#ifndef PAGODA_ENGINE_MODEL_KV_POOLS_H_
#define PAGODA_ENGINE_MODEL_KV_POOLS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/checkpoint/model_config.h"
#include "kernels/types.h"
#include "manager/cache_client.h"
#include "pools/pool.h"

namespace pagoda {

// The layer at `index` of a pool's layer dimension, where the pool's slots, so many, begin at
// `slots`. Without scales; where the pool has K only, the values are the keys.
// REQUIRES: a pool of elements, other than uint8.
kernels::KvLayer LayerOfPool(const PoolLayout& layout, uint64_t index, std::byte* slots,
                             uint32_t num_slots);

// The scales of that layer, where the slots of the pool of scales begin at `slots`: of each head
// and slot. REQUIRES: a pool of scales.
kernels::KvScales ScalesOfPool(const PoolLayout& layout, uint64_t index, const std::byte* slots);

// The client's primary pools, mapped, as the kernels want to see them. Any number of windows, and
// in a window one pool for each number of KV heads; where it is of float8, with its scales.
// Immutable; movable. Several threads may read it; who touches which slots is between them and the
// cache.
class KvPools {
 public:
  // Errors: INVALID_ARGUMENT where the pools are not those of the model's layers, with the layer
  // and what differs: its window, heads, head_dim or K alone; opaque layers and those of uint8,
  // which no kernel reads; float8 on a device, whose kernels do not take scales of blocks, or
  // without scales; a layer that no pool holds, or that the model does not have; pools in several
  // places. Those of CacheClient::MapPools.
  static absl::StatusOr<KvPools> Map(CacheClient& client, const ModelConfig& config);

  // K and V of each layer of the model, in its order; valid as long as this lives, also when it has
  // moved.
  absl::Span<const kernels::KvLayer> layers() const { return layers_; }

  // What they are mapped from, scales too: for copies of whole slots, which go wherever the pools
  // lie.
  absl::Span<const std::unique_ptr<MappedPool>> pools() const { return pools_; }

  // Whose addresses they are: the host's, or a device's with the index that it has in this process.
  const MemoryPlace& place() const { return place_; }

  // Where the layer's window is in windows().
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

#endif  // PAGODA_ENGINE_MODEL_KV_POOLS_H_
