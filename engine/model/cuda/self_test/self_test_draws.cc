#include "engine/model/cuda/self_test/self_test_draws.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <tuple>
#include <vector>

#include "engine/model/cuda/self_test/self_test_rows.h"

namespace pagoda::cuda {
namespace {

// Several blocks of scores, the last of which is not full.
constexpr uint64_t kScores = 700;

// The token by plain loops. The tested numbers are such that rounding does not decide.
uint32_t PlainDraw(const TokenDraw& draw, absl::Span<const float> scores) {
  std::vector<uint32_t> tokens(scores.size());
  std::iota(tokens.begin(), tokens.end(), 0u);
  const auto better = [&](uint32_t a, uint32_t b) {
    return scores[a] > scores[b] || (scores[a] == scores[b] && a < b);
  };
  const uint32_t best = *std::min_element(tokens.begin(), tokens.end(), better);
  if (draw.temperature == 0.0f) return best;
  const bool limited = draw.top_k != 0 || draw.top_p < 1.0f;
  if (limited) std::sort(tokens.begin(), tokens.end(), better);
  if (draw.top_k != 0) tokens.resize(draw.top_k);
  const auto weight = [&](uint32_t token) {
    return std::exp((double{scores[token]} - scores[best]) / draw.temperature);
  };
  double all = 0;
  for (const uint32_t token : tokens) all += weight(token);
  double kept = 0;
  size_t size = 0;
  while (size < tokens.size() && (size == 0 || kept < draw.top_p * all)) {
    kept += weight(tokens[size++]);
  }
  double sum = 0;
  for (size_t i = 0; i < size; ++i) {
    sum += weight(tokens[i]);
    if (draw.uniform * kept < sum) return tokens[i];
  }
  return tokens[size - 1];
}

// The number of wrong tokens.
double WrongDraws(TestBed& bed, const TestedKernels& kernels) {
  std::vector<TokenDraw> draws;
  for (const double uniform : {0.05, 0.3, 0.55, 0.8, 0.97}) {
    for (const auto& [temperature, top_k, top_p] :
         {std::tuple(0.0f, 0u, 1.0f), std::tuple(1.0f, 0u, 1.0f), std::tuple(0.7f, 40u, 1.0f),
          std::tuple(1.2f, 0u, 0.8f), std::tuple(1.0f, 50u, 0.9f)}) {
      draws.push_back({.kind = TokenDraw::Kind::kToken,
                       .temperature = temperature,
                       .top_k = top_k,
                       .top_p = top_p,
                       .uniform = uniform});
    }
  }
  const uint64_t rows = draws.size();
  // Their weights span some orders of magnitude.
  const std::vector<float> logits = TestNumbers(24).Many(rows * kScores, 9);
  const uint64_t blocks = (kScores + kDrawBlock - 1) / kDrawBlock;
  const DrawArgs args = {.logits = BringRows(bed, logits, kScores),
                         .draws = bed.Bring(draws),
                         .maxima = bed.Allocate<float>(rows * blocks),
                         .sums = bed.Allocate<double>(rows * blocks),
                         .most = bed.Allocate<float>(rows),
                         .tokens = bed.Bring(std::vector<uint32_t>(rows, kNoNumber))};
  bed.Run("most likely tokens", [&] { return kernels.most_likely(args, bed.stream()); });
  bed.Run("weights of draws", [&] { return kernels.draw_weights(args, bed.stream()); });
  bed.Run("draws", [&] { return kernels.draw(args, bed.stream()); });
  const std::vector<uint32_t> tokens = bed.Take(args.tokens, rows);
  double wrong = 0;
  for (uint64_t row = 0; row < tokens.size(); ++row) {
    const auto scores = absl::MakeConstSpan(logits).subspan(row * kScores, kScores);
    if (tokens[row] != PlainDraw(draws[row], scores)) ++wrong;
  }
  return wrong;
}

}  // namespace

std::vector<SelfTestItem> DrawItems(const TestedKernels& kernels) {
  return {
      {.part = kTokenDraws,
       .family = "portable",
       .needed = false,
       .tolerance = 0,
       .test = [&kernels](TestBed& bed) { return Measured{.error = WrongDraws(bed, kernels)}; }}};
}

}  // namespace pagoda::cuda
