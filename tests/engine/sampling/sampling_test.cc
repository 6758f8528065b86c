#include "engine/sampling/sampling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <vector>

#include "base/error.h"
#include "engine/sampling/batch_sampler.h"
#include "kernels/execution/thread_pool.h"
#include "tests/engine/sampling/plain_sampler.h"

namespace pagoda {
namespace {

using ::testing::HasSubstr;

// How often each token is drawn at this number of positions.
std::map<TokenId, double> Frequencies(SamplingParams params, const std::vector<float>& logits,
                                      std::vector<TokenId> tokens = {}) {
  constexpr int kDraws = 20'000;
  std::map<TokenId, double> frequencies;
  Sampler sampler;
  for (int i = 0; i < kDraws; ++i) {
    params.seed = static_cast<uint64_t>(i);
    frequencies[*sampler.Choose(params, logits, tokens)] += 1.0 / kDraws;
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
  // Applied to the tokens that top_k left.
  EXPECT_EQ(Frequencies({.temperature = 1, .top_k = 2, .top_p = 0.6f}, logits).size(), 1u);
}

// The first few candidates do not have most of the probability, so all are ranked.
TEST(SamplingTest, TopPOfAFlatVocabulary) {
  const std::vector<float> logits(4096, 0.25f);
  Sampler sampler;
  TokenId most = 0;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    most = std::max(most,
                    *sampler.Choose({.temperature = 1, .top_p = 0.5f, .seed = seed}, logits, {}));
  }
  // Among equal ones, the lower ids are kept.
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

// --- Compared with a plain implementation ---

std::vector<kernels::cpu::Isa> IsasOfThisMachine() {
  using kernels::cpu::Isa;
  std::vector<Isa> isas;
  for (const Isa isa : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512}) {
    if (isa <= kernels::cpu::BestIsa()) isas.push_back(isa);
  }
  return isas;
}

// Logits of a vocabulary: as peaked as a model's, flat, with many equal ones, or with impossible
// tokens.
std::vector<float> RandomLogits(std::mt19937& random, size_t vocabulary) {
  const float spread = std::uniform_real_distribution<float>(0, 6)(random);
  const bool has_equals = random() % 3 == 0, has_forbidden = random() % 4 == 0;
  std::normal_distribution<float> normal(random() % 2 == 0 ? 0.0f : 20.0f, spread);
  std::vector<float> logits(vocabulary);
  for (float& logit : logits) {
    logit = normal(random);
    if (has_equals) logit = std::round(logit);
    if (has_forbidden && random() % 3 == 0) logit = -std::numeric_limits<float>::infinity();
  }
  logits[random() % vocabulary] = normal(random);
  return logits;
}

SamplingParams RandomSampling(std::mt19937& random, size_t vocabulary) {
  const auto one_of = [&](auto... values) {
    const std::array list{values...};
    return list[random() % list.size()];
  };
  return {.temperature = one_of(0.0f, 0.1f, 0.8f, 1.0f, 5.0f),
          .top_k = one_of(0u, 0u, 1u, 2u, 50u, 256u, 257u, 1000u, static_cast<uint32_t>(vocabulary),
                          1u << 20),
          .top_p = one_of(1.0f, 1.0f, 0.95f, 0.5f, 0.999f, 1e-6f),
          .repetition_penalty = one_of(1.0f, 1.0f, 1.3f, 0.8f),
          .seed = random()};
}

std::vector<TokenId> RandomHistory(std::mt19937& random, size_t vocabulary) {
  std::vector<TokenId> tokens(random() % 40);
  for (TokenId& token : tokens) token = static_cast<TokenId>(random() % vocabulary);
  return tokens;
}

TEST(SamplingTest, ChoosesWhatThePlainSamplerDoesOnAllInstructions) {
  std::mt19937 random(11);
  for (const kernels::cpu::Isa isa : IsasOfThisMachine()) {
    Sampler sampler(isa);
    for (int round = 0; round < 1500; ++round) {
      const size_t sizes[] = {1, 2, 64, 127, 128, 129, 512, 2000, 5000, 40'000};
      const size_t vocabulary = sizes[random() % (round % 50 == 0 ? 10 : 8)];
      const std::vector<float> logits = RandomLogits(random, vocabulary);
      const SamplingParams params = RandomSampling(random, vocabulary);
      const std::vector<TokenId> tokens = RandomHistory(random, vocabulary);
      ASSERT_EQ(sampler.Choose(params, logits, tokens), ChoosePlainly(params, logits, tokens))
          << IsaName(isa) << ", round " << round << ", vocabulary " << vocabulary
          << ", temperature " << params.temperature << ", top_k " << params.top_k << ", top_p "
          << params.top_p;
    }
  }
}

TEST(SamplingTest, ChoosesWhatThePlainSamplerDoesOfALargeVocabulary) {
  std::mt19937 random(12);
  Sampler sampler;
  for (int round = 0; round < 24; ++round) {
    const std::vector<float> logits = RandomLogits(random, 151'936);
    const SamplingParams params = RandomSampling(random, logits.size());
    const std::vector<TokenId> tokens = RandomHistory(random, logits.size());
    ASSERT_EQ(sampler.Choose(params, logits, tokens), ChoosePlainly(params, logits, tokens))
        << "round " << round;
  }
}

// All scores are equal: tokens behind the last allowed one are not drawn.
TEST(SamplingTest, EqualsAreKeptInTheOrderOfTheirTokens) {
  const std::vector<float> logits(10'000, -3.0f);
  Sampler sampler;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    for (const uint32_t top_k : {3u, 300u, 5000u}) {
      const SamplingParams params{.temperature = 0.7f, .top_k = top_k, .seed = seed};
      const TokenId token = *sampler.Choose(params, logits, {});
      EXPECT_LT(token, top_k);
      EXPECT_EQ(token, ChoosePlainly(params, logits, {}));
    }
  }
}

// NaN anywhere, also at places that comparisons would miss, and next to any score.
TEST(SamplingTest, ChoosesNothingWhereALogitIsNoNumber) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  std::mt19937 random(14);
  for (const kernels::cpu::Isa isa : IsasOfThisMachine()) {
    Sampler sampler(isa);
    for (const size_t vocabulary : {1, 15, 128, 130, 700}) {
      const std::vector<float> numbers = RandomLogits(random, vocabulary);
      for (const SamplingParams& params :
           {SamplingParams{}, SamplingParams{.temperature = 1, .repetition_penalty = 1.2f}}) {
        const std::vector<float> all(vocabulary, kNan);
        EXPECT_EQ(sampler.Choose(params, all, {0}), std::nullopt) << IsaName(isa);
        for (size_t i = 0; i < vocabulary; ++i) {
          std::vector<float> logits = numbers;
          logits[i] = i % 2 == 0 ? kNan : -kNan;
          ASSERT_EQ(sampler.Choose(params, logits, {0}), std::nullopt)
              << IsaName(isa) << ", " << i << " of " << vocabulary;
        }
        EXPECT_NE(sampler.Choose(params, numbers, {0}), std::nullopt);
      }
    }
  }
}

// The draft tokens before it are checked too, because a choice from them cannot be continued.
TEST(BatchSamplerTest, TellsWhereARowThatCountsHasNoNumbers) {
  std::vector<float> logits = {1, 0, 1, 0, std::numeric_limits<float>::quiet_NaN(), 0};
  const std::vector<TokenId> tokens = {0}, right = {0, 0}, wrong = {0, 1};
  for (const bool counts : {true, false}) {
    std::vector<SamplingTask> tasks = {{.sampling = {},
                                        .logits = logits,
                                        .tokens = tokens,
                                        .draft_tokens = counts ? right : wrong,
                                        .chosen = {},
                                        .logits_are_numbers = true}};
    BatchSampler(nullptr).Run(absl::MakeSpan(tasks));
    EXPECT_EQ(tasks[0].logits_are_numbers, !counts);
    EXPECT_EQ(tasks[0].chosen.size(), 2u);
  }
}

TEST(SamplingTest, LoopsGiveTheSameBitsOnAllInstructions) {
  std::mt19937 random(13);
  const std::vector<float> logits = RandomLogits(random, 1000);
  const size_t blocks = (logits.size() + kScoreBlock - 1) / kScoreBlock;
  const float most = *std::max_element(logits.begin(), logits.end());
  for (const kernels::cpu::Isa isa : IsasOfThisMachine()) {
    const SamplingLoops& loops = SamplingLoopsFor(isa);
    std::vector<float> maxima(blocks);
    std::vector<double> weights(logits.size()), sums(blocks), expected(blocks);
    loops.block_maxima(logits.data(), logits.size(), maxima.data());
    loops.weights(logits.data(), logits.size(), most, 1.25, weights.data());
    loops.block_weights(logits.data(), logits.size(), most, 1.25, sums.data());
    kPortableSampling.block_weights(logits.data(), logits.size(), most, 1.25, expected.data());
    EXPECT_EQ(sums, expected);
    for (size_t b = 0; b < blocks; ++b) {
      const auto begin = logits.begin() + static_cast<ptrdiff_t>(b * kScoreBlock);
      const auto end = std::min(begin + kScoreBlock, logits.end());
      EXPECT_EQ(maxima[b], *std::max_element(begin, end));
    }
    for (size_t i = 0; i < logits.size(); ++i) {
      const double exact = std::exp((double{logits[i]} - most) * 1.25);
      EXPECT_NEAR(weights[i], exact, 1e-14 * exact);
    }
    const float depths[] = {0, -800, -600, -std::numeric_limits<float>::infinity()};
    double deep[4];
    loops.weights(depths, 4, 0, 1, deep);
    EXPECT_EQ(deep[0], 1);
    EXPECT_EQ(deep[1], 0);
    EXPECT_NEAR(deep[2], std::exp(-600.0), 1e-14 * std::exp(-600.0));
    EXPECT_EQ(deep[3], 0);
  }
}

// --- Several tasks at once ---

TEST(BatchSamplerTest, ATokenDependsOnItsOwnTaskAlone) {
  constexpr size_t kVocabulary = 700;
  std::mt19937 random(14);
  std::vector<std::vector<float>> logits;
  std::vector<std::vector<TokenId>> histories, draft_tokens;
  std::vector<SamplingTask> tasks;
  for (size_t i = 0; i < 40; ++i) {
    draft_tokens.push_back(RandomHistory(random, kVocabulary));
    logits.push_back(RandomLogits(random, kVocabulary * (1 + draft_tokens[i].size())));
    histories.push_back(RandomHistory(random, kVocabulary));
    SamplingParams sampling = RandomSampling(random, kVocabulary);
    if (i % 2 == 0) sampling.top_logprobs = 3;
    // Some of the draft tokens are right.
    std::vector<TokenId> known = histories[i];
    for (size_t d = 0; d < draft_tokens[i].size() && random() % 4 != 0; ++d) {
      const auto row = absl::MakeConstSpan(logits[i]).subspan(d * kVocabulary, kVocabulary);
      known.push_back(draft_tokens[i][d] = ChoosePlainly(sampling, row, known));
    }
    tasks.push_back({.sampling = sampling,
                     .logits = logits[i],
                     .tokens = histories[i],
                     .draft_tokens = draft_tokens[i],
                     .chosen = {},
                     .logits_are_numbers = true});
  }
  kernels::cpu::ThreadPool threads(3);
  BatchSampler(&threads).Run(absl::MakeSpan(tasks));
  size_t accepted = 0;
  for (size_t i = 0; i < tasks.size(); ++i) {
    SCOPED_TRACE(testing::Message() << "task " << i);
    std::vector<TokenId> known = histories[i];
    Sampler alone;
    ASSERT_GE(tasks[i].chosen.size(), 1u);
    for (size_t d = 0; d < tasks[i].chosen.size(); ++d) {
      const auto row = absl::MakeConstSpan(logits[i]).subspan(d * kVocabulary, kVocabulary);
      const ChosenToken& chosen = tasks[i].chosen[d];
      EXPECT_EQ(chosen.token, ChoosePlainly(tasks[i].sampling, row, known));
      ASSERT_EQ(chosen.top_logprobs.size(), i % 2 == 0 ? 3u : 0u);
      const float logprob = i % 2 == 0 ? alone.Logprobs(row, chosen.token, 3).first : 0.0f;
      EXPECT_EQ(chosen.logprob, logprob);
      known.push_back(chosen.token);
      const bool goes_on = d < draft_tokens[i].size() && chosen.token == draft_tokens[i][d];
      EXPECT_EQ(d + 1 < tasks[i].chosen.size(), goes_on);
      accepted += goes_on ? 1 : 0;
    }
  }
  EXPECT_GT(accepted, 20u);
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
