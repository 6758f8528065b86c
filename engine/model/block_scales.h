// Scales of blocks in pools of float8, on the engine's side: what it multiplies by is 1.
#ifndef PAGODA_ENGINE_MODEL_BLOCK_SCALES_H_
#define PAGODA_ENGINE_MODEL_BLOCK_SCALES_H_

#include <cstdint>

#include "absl/types/span.h"
#include "kernels/types.h"

namespace pagoda {

// Gives each block whose first token is among `token_slots` the scales 1, of K and V and every
// head, before that token is written: what its slot had is of the block before. A block that is
// there already, also a copy of its first tokens, keeps what it was written with, and so its later
// tokens have that, too. Negative token slots are padding. Does nothing where `kv` has no scales of
// slots. REQUIRES: the pool of scales is in the host's memory, and was mapped for writing.
void StartScales(absl::Span<const int64_t> token_slots, const kernels::KvLayer& kv);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_MODEL_BLOCK_SCALES_H_
