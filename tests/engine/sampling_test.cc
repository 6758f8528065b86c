#include "engine/schedule/sampling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <vector>

#include "pools/error.h"

namespace pagoda {
namespace {

using ::testing::HasSubstr;

// How often each token is drawn at as many positions.
std::map<TokenId, double> Frequencies(SamplingParams params, const std::vector<float>& logits,
                                      std::vector<TokenId> tokens = {}) {
  constexpr int kDraws = 20'000;
  std::map<TokenId, double> frequencies;
  Sampler sampler;
  for (int i = 0; i < kDraws; ++i) {
    params.seed = static_cast<uint64_t>(i);
    frequencies[sampler.Choose(params, logits, tokens)] += 1.0 / kDraws;
  }
  return frequencies;
}

std::vector<double> Softmax(const std::vector<float>& logits, double temperature) {
  std::vector<double> weights;
  double sum = 0;
  for (const float logit : logits) sum += weights.emplace_back(std::exp(logit / temperature));
  for (double& weight : weights) weight /= sum;
  return weights;
}

TEST(SamplingTest, GreedyTakesTheLowestOfTheMostLikely) {
  Sampler sampler;
  EXPECT_EQ(sampler.Choose({}, {1, 3, 3, 2}, {}), 1u);
  EXPECT_EQ(sampler.Choose({.temperature = 2, .top_k = 1}, {1, 3, 3, 2}, {}), 1u);
}

TEST(SamplingTest, DrawsAsOftenAsTheTemperatureSays) {
  const std::vector<float> logits = {0, 1, 2, -1, 0.5f};
  for (const float temperature : {0.5f, 1.0f, 3.0f}) {
    const std::vector<double> expected = Softmax(logits, temperature);
    auto frequencies = Frequencies({.temperature = temperature}, logits);
    for (TokenId t = 0; t < logits.size(); ++t) EXPECT_NEAR(frequencies[t], expected[t], 0.015);
  }
}

TEST(SamplingTest, TopKLeavesTheRestOut) {
  const std::vector<float> logits = {0, 1, 2, -1, 0.5f};
  auto frequencies = Frequencies({.temperature = 1, .top_k = 2}, logits);
  EXPECT_EQ(frequencies.size(), 2u);
  EXPECT_NEAR(frequencies[2], 1 / (1 + std::exp(-1.0)), 0.015);
  EXPECT_NEAR(frequencies[1], 1 / (1 + std::exp(1.0)), 0.015);
}

TEST(SamplingTest, TopPKeepsTheFewestThatAreLikelyEnough) {
  // Probabilities 0.5, 0.3, 0.15, 0.05.
  const std::vector<float> logits = {std::log(0.3f), std::log(0.5f), std::log(0.05f),
                                     std::log(0.15f)};
  EXPECT_EQ(Frequencies({.temperature = 1, .top_p = 0.45f}, logits).size(), 1u);
  auto two = Frequencies({.temperature = 1, .top_p = 0.7f}, logits);
  EXPECT_EQ(two.size(), 2u);
  EXPECT_NEAR(two[1], 0.5 / 0.8, 0.015);
  EXPECT_EQ(Frequencies({.temperature = 1, .top_p = 0.9f}, logits).size(), 3u);
  // Of what top_k left.
  EXPECT_EQ(Frequencies({.temperature = 1, .top_k = 2, .top_p = 0.6f}, logits).size(), 1u);
}

// The few first candidates do not hold most of the probability: all are ranked.
TEST(SamplingTest, TopPOfAFlatVocabulary) {
  const std::vector<float> logits(4096, 0.25f);
  Sampler sampler;
  TokenId most = 0;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    most =
        std::max(most, sampler.Choose({.temperature = 1, .top_p = 0.5f, .seed = seed}, logits, {}));
  }
  // Of equals the lower ones are kept.
  EXPECT_LT(most, 2049u);
  EXPECT_GT(most, 1900u);
}

TEST(SamplingTest, ThePenaltyIsForTokensThatWereThere) {
  Sampler sampler;
  const SamplingParams params{.repetition_penalty = 2};
  EXPECT_EQ(sampler.Choose(params, {1.0f, 1.5f}, {}), 1u);
  EXPECT_EQ(sampler.Choose(params, {1.0f, 1.5f}, {1}), 0u);
  EXPECT_EQ(sampler.Choose(params, {0.7f, 1.5f}, {1, 1}), 1u) << "once, however often it was there";
  EXPECT_EQ(sampler.Choose(params, {-1.5f, -1.0f}, {1}), 0u) << "negative ones are multiplied";
}

TEST(SamplingTest, ADrawDependsOnSeedAndPositionAlone) {
  std::mt19937 random(1);
  std::vector<float> logits(1000);
  for (float& logit : logits) logit = static_cast<float>(random() % 1000) / 200;
  const SamplingParams params{.temperature = 1, .top_p = 0.95f, .seed = 7};
  Sampler one, other;
  other.Choose({.temperature = 2, .seed = 1}, logits, {1, 2});
  const std::vector<TokenId> tokens(31, 5), more(32, 5);
  EXPECT_EQ(one.Choose(params, logits, tokens), other.Choose(params, logits, tokens));
  int equal = 0;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const SamplingParams seeded{.temperature = 1, .seed = seed};
    equal += one.Choose(seeded, logits, tokens) == one.Choose(seeded, logits, more);
  }
  EXPECT_LT(equal, 10);
}

TEST(SamplingTest, LogprobsAreOfTheModelsDistribution) {
  const std::vector<float> logits = {0, 1, 2, -1, 0.5f};
  const std::vector<double> expected = Softmax(logits, 1);
  Sampler sampler;
  const auto [logprob, top] = sampler.Logprobs(logits, 3, 2);
  EXPECT_NEAR(logprob, std::log(expected[3]), 1e-6);
  ASSERT_EQ(top.size(), 2u);
  EXPECT_EQ(top[0].token, 2u);
  EXPECT_NEAR(top[0].logprob, std::log(expected[2]), 1e-6);
  EXPECT_EQ(top[1].token, 1u);
}

TEST(SamplingTest, RefusesWhatHasNoMeaning) {
  const auto refused = [](SamplingParams params, const char* name) {
    const absl::Status status = CheckSampling(params);
    EXPECT_EQ(ReasonOf(status), Reason::kInvalidSampling);
    EXPECT_THAT(std::string(status.message()), HasSubstr(name));
  };
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(CheckSampling({}).ok());
  refused({.temperature = -1}, "temperature");
  refused({.temperature = kNan}, "temperature");
  refused({.top_p = 0}, "top_p");
  refused({.top_p = 1.5f}, "top_p");
  refused({.repetition_penalty = 0}, "repetition_penalty");
  refused({.top_logprobs = kMaxTopLogprobs + 1}, "top_logprobs");
}

}  // namespace
}  // namespace pagoda
