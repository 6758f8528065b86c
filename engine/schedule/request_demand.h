#ifndef PAGODA_ENGINE_SCHEDULE_REQUEST_DEMAND_H_
#define PAGODA_ENGINE_SCHEDULE_REQUEST_DEMAND_H_

#include <algorithm>
#include <cstdint>

#include "engine/generate.h"
#include "pools/types.h"

namespace pagoda {

// The most blocks of a window that one of the request's sequences holds at once.
inline uint64_t MostBlocks(const GenerateRequest& request, WindowSize window,
                           TokensPerBlock tokens_per_block) {
  // The last generated token gets no KV.
  const uint64_t total = request.prompt.size() + uint64_t{request.max_new_tokens} - 1;
  const uint64_t blocks = tokens_per_block.BlocksFor(total);
  if (window == kFullAttention) return blocks;
  // The tokens of a window, and of a step, begin and end anywhere in a block.
  return std::min(blocks, uint64_t{tokens_per_block.BlocksFor(window.value())} + 2);
}

}  // namespace pagoda

#endif  // PAGODA_ENGINE_SCHEDULE_REQUEST_DEMAND_H_
