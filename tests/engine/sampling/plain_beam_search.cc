#include "tests/engine/sampling/plain_beam_search.h"

#include <algorithm>
#include <cmath>
#include <tuple>

namespace pagoda {
namespace {

using Answer = PlainSearch::Answer;

struct Beam {
  std::vector<TokenId> tokens;
  double sum = 0;
};

struct Next {
  Beam beam;
  size_t parent = 0;
  bool stops = false;
};

std::vector<Next> AllContinuations(
    const GenerateRequest& request, const std::vector<Beam>& beams,
    const std::function<std::vector<float>(const std::vector<TokenId>&)>& logits_behind) {
  std::vector<Next> all;
  for (size_t b = 0; b < beams.size(); ++b) {
    std::vector<TokenId> text = request.prompt;
    text.insert(text.end(), beams[b].tokens.begin(), beams[b].tokens.end());
    const std::vector<float> logits = logits_behind(text);
    const double most = *std::max_element(logits.begin(), logits.end());
    double sum = 0;
    for (const float logit : logits) sum += std::exp(logit - most);
    const double normalizer = most + std::log(sum);
    for (TokenId token = 0; token < logits.size(); ++token) {
      const auto& stops = request.stop_tokens;
      Next next{beams[b], b, std::find(stops.begin(), stops.end(), token) != stops.end()};
      next.beam.tokens.push_back(token);
      next.beam.sum += static_cast<float>(logits[token] - normalizer);
      all.push_back(std::move(next));
    }
  }
  std::sort(all.begin(), all.end(), [](const Next& a, const Next& b) {
    return std::make_tuple(-a.beam.sum, a.beam.tokens.back(), a.parent) <
           std::make_tuple(-b.beam.sum, b.beam.tokens.back(), b.parent);
  });
  return all;
}

double Score(const GenerateRequest& request, const Beam& beam) {
  return beam.sum / std::pow(static_cast<double>(beam.tokens.size()), request.length_penalty);
}

}  // namespace

PlainSearch SearchPlainly(
    const GenerateRequest& request,
    const std::function<std::vector<float>(const std::vector<TokenId>& tokens)>& logits_behind) {
  const size_t width = request.beam_width;
  PlainSearch search;
  std::vector<Beam> beams(1);
  std::vector<Answer> finished;
  while (true) {
    auto& step = search.steps.emplace_back();
    for (const Beam& beam : beams) step.push_back(beam.tokens);
    const std::vector<Next> all = AllContinuations(request, beams, logits_behind);
    const bool is_last = beams.front().tokens.size() + 1 == request.max_new_tokens;
    // The best ones that end.
    for (size_t i = 0; i < std::min(width, all.size()); ++i) {
      if (!all[i].stops && !is_last) continue;
      finished.push_back({all[i].beam.tokens, Score(request, all[i].beam),
                          all[i].stops ? FinishReason::kStopToken : FinishReason::kLength});
    }
    std::stable_sort(finished.begin(), finished.end(),
                     [](const Answer& a, const Answer& b) { return a.score > b.score; });
    if (finished.size() > width) finished.resize(width);
    if (is_last) break;
    // The best ones that go on.
    beams.clear();
    for (const Next& next : all) {
      if (!next.stops && beams.size() < width) beams.push_back(next.beam);
    }
    if (beams.empty()) break;
    const bool is_full = finished.size() == width;
    if (is_full && request.early_stopping) break;
    if (is_full && !(Score(request, beams.front()) > finished.back().score)) break;
  }
  finished.resize(std::min<size_t>(finished.size(), request.num_samples));
  search.best = std::move(finished);
  return search;
}

}  // namespace pagoda
