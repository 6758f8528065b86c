#include "engine/sampling/beam_search.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <tuple>
#include <utility>

#include "base/check.h"

namespace pagoda {
namespace {

struct Continuation {
  double score = 0;
  TokenId token = 0;
  uint32_t beam = 0;
  bool ends = false;
};

bool RanksBefore(const Continuation& a, const Continuation& b) {
  if (a.score != b.score) return a.score > b.score;
  return std::tie(a.token, a.beam) < std::tie(b.token, b.beam);
}

std::vector<Continuation> Ranked(absl::Span<const BeamSearch::Beam> beams,
                                 absl::Span<const std::vector<BeamSearch::Candidate>> candidates) {
  std::vector<Continuation> ranked;
  for (uint32_t b = 0; b < beams.size(); ++b) {
    for (const BeamSearch::Candidate& candidate : candidates[b]) {
      ranked.push_back({.score = beams[b].score + candidate.logprob,
                        .token = candidate.token,
                        .beam = b,
                        .ends = candidate.ends});
    }
  }
  std::sort(ranked.begin(), ranked.end(), RanksBefore);
  return ranked;
}

std::vector<TokenId> Extended(const std::vector<TokenId>& tokens, TokenId token) {
  std::vector<TokenId> extended;
  extended.reserve(tokens.size() + 1);
  extended = tokens;
  extended.push_back(token);
  return extended;
}

}  // namespace

std::vector<uint32_t> BeamSearch::Advance(absl::Span<const std::vector<Candidate>> candidates) {
  PAGODA_CHECK(!ended_ && candidates.size() == beams_.size(),
               "each beam of a search has candidates");
  const size_t length = beams_.front().tokens.size() + 1;
  const bool is_last = length >= options_.max_tokens;
  std::vector<Beam> next;
  std::vector<uint32_t> parents;
  uint32_t rank = 0;
  for (const Continuation& continuation : Ranked(beams_, candidates)) {
    const bool among_best = rank++ < options_.width;
    if (!among_best && (is_last || next.size() == options_.width)) break;
    const std::vector<TokenId>& tokens = beams_[continuation.beam].tokens;
    if (continuation.ends || is_last) {
      if (!among_best) continue;
      Keep({.tokens = Extended(tokens, continuation.token),
            .score = Penalised(continuation.score, length),
            .ended_by_token = continuation.ends});
    } else if (next.size() < options_.width) {
      next.push_back({Extended(tokens, continuation.token), continuation.score});
      parents.push_back(continuation.beam);
    }
  }
  beams_ = std::move(next);
  ended_ = beams_.empty();
  if (!ended_ && hypotheses_.size() == options_.width) {
    ended_ = options_.early_stopping ||
             Penalised(beams_.front().score, length) <= hypotheses_.back().score;
  }
  if (ended_) parents.clear();
  return parents;
}

double BeamSearch::Penalised(double score, size_t length) const {
  return score / std::pow(static_cast<double>(length), double{options_.length_penalty});
}

void BeamSearch::Keep(Hypothesis hypothesis) {
  const auto place =
      std::find_if(hypotheses_.begin(), hypotheses_.end(),
                   [&](const Hypothesis& kept) { return hypothesis.score > kept.score; });
  hypotheses_.insert(place, std::move(hypothesis));
  if (hypotheses_.size() > options_.width) hypotheses_.pop_back();
}

}  // namespace pagoda
