// The tokens that the kernels choose are those of the host's sampler, for the same random numbers.
#include "engine/model/cuda/kernels/sampling_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "engine/sampling/sampling.h"
#include "tests/kernels/cuda/device_memory.h"

namespace pagoda::cuda {
namespace {

using kernels::cuda::DeviceArray;
using kernels::cuda::FinishDevice;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Row {
  std::vector<float> scores;
  SamplingParams params;
  uint32_t position = 0;  // How many tokens the sequence has.
};

TokenDraw DrawOf(const Row& row) {
  return {.kind = TokenDraw::Kind::kToken,
          .temperature = row.params.temperature,
          .top_k = row.params.top_k,
          .top_p = row.params.top_p,
          .uniform = UniformDraw(row.params.seed, row.position)};
}

// To the last bit, where the draw needs the sums of all weights.
void ExpectTheHostsSums(const std::vector<Row>& rows, const std::vector<double>& actual) {
  const uint64_t cols = rows.front().scores.size(), blocks = (cols + kDrawBlock - 1) / kDrawBlock;
  for (size_t r = 0; r < rows.size(); ++r) {
    const SamplingParams& params = rows[r].params;
    const float most = *std::max_element(rows[r].scores.begin(), rows[r].scores.end());
    const auto is_number = [](float score) { return !std::isnan(score); };
    if (params.temperature == 0 || params.top_k != 0 || std::isinf(most)) continue;
    if (!std::all_of(rows[r].scores.begin(), rows[r].scores.end(), is_number)) continue;
    std::vector<double> sums(blocks);
    SamplingLoopsFor(kernels::cpu::Isa::kPortable)
        .block_weights(rows[r].scores.data(), cols, most, 1.0 / params.temperature, sums.data());
    for (uint64_t b = 0; b < blocks; ++b) {
      EXPECT_EQ(actual[r * blocks + b], sums[b]) << "row " << r << ", block " << b;
    }
  }
}

// All rows have as many scores. The last `extra` rows of the device are not drawn.
std::vector<uint32_t> DrawOnDevice(const std::vector<Row>& rows) {
  const uint64_t cols = rows.front().scores.size(), stride = cols + 3;
  std::vector<float> logits((rows.size() + 1) * stride, std::nanf(""));
  std::vector<TokenDraw> draws;
  for (size_t r = 0; r < rows.size(); ++r) {
    std::copy(rows[r].scores.begin(), rows[r].scores.end(),
              logits.begin() + static_cast<ptrdiff_t>(r * stride));
    draws.push_back(DrawOf(rows[r]));
  }
  draws.push_back({.kind = TokenDraw::Kind::kLogits});
  const DeviceArray<float> device_logits(logits);
  const DeviceArray<TokenDraw> device_draws(draws);
  const uint64_t blocks = (cols + kDrawBlock - 1) / kDrawBlock;
  const DeviceArray<float> maxima(draws.size() * blocks), most(draws.size());
  const DeviceArray<double> sums(draws.size() * blocks);
  const DeviceArray<uint32_t> tokens(draws.size());
  const DrawArgs args = {.logits = {.data = device_logits.data(),
                                    .stride = stride,
                                    .rows = draws.size(),
                                    .cols = cols},
                         .draws = device_draws.data(),
                         .maxima = maxima.data(),
                         .sums = sums.data(),
                         .most = most.data(),
                         .tokens = tokens.data()};
  EXPECT_EQ(LaunchMostLikely(args, nullptr), 0);
  EXPECT_EQ(LaunchDrawWeights(args, nullptr), 0);
  EXPECT_EQ(LaunchDraw(args, nullptr), 0);
  FinishDevice();
  ExpectTheHostsSums(rows, sums.Get());
  std::vector<uint32_t> drawn = tokens.Get();
  EXPECT_EQ(drawn.back(), kNotDrawn) << "its logits are wanted";
  drawn.pop_back();
  return drawn;
}

// Returns how many rows the device left to the host.
uint32_t ExpectTheHostsTokens(const std::vector<Row>& rows) {
  const std::vector<uint32_t> drawn = DrawOnDevice(rows);
  Sampler sampler;
  uint32_t left = 0;
  for (size_t r = 0; r < rows.size(); ++r) {
    if (drawn[r] == kNotDrawn) {
      ++left;
      continue;
    }
    const std::vector<TokenId> tokens(rows[r].position, 0);
    const std::optional<TokenId> expected =
        sampler.Choose(rows[r].params, rows[r].scores, tokens, {}, nullptr);
    EXPECT_EQ(drawn[r], expected.value_or(kNoNumber))
        << "row " << r << ", temperature " << rows[r].params.temperature << ", top_k "
        << rows[r].params.top_k << ", top_p " << rows[r].params.top_p;
  }
  return left;
}

std::vector<float> Normal(uint64_t size, float deviation, std::mt19937& random) {
  std::normal_distribution<float> numbers(0.0f, deviation);
  std::vector<float> scores(size);
  for (float& score : scores) score = numbers(random);
  return scores;
}

const SamplingParams kParams[] = {
    {},
    {.temperature = 0.7f},
    {.temperature = 1.5f},
    {.temperature = 1.0f, .top_k = 1},
    {.temperature = 1.0f, .top_k = 2},
    {.temperature = 0.8f, .top_k = 40},
    {.temperature = 1.0f, .top_k = 256},
    {.temperature = 1.0f, .top_p = 0.1f},
    {.temperature = 0.6f, .top_p = 0.9f},
    {.temperature = 1.0f, .top_k = 50, .top_p = 0.95f},
};

class SamplingKernelsTest : public testing::TestWithParam<uint64_t> {
 protected:
  void SetUp() override {
    if (const std::string why = kernels::cuda::WhyNoDevice(); !why.empty()) GTEST_SKIP() << why;
  }
};
INSTANTIATE_TEST_SUITE_P(Vocabularies, SamplingKernelsTest,
                         testing::Values(1, 5, 127, 128, 129, 500, 2049, 5000));

// Steep, and with many equal scores; each with all parameters.
TEST_P(SamplingKernelsTest, TokensAreTheHosts) {
  std::mt19937 random(static_cast<uint32_t>(GetParam()));
  std::vector<Row> rows;
  for (const SamplingParams& params : kParams) {
    for (const float step : {0.0f, 0.5f}) {
      Row row = {.scores = Normal(GetParam(), 3.0f, random), .params = params};
      row.params.seed = random();
      row.position = random() % 50;
      if (step != 0) {
        for (float& score : row.scores) score = step * std::round(score / step);
      }
      rows.push_back(row);
    }
  }
  EXPECT_EQ(ExpectTheHostsTokens(rows), 0u);
}

TEST_P(SamplingKernelsTest, EveryPartOfTheRangeIsDrawnAsByTheHost) {
  std::mt19937 random(1 + static_cast<uint32_t>(GetParam()));
  const std::vector<float> scores = Normal(GetParam(), 1.5f, random);
  std::vector<Row> rows;
  for (uint64_t seed = 0; seed < 24; ++seed) {
    const SamplingParams& params = kParams[1 + seed % 3 * 4];
    rows.push_back({.scores = scores, .params = params, .position = 7});
    rows.back().params.seed = seed;
  }
  EXPECT_EQ(ExpectTheHostsTokens(rows), 0u);
}

TEST_P(SamplingKernelsTest, UnusualScores) {
  const uint64_t size = GetParam();
  std::mt19937 random(2);
  std::vector<std::vector<float>> kinds(7, Normal(size, 1.0f, random));
  kinds[0].assign(size, 1.25f);
  kinds[1].assign(size, -kInfinity);
  kinds[2][size / 2] = std::nanf("");
  kinds[3][size - 1] = 1e30f;
  for (size_t i = 0; i < size; i += 2) kinds[4][i] = -kInfinity;
  for (size_t i = 0; i < size; ++i) kinds[5][i] = i % 2 == 0 ? -0.0f : 0.0f;
  for (float& score : kinds[6]) score -= 1e4f;
  std::vector<Row> rows;
  for (const std::vector<float>& kind : kinds) {
    for (const size_t p : {size_t{0}, size_t{1}, size_t{5}}) {
      rows.push_back({.scores = kind, .params = kParams[p], .position = 3});
      rows.back().params.seed = random();
    }
  }
  // Very many scores that are all equal are left to the host where they must be ranked.
  EXPECT_EQ(ExpectTheHostsTokens(rows), size > 2048 ? 2u : 0u);
}

// More tokens than the kernel ranks are needed for top_p.
TEST(SamplingKernelsLimitTest, AFlatDistributionIsLeftToTheHost) {
  if (const std::string why = kernels::cuda::WhyNoDevice(); !why.empty()) GTEST_SKIP() << why;
  std::mt19937 random(3);
  const Row flat = {.scores = Normal(1500, 0.1f, random),
                    .params = {.temperature = 1.0f, .top_p = 0.9f}};
  Row all = flat;
  all.params.top_p = 1.0f;
  EXPECT_EQ(ExpectTheHostsTokens({flat, all}), 1u);
}

}  // namespace
}  // namespace pagoda::cuda
