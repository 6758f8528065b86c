#include "engine/model/layers/routing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <vector>

namespace pagoda {
namespace {

using testing::ElementsAre;
using Scores = ExpertsConfig::Scores;
using GroupRating = ExpertsConfig::GroupRating;

// One token's factors by expert.
std::map<uint32_t, float> Route(const ExpertsConfig& config, const std::vector<float>& outputs,
                                const std::vector<float>& correction = {}) {
  std::map<uint32_t, float> factors;
  for (const ExpertTokens& tokens : RouteTokens(config, correction, outputs)) {
    EXPECT_THAT(tokens.rows, ElementsAre(0u));
    factors[tokens.expert] = tokens.factors.at(0);
  }
  return factors;
}

void ExpectFactors(const std::map<uint32_t, float>& actual,
                   const std::map<uint32_t, double>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (const auto& [expert, factor] : expected) {
    ASSERT_TRUE(actual.contains(expert)) << expert;
    EXPECT_NEAR(actual.at(expert), factor, 1e-6) << expert;
  }
}

// exp of the outputs: 1, 8, 2, 4, 1; their sum is 16.
const std::vector<float> kOutputs = {0.0f, std::log(8.0f), std::log(2.0f), std::log(4.0f), 0.0f};

TEST(RoutingTest, SoftmaxIsOfAllExperts) {
  ExpertsConfig config = {.count = 5, .chosen = 2, .scores = Scores::kSoftmax};
  ExpectFactors(Route(config, kOutputs), {{1, 8.0 / 16}, {3, 4.0 / 16}});
  config.normalize = true;
  ExpectFactors(Route(config, kOutputs), {{1, 8.0 / 12}, {3, 4.0 / 12}});
  config.scale = 2.5f;
  ExpectFactors(Route(config, kOutputs), {{1, 2.5 * 8 / 12}, {3, 2.5 * 4 / 12}});
}

TEST(RoutingTest, SoftmaxOfTheChosenIgnoresTheOthers) {
  const ExpertsConfig config = {.count = 5, .chosen = 3, .scores = Scores::kSoftmaxOfChosen};
  ExpectFactors(Route(config, kOutputs), {{1, 8.0 / 14}, {3, 4.0 / 14}, {2, 2.0 / 14}});
}

TEST(RoutingTest, TheCorrectionChangesTheChoiceOnly) {
  const ExpertsConfig config = {
      .count = 4, .chosen = 2, .scores = Scores::kSigmoid, .has_correction = true};
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  const std::vector<float> outputs = {2.0f, 1.0f, 0.0f, -1.0f};
  ExpectFactors(Route(config, outputs), {{0, sigmoid(2)}, {1, sigmoid(1)}});
  ExpectFactors(Route(config, outputs, {0.0f, -1.0f, 0.0f, 1.0f}),
                {{0, sigmoid(2)}, {3, sigmoid(-1)}});
}

// The best expert is in group 0, the two best sums are in the groups 1 and 2.
TEST(RoutingTest, OnlyExpertsOfTheBestGroupsAreChosen) {
  ExpertsConfig config = {.count = 6,
                          .chosen = 2,
                          .scores = Scores::kSoftmaxOfChosen,
                          .groups = 3,
                          .chosen_groups = 1,
                          .group_rating = GroupRating::kBest};
  const std::vector<float> outputs = {3.0f, -3.0f, 2.0f, 1.9f, 2.1f, 1.0f};
  const auto experts = [&] {
    std::vector<uint32_t> chosen;
    for (const auto& [expert, factor] : Route(config, outputs)) chosen.push_back(expert);
    return chosen;
  };
  EXPECT_THAT(experts(), ElementsAre(0u, 1u));
  config.group_rating = GroupRating::kSumOfBestTwo;
  EXPECT_THAT(experts(), ElementsAre(2u, 3u));
  config.chosen_groups = 2;
  EXPECT_THAT(experts(), ElementsAre(2u, 4u));
}

TEST(RoutingTest, OfEqualExpertsTheFirstIsChosenAndNaNLast) {
  const ExpertsConfig config = {.count = 4, .chosen = 2, .scores = Scores::kSoftmaxOfChosen};
  ExpectFactors(Route(config, {1.0f, 1.0f, 1.0f, 1.0f}), {{0, 0.5}, {1, 0.5}});
  const float nan = std::numeric_limits<float>::quiet_NaN();
  ExpectFactors(Route(config, {nan, 1.0f, nan, 1.0f}), {{1, 0.5}, {3, 0.5}});
}

// Every row's experts are those that it has alone.
TEST(RoutingTest, GathersTheTokensOfEachExpert) {
  const ExpertsConfig config = {.count = 3, .chosen = 1, .scores = Scores::kSoftmaxOfChosen};
  const std::vector<ExpertTokens> routed = RouteTokens(config, {},
                                                       {0.0f, 0.0f, 1.0f,    //
                                                        5.0f, 0.0f, 0.0f,    //
                                                        -9.0f, -9.0f, 0.0f,  //
                                                        1.0f, 0.0f, 0.0f});
  ASSERT_EQ(routed.size(), 2u) << "expert 1 has no token";
  EXPECT_EQ(routed[0].expert, 0u);
  EXPECT_THAT(routed[0].rows, ElementsAre(1u, 3u));
  EXPECT_EQ(routed[1].expert, 2u);
  EXPECT_THAT(routed[1].rows, ElementsAre(0u, 2u));
  EXPECT_THAT(routed[1].factors, ElementsAre(1.0f, 1.0f));
}

}  // namespace
}  // namespace pagoda
