// KV without blocks, for --kv basic: in each layer a sequence has one tensor, in which row i
// belongs to the token at position i. Attention over it is one plain loop. It shares no kernel with
// the paged path, so equal answers of the two mean something.
#ifndef PAGODA_ENGINE_MODEL_KV_CONTIGUOUS_BACKEND_H_
#define PAGODA_ENGINE_MODEL_KV_CONTIGUOUS_BACKEND_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/model/backend/backend.h"
#include "engine/model/kv/kv_pools.h"
#include "kernels/types.h"

namespace pagoda {

// The memory of `pools` as tensors: in each layer [sequence][K, V][token][kv_head][head_dim], or
// without V if the layer has K only. One tensor takes the bytes that its layer has in
// `slots_per_sequence` consecutive slots, and the tensors of a sequence take exactly these slots.
// In the KvLayer a tensor counts as one block: tokens_per_block is a sequence's capacity, and the
// rows of token_slots stay what they are. Float8 tensors have no scales: their elements are the
// numbers.
//
// REQUIRES: the cache gives every sequence such a run of slots, beginning at a multiple of
// `slots_per_sequence` (SlotsPerSequence); the pools are in host memory. Valid as long as `pools`.
std::vector<kernels::KvLayer> ContiguousLayers(const KvPools& pools, uint32_t slots_per_sequence);

// `inner`, with a cache write and an attention of its own for the layers of ContiguousLayers. They
// read no block table. Scores, softmax and sums are fp32 or wider. The bits of a result do not
// depend on the number of threads. A step whose tokens are not at the rows of their positions fails
// with INTERNAL. Errors: those of Thread::Start. REQUIRES: `inner` computes in host memory.
absl::StatusOr<std::unique_ptr<Backend>> MakeContiguousBackend(std::unique_ptr<Backend> inner,
                                                               uint32_t num_threads);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_MODEL_KV_CONTIGUOUS_BACKEND_H_
