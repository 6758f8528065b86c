#include "engine/sampling/beam_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "engine/sampling/batch_sampler.h"
#include "tests/engine/sampling/plain_beam_search.h"

namespace pagoda {
namespace {

using ::testing::ElementsAre;
using Candidate = BeamSearch::Candidate;

constexpr float kImpossible = -std::numeric_limits<float>::infinity();

std::vector<TokenId> HypothesisTokens(const BeamSearch& search, size_t i) {
  return search.hypotheses()[i].tokens;
}

TEST(BeamSearchTest, KeepsTheBestContinuationsOfAllBeams) {
  BeamSearch search({.width = 2, .max_tokens = 3});
  EXPECT_THAT(search.Advance({{{5, -1.0f}, {3, -2.0f}, {4, -9.0f}}}), ElementsAre(0, 0));
  EXPECT_THAT(search.beams()[0].tokens, ElementsAre(5));
  // Both continuations of the second beam are better than those of the first.
  EXPECT_THAT(search.Advance({{{1, -8.0f}, {2, -9.0f}}, {{7, -0.5f}, {6, -0.25f}}}),
              ElementsAre(1, 1));
  EXPECT_THAT(search.beams()[0].tokens, ElementsAre(3, 6));
  EXPECT_EQ(search.beams()[1].score, -2.5);
  EXPECT_TRUE(search.Advance({{{1, -8.0f}, {2, -9.0f}}, {{7, -0.5f}, {6, -0.25f}}}).empty());
  ASSERT_TRUE(search.ended());
  ASSERT_EQ(search.hypotheses().size(), 2u);
  EXPECT_THAT(HypothesisTokens(search, 0), ElementsAre(3, 7, 6));
  EXPECT_DOUBLE_EQ(search.hypotheses()[0].score, -2.75 / 3);
  EXPECT_FALSE(search.hypotheses()[0].ended_by_token);
}

TEST(BeamSearchTest, EqualScoresRankByTokenAndThenByBeam) {
  BeamSearch search({.width = 3, .max_tokens = 9});
  search.Advance({{{8, -1.0f}, {2, -1.0f}, {5, -1.0f}, {1, -1.0f}}});
  EXPECT_THAT(search.beams()[0].tokens, ElementsAre(1));
  EXPECT_THAT(search.beams()[1].tokens, ElementsAre(2));
  EXPECT_THAT(search.beams()[2].tokens, ElementsAre(5));
  const std::vector<Candidate> same = {{7, -1.0f}, {3, -1.0f}};
  EXPECT_THAT(search.Advance({same, same, same}), ElementsAre(0, 1, 2));
  EXPECT_THAT(search.beams()[2].tokens, ElementsAre(5, 3));
}

TEST(BeamSearchTest, OnlyTheBestContinuationsEnd) {
  BeamSearch search({.width = 2, .max_tokens = 9});
  // The third one ends too, but two are better.
  search.Advance({{{1, -1.0f, true}, {2, -2.0f}, {3, -3.0f, true}, {4, -4.0f}}});
  ASSERT_EQ(search.hypotheses().size(), 1u);
  EXPECT_TRUE(search.hypotheses()[0].ended_by_token);
  EXPECT_THAT(search.beams()[1].tokens, ElementsAre(4));
}

TEST(BeamSearchTest, EarlyStoppingEndsWithTheLastHypothesis) {
  for (const bool early : {false, true}) {
    BeamSearch search({.width = 2, .max_tokens = 9, .early_stopping = early});
    search.Advance({{{1, -1.0f, true}, {2, -1.5f, true}, {3, -1.1f}, {4, -1.2f}}});
    EXPECT_FALSE(search.ended());
    // Both hypotheses are there: -1 and -3.0 / 2. The best beam has -1.3 / 2.
    search.Advance({{{1, -1.9f, true}, {3, -0.2f}, {5, -9.0f}}, {{3, -8.0f}, {4, -8.5f}}});
    EXPECT_EQ(search.ended(), early);
    EXPECT_EQ(search.hypotheses().size(), 2u);
  }
}

TEST(BeamSearchTest, EndsWhenNoBeamCanBecomeBetter) {
  BeamSearch search({.width = 2, .max_tokens = 9, .length_penalty = 0});
  search.Advance({{{1, -1.0f, true}, {2, -1.5f, true}, {3, -1.6f}, {4, -1.7f}}});
  EXPECT_TRUE(search.ended()) << "-1.6 is worse than -1.5, and sums only fall";
  BeamSearch longer({.width = 2, .max_tokens = 9, .length_penalty = 0});
  longer.Advance({{{1, -1.0f, true}, {3, -1.2f}, {2, -1.5f, true}, {4, -1.7f}}});
  EXPECT_FALSE(longer.ended());
  longer.Advance({{{1, -0.1f, true}, {3, -0.2f}}, {{1, -3.0f}, {2, -4.0f}}});
  EXPECT_TRUE(longer.ended());
  EXPECT_THAT(HypothesisTokens(longer, 1), ElementsAre(3, 1));
}

TEST(BeamSearchTest, ImpossibleTokensAreTheLastResort) {
  BeamSearch search({.width = 3, .max_tokens = 2});
  search.Advance({{{4, -0.1f}, {0, kImpossible}, {1, kImpossible}, {2, kImpossible}}});
  EXPECT_EQ(search.beams().size(), 3u);
  EXPECT_THAT(search.beams()[1].tokens, ElementsAre(0));
  const std::vector<Candidate> any = {{9, -0.5f}, {8, -0.75f}, {7, -1.0f}};
  search.Advance({any, any, any});
  EXPECT_THAT(HypothesisTokens(search, 2), ElementsAre(4, 7));
  EXPECT_TRUE(std::isfinite(search.hypotheses()[2].score));
}

// Logits that depend on the text, with many equal ones.
std::vector<float> CoarseLogits(const std::vector<TokenId>& text, uint64_t seed, size_t vocab) {
  uint64_t hash = seed;
  for (const TokenId token : text) hash = hash * 6364136223846793005u + token + 1;
  std::mt19937_64 random(hash);
  std::vector<float> logits(vocab);
  for (float& logit : logits) logit = static_cast<float>(random() % 9) / 2.0f;
  return logits;
}

// With the sampler's candidates: what it leaves out makes no difference.
TEST(BeamSearchTest, RandomSearchesAreThePlainOnes) {
  std::mt19937_64 random(7);
  BatchSampler sampler(nullptr);
  for (int round = 0; round < 400; ++round) {
    SCOPED_TRACE(testing::Message() << "round " << round);
    const size_t vocab = 8 + random() % 200;
    GenerateRequest request{.prompt = {1, 2, 3},
                            .max_new_tokens = 1 + static_cast<uint32_t>(random() % 12)};
    request.beam_width = 2 + static_cast<uint32_t>(random() % 7);
    request.num_samples = 1 + static_cast<uint32_t>(random() % request.beam_width);
    request.length_penalty = std::vector<float>{0.6f, 1.0f, 2.0f, 0.0f, -0.5f}[random() % 5];
    request.early_stopping = random() % 2 == 0;
    // Few stop tokens, many, or the whole vocabulary.
    const size_t stops = std::vector<size_t>{0, 1, 3, vocab / 2, vocab}[random() % 5];
    for (size_t i = 0; i < stops; ++i) {
      request.stop_tokens.push_back(static_cast<TokenId>(stops == vocab ? i : random() % vocab));
    }
    std::sort(request.stop_tokens.begin(), request.stop_tokens.end());
    const auto logits_behind = [&](const std::vector<TokenId>& text) {
      return CoarseLogits(text, static_cast<uint64_t>(round), vocab);
    };
    BeamSearch search({.width = request.beam_width,
                       .max_tokens = request.max_new_tokens,
                       .length_penalty = request.length_penalty,
                       .early_stopping = request.early_stopping});
    while (!search.ended()) {
      std::vector<std::vector<Candidate>> candidates;
      for (const BeamSearch::Beam& beam : search.beams()) {
        std::vector<TokenId> text = request.prompt;
        text.insert(text.end(), beam.tokens.begin(), beam.tokens.end());
        const std::vector<float> logits = logits_behind(text);
        SamplingTask task{
            .logits = logits, .beam_width = request.beam_width, .stop_tokens = request.stop_tokens};
        sampler.Run({&task, 1});
        ASSERT_TRUE(task.logits_are_numbers);
        candidates.push_back(std::move(task.candidates));
      }
      search.Advance(candidates);
    }
    const PlainSearch plain = SearchPlainly(request, logits_behind);
    ASSERT_GE(search.hypotheses().size(), plain.best.size());
    for (size_t i = 0; i < plain.best.size(); ++i) {
      EXPECT_EQ(HypothesisTokens(search, i), plain.best[i].tokens);
      EXPECT_NEAR(search.hypotheses()[i].score, plain.best[i].score, 1e-6);
      EXPECT_EQ(search.hypotheses()[i].ended_by_token,
                plain.best[i].reason == FinishReason::kStopToken);
    }
  }
}

TEST(BeamSearchTest, CandidatesNeedNumbers) {
  BatchSampler sampler(nullptr);
  for (const bool all_impossible : {false, true}) {
    std::vector<float> logits(40, all_impossible ? kImpossible : 1.0f);
    if (!all_impossible) logits[17] = std::numeric_limits<float>::quiet_NaN();
    SamplingTask task{.logits = logits, .beam_width = 4};
    sampler.Run({&task, 1});
    EXPECT_FALSE(task.logits_are_numbers);
  }
}

}  // namespace
}  // namespace pagoda
