// The steps of a kernel's walks: over a block's units, and over a unit's tiles of keys.
#ifndef PAGODA_KERNELS_CUDA_ATTENTION_ATTENTION_WALK_H_
#define PAGODA_KERNELS_CUDA_ATTENTION_ATTENTION_WALK_H_

#include <cstdint>

#include "kernels/attention_mask.h"

namespace pagoda::kernels::cuda {

// The first of `first`, first + kStep, first + 2 kStep, ... at which a tile of kTokens keys begins
// that MaySee allows for queries at first_position..last_position. If no such tile begins before
// `end`: one of these numbers that is not below `end`. Jumps over the keys between the sinks and
// the window: the cost does not depend on their number.
// REQUIRES: first, end and last_position are below 2^31; first_position <= last_position.
template <uint32_t kTokens, uint32_t kStep = kTokens>
PAGODA_HOST_DEVICE constexpr uint32_t NextSeenTile(const AttentionMask& mask,
                                                   uint32_t first_position, uint32_t last_position,
                                                   uint32_t end, uint32_t first) {
  if (first >= end || !mask.causal) return first;
  if (mask.window_tokens != 0 && first >= mask.sink_tokens) {
    // The first key in the window of the first query.
    const int64_t begin = int64_t{first_position} + 1 - mask.window_tokens;
    const int64_t behind_tile = int64_t{first} + kTokens;
    if (begin >= behind_tile) {
      first += (static_cast<uint32_t>(begin - behind_tile) / kStep + 1) * kStep;
    }
  }
  // No later tile has a key at or before the last query.
  if (first > last_position && first < end) first += (end - first + kStep - 1) / kStep * kStep;
  return first;
}

// The unit that block `block` of `blocks` takes in round 0, 1, 2, ... of the grid. Every second
// round goes backwards: the block with the longest unit of one round has the shortest one of the
// next. A result that is no unit (it is not below their number) ends the block's walk.
PAGODA_HOST_DEVICE constexpr uint32_t UnitOfRound(uint32_t round, uint32_t block, uint32_t blocks) {
  return round * blocks + (round % 2 == 0 ? block : blocks - 1 - block);
}

}  // namespace pagoda::kernels::cuda

#endif  // PAGODA_KERNELS_CUDA_ATTENTION_ATTENTION_WALK_H_
