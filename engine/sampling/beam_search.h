// Beam search without a model or a cache: which continuations go on, and which have ended.
#ifndef PAGODA_ENGINE_SAMPLING_BEAM_SEARCH_H_
#define PAGODA_ENGINE_SAMPLING_BEAM_SEARCH_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "pools/types.h"

namespace pagoda {

// Beam search as Hugging Face transformers defines it (generate with num_beams and without
// sampling). A beam is an answer that goes on. Its score is the sum of its tokens' logarithms of
// probabilities. A hypothesis is an answer that has ended. Its score is that sum divided by
// length^length_penalty, where the length counts its tokens and the one that ended it.
//
// A step ranks all continuations of all beams by one token. The best `width` of those that do not
// end are the next beams. Those that end, and are among the best `width` of all, become hypotheses.
// The best `width` hypotheses are kept. Thread-compatible.
//
// Invariants
// 1. All beams have the same number of tokens, and no two have the same tokens.
// 2. Continuations of equal scores rank by token, then by beam. Among hypotheses with equal
//    scores, the older one ranks first. So a search depends only on its candidates.
class BeamSearch {
 public:
  struct Options {
    uint32_t width = 2;  // At least 1.
    // A hypothesis has at most this number of tokens. At least 1.
    uint32_t max_tokens = 1;
    float length_penalty = 1.0f;  // Finite.
    // True: the search ends with the `width`-th hypothesis. False: it ends when the best beam, with
    // the length that it has now, is no better than the worst of `width` hypotheses.
    bool early_stopping = false;
  };
  struct Beam {
    std::vector<TokenId> tokens;
    double score = 0;
  };
  // A token behind a beam.
  struct Candidate {
    TokenId token = 0;
    float logprob = 0;  // The token's logprob behind the beam; -infinity if it is impossible.
    bool ends = false;  // The answer ends with this token.
  };
  struct Hypothesis {
    std::vector<TokenId> tokens;
    double score = 0;
    bool ended_by_token = false;  // Otherwise by its length.
  };

  explicit BeamSearch(const Options& options) : options_(options), beams_(1) {}

  // At first one beam without tokens.
  const std::vector<Beam>& beams() const { return beams_; }
  bool ended() const { return ended_; }
  // Best first; at most `width`. At the end there are `width`, unless the candidates were fewer.
  const std::vector<Hypothesis>& hypotheses() const { return hypotheses_; }

  // Makes one step. `candidates` has a list for each beam: at least its `width` best tokens, and
  // its `width` best tokens of those that do not end an answer, or all that the vocabulary has.
  // Returns the parent of each of the next beams, as an index of the earlier ones; none if the
  // search has ended. REQUIRES: it has not ended. Cost: O(n log n) for n candidates, and a copy of
  // the beams' tokens.
  std::vector<uint32_t> Advance(absl::Span<const std::vector<Candidate>> candidates);

 private:
  double Penalised(double score, size_t length) const;
  void Keep(Hypothesis hypothesis);

  const Options options_;
  std::vector<Beam> beams_;             // Best first.
  std::vector<Hypothesis> hypotheses_;  // Best first.
  bool ended_ = false;
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_SAMPLING_BEAM_SEARCH_H_
