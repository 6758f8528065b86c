// Guesses the next tokens of a sequence from what it has said before.
#ifndef PAGODA_ENGINE_SCHEDULE_NGRAM_PROPOSER_H_
#define PAGODA_ENGINE_SCHEDULE_NGRAM_PROPOSER_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "pools/types.h"

namespace pagoda {

// What followed the last earlier place where the sequence said its last `n` tokens, for the largest
// n of max_ngram down to min_ngram that has one; at most `count` tokens, none where there is no
// such place ("prompt lookup decoding", Saxena, 2023). Cost: O(tokens.size() * max_ngram).
struct NgramRange {
  uint32_t min_ngram = 2;
  uint32_t max_ngram = 4;
};
std::vector<TokenId> ProposeByNgram(absl::Span<const TokenId> tokens, uint32_t count,
                                    NgramRange range = {});

}  // namespace pagoda

#endif  // PAGODA_ENGINE_SCHEDULE_NGRAM_PROPOSER_H_
