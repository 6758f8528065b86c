// Proposes draft tokens from a sequence's earlier tokens.
#ifndef PAGODA_ENGINE_SCHEDULE_NGRAM_PROPOSER_H_
#define PAGODA_ENGINE_SCHEDULE_NGRAM_PROPOSER_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "pools/types.h"

namespace pagoda {

// Prompt lookup decoding (Saxena, 2023): finds the last earlier place that has the sequence's last
// n tokens, and returns at most `count` of the tokens that follow it. Uses the largest n from
// max_ngram down to min_ngram that has such a place; returns nothing if none has. Cost:
// O(tokens.size() * max_ngram).
struct NgramRange {
  uint32_t min_ngram = 2;
  uint32_t max_ngram = 4;
};
std::vector<TokenId> ProposeByNgram(absl::Span<const TokenId> tokens, uint32_t count,
                                    NgramRange range = {});

}  // namespace pagoda

#endif  // PAGODA_ENGINE_SCHEDULE_NGRAM_PROPOSER_H_
