// Beam search as plainly as possible: each step sorts every continuation of every beam. The
// engine's is compared with it.
#ifndef PAGODA_TESTS_ENGINE_SAMPLING_PLAIN_BEAM_SEARCH_H_
#define PAGODA_TESTS_ENGINE_SAMPLING_PLAIN_BEAM_SEARCH_H_

#include <functional>
#include <vector>

#include "engine/request/generate.h"
#include "pools/types.h"

namespace pagoda {

struct PlainSearch {
  struct Answer {
    std::vector<TokenId> tokens;
    double score = 0;
    FinishReason reason = FinishReason::kLength;
  };
  std::vector<Answer> best;  // The request's num_samples best ones.
  // The answers of the beams that went through the model, by step. The first step has one without
  // tokens.
  std::vector<std::vector<std::vector<TokenId>>> steps;
};

// `logits_behind` gets the prompt and an answer's tokens. Continuations of equal scores are ordered
// by token, then by beam.
PlainSearch SearchPlainly(
    const GenerateRequest& request,
    const std::function<std::vector<float>(const std::vector<TokenId>& tokens)>& logits_behind);

}  // namespace pagoda

#endif  // PAGODA_TESTS_ENGINE_SAMPLING_PLAIN_BEAM_SEARCH_H_
