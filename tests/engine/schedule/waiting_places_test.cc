#include "engine/schedule/waiting_places.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"

namespace pagoda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Place = WaitingPlaces::Place;

GenerateRequest Of(const std::string& tenant, size_t stop_tokens = 0) {
  return {.prompt = {1},
          .stop_tokens = std::vector<TokenId>(stop_tokens),
          .name_space = {},
          .sampling = {},
          .tenant = tenant,
          .arrival = {},
          .ends_sample = {},
          .cancelled = {}};
}

// Takes as many places as fit.
std::vector<Place> TakeAll(WaitingPlaces& places, const GenerateRequest& request) {
  std::vector<Place> taken;
  while (true) {
    absl::StatusOr<Place> place = places.Take(request);
    if (!place.ok()) return taken;
    taken.push_back(*std::move(place));
  }
}

TEST(WaitingPlacesTest, ATenantGetsItsPartWhateverAnotherHas) {
  WaitingPlaces places({.requests = 12}, {"", "red", "blue"});
  const std::vector<Place> red = TakeAll(places, Of("red"));
  EXPECT_EQ(red.size(), 8u) << "its part of 2, and the 6 that are for all";
  EXPECT_EQ(TakeAll(places, Of("blue")).size(), 2u);
  EXPECT_EQ(TakeAll(places, Of("")).size(), 2u);
}

TEST(WaitingPlacesTest, ATenantGetsItsPartOfTheBytesWhateverAnotherHas) {
  const uint64_t one = WaitingPlaces::BytesOf(Of("blue", 1000));
  ASSERT_EQ(one, WaitingPlaces::BytesOf(Of("blue")) + 1000 * sizeof(TokenId));
  WaitingPlaces places({.bytes = 12 * one}, {"", "red", "blue"});
  const std::vector<Place> red = TakeAll(places, Of("red", 1000));
  EXPECT_EQ(red.size(), 8u);
  EXPECT_EQ(TakeAll(places, Of("blue", 1000)).size(), 2u);
}

TEST(WaitingPlacesTest, ARefusalSaysWhoseShareIsFullAndWhichKeySetsIt) {
  WaitingPlaces places({.requests = 4, .bytes = 1 << 16}, {"red", "blue"});
  std::vector<Place> red = TakeAll(places, Of("red"));
  absl::Status refused = places.Take(Of("red")).status();
  EXPECT_EQ(ReasonOf(refused), Reason::kQueueFull);
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("3 requests of the tenant 'red' wait already"),
                    HasSubstr("engine.max_waiting_requests")));
  red.clear();
  red = TakeAll(places, Of("red", 10'000));
  ASSERT_EQ(red.size(), 1u);
  refused = places.Take(Of("red", 10'000)).status();
  EXPECT_EQ(ReasonOf(refused), Reason::kQueueFull);
  EXPECT_THAT(std::string(refused.message()), AllOf(HasSubstr("1 request of the tenant 'red' with"),
                                                    HasSubstr("engine.max_waiting_bytes")));
}

TEST(WaitingPlacesTest, ARequestTakesAPlaceAgainBeyondTheLimitsButNotOfAnothersPart) {
  WaitingPlaces places({.requests = 4}, {"red", "blue"});
  std::vector<Place> red = TakeAll(places, Of("red"));
  EXPECT_EQ(red.size(), 3u);
  red.push_back(places.TakeAgain(Of("red")));
  red.push_back(places.TakeAgain(Of("red")));
  const std::vector<Place> blue = TakeAll(places, Of("blue"));
  EXPECT_EQ(blue.size(), 1u);
  red.resize(3);
  EXPECT_FALSE(places.Take(Of("red")).ok());
  red.resize(2);
  EXPECT_TRUE(places.Take(Of("red")).ok());
}

TEST(WaitingPlacesTest, WhatMayNeverWaitIsNotToBeTriedAgain) {
  WaitingPlaces places({.bytes = 1 << 16}, {""});
  const absl::Status refused = places.Take(Of("", 1 << 14)).status();
  EXPECT_EQ(ReasonOf(refused), Reason::kInvalidCount) << refused;
  EXPECT_TRUE(places.Take(Of("", 1 << 13)).ok());
}

TEST(WaitingPlacesTest, ATenantThatIsNotListedHasThePartOfTheFirst) {
  WaitingPlaces places({.requests = 4}, {"", "red"});
  const std::vector<Place> taken = TakeAll(places, Of("nobody"));
  EXPECT_EQ(taken.size(), 3u);
  EXPECT_FALSE(places.Take(Of("")).ok());
  EXPECT_TRUE(places.Take(Of("red")).ok());
}

// Compared with a plain count, with moves and assignments in between.
TEST(WaitingPlacesTest, RandomTakingAndGivingKeepsTheBoundsAndTheParts) {
  constexpr uint64_t kMost = 40, kPart = 6;
  const std::vector<std::string> names = {"", "red", "blue"};
  std::mt19937 random(1);
  WaitingPlaces places({.requests = kMost}, names);
  std::vector<std::vector<Place>> taken(names.size());
  for (int i = 0; i < 100'000; ++i) {
    const size_t tenant = random() % names.size();
    std::vector<Place>& its = taken[tenant];
    if (random() % 2 == 0 && !its.empty()) {
      std::swap(its[random() % its.size()], its.back());
      if (random() % 2 == 0) its.back() = Place();
      its.pop_back();
      continue;
    }
    size_t beyond = 0;
    for (const auto& places_of : taken) {
      beyond += places_of.size() > kPart ? places_of.size() - kPart : 0;
    }
    const bool may = its.size() < kPart || beyond < kMost - kPart * names.size();
    absl::StatusOr<Place> place = places.Take(Of(names[tenant]));
    ASSERT_EQ(place.ok(), may) << i;
    if (place.ok()) its.push_back(*std::move(place));
  }
}

}  // namespace
}  // namespace pagoda
