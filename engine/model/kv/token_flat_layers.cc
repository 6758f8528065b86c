#include "engine/model/kv/token_flat_layers.h"

#include <memory>

#include "pools/pool.h"
#include "pools/token_flat_pool.h"

namespace pagoda {

kernels::KvLayer LayerOfTokenFlatPool(const PoolLayout& layout, uint64_t index, std::byte* memory,
                                      uint32_t num_slots) {
  const TokenFlatLayout flat(layout, num_slots);
  kernels::KvLayer layer = LayerOfPool(layout, index, memory, num_slots);
  layer.keys = memory + index * flat.layer_stride_bytes;
  layer.values = layout.kv_factor == 2 ? layer.keys + flat.kv_stride_bytes : layer.keys;
  layer.slot_stride_bytes = flat.token_stride_bytes * layout.tokens_per_block;
  layer.head_stride_bytes = flat.head_stride_bytes;
  layer.token_stride_bytes = flat.token_stride_bytes;
  return layer;
}

std::vector<kernels::KvLayer> TokenFlatLayers(const KvPools& pools) {
  std::vector<kernels::KvLayer> layers(pools.layers().begin(), pools.layers().end());
  for (const std::unique_ptr<MappedPool>& pool : pools.pools()) {
    const PoolMapping& mapping = pool->mapping();
    if (mapping.layout.content != PoolContent::kElements) continue;
    auto* const memory = reinterpret_cast<std::byte*>(pool->memory().address);
    for (size_t i = 0; i < mapping.layout.layers.size(); ++i) {
      kernels::KvLayer& layer = layers[mapping.layout.layers[i]];
      kernels::KvLayer flat = LayerOfTokenFlatPool(mapping.layout, i, memory, mapping.num_slots);
      flat.value_dim = layer.value_dim;
      flat.scales = layer.scales;
      layer = flat;
    }
  }
  return layers;
}

}  // namespace pagoda
