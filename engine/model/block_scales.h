// The scales of blocks in float8 pools, as the engine writes them: always 1.
#ifndef PAGODA_ENGINE_MODEL_BLOCK_SCALES_H_
#define PAGODA_ENGINE_MODEL_BLOCK_SCALES_H_

#include <cstdint>

#include "absl/types/span.h"
#include "kernels/types.h"

namespace pagoda {

// Sets the scales of K and V to 1, for every head, in each block whose first token is among
// `token_slots`. Call it before that token is written, because the slot still has the scales of its
// previous block. An existing block, or a copy of its first tokens, keeps its scales, and its later
// tokens use them too. Negative token slots are padding. Does nothing if `kv` has no scales per
// slot. REQUIRES: the pool of scales is in host memory, and was mapped for writing.
void StartScales(absl::Span<const int64_t> token_slots, const kernels::KvLayer& kv);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_MODEL_BLOCK_SCALES_H_
