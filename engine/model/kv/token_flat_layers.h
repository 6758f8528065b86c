// A token-flat pool in the form that the kernels take.
#ifndef PAGODA_ENGINE_MODEL_KV_TOKEN_FLAT_LAYERS_H_
#define PAGODA_ENGINE_MODEL_KV_TOKEN_FLAT_LAYERS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/model/kv/kv_pools.h"
#include "kernels/types.h"
#include "pools/layout.h"

namespace pagoda {

// Does what LayerOfPool does, for a pool whose memory at `memory` is cut as TokenFlatLayout says.
kernels::KvLayer LayerOfTokenFlatPool(const PoolLayout& layout, uint64_t index, std::byte* memory,
                                      uint32_t num_slots);

// The layers of `pools`, whose memory is used as token-flat pools. Scales of float8 stay where they
// are: a block has them. Valid as long as `pools`. REQUIRES: the pools are in host memory.
std::vector<kernels::KvLayer> TokenFlatLayers(const KvPools& pools);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_MODEL_KV_TOKEN_FLAT_LAYERS_H_
