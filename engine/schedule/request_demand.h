#ifndef PAGODA_ENGINE_SCHEDULE_REQUEST_DEMAND_H_
#define PAGODA_ENGINE_SCHEDULE_REQUEST_DEMAND_H_

#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/request/generate.h"
#include "pools/types.h"

namespace pagoda {

// The most tokens of one of the request's sequences that have KV. The last generated token gets
// none.
inline uint64_t MostTokens(const GenerateRequest& request) {
  return request.prompt.size() + uint64_t{request.max_new_tokens} - 1;
}

// The most blocks of a window that the beams of a search hold at once if each has `tokens` tokens,
// of which all have the first `common` ones. Whole blocks of common tokens are shared.
inline uint64_t BeamBlocks(uint32_t beams, uint64_t common, uint64_t tokens, WindowSize window,
                           TokensPerBlock tokens_per_block) {
  if (tokens <= common) beams = 1;  // The beams have one sequence.
  const uint64_t each = tokens_per_block.BlocksFor(tokens);
  const uint64_t shared = std::min(common / tokens_per_block.value(), each);
  const uint64_t blocks = shared + beams * (each - shared);
  if (window == kFullAttention) return blocks;
  // The tokens of a window, and of a step, begin and end anywhere in a block.
  return std::min(blocks, beams * (uint64_t{tokens_per_block.BlocksFor(window.value())} + 2));
}

// The most blocks of a window that one of the request's sequences holds at once; for a beam search,
// all of its sequences.
inline uint64_t MostBlocks(const GenerateRequest& request, WindowSize window,
                           TokensPerBlock tokens_per_block) {
  return BeamBlocks(std::max(request.beam_width, 1u), request.prompt.size(), MostTokens(request),
                    window, tokens_per_block);
}

// For messages: " in each of 4 beams".
inline std::string InBeams(const GenerateRequest& request) {
  return request.is_beam_search() ? absl::StrCat(" in each of ", request.beam_width, " beams") : "";
}

}  // namespace pagoda

#endif  // PAGODA_ENGINE_SCHEDULE_REQUEST_DEMAND_H_
