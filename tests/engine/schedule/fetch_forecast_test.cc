#include "engine/schedule/fetch_forecast.h"

#include <gtest/gtest.h>

#include <chrono>

namespace pagoda {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Answer = FetchForecast::Answer;

const SteadyTime kStart = SteadyTime() + std::chrono::hours(1);

TEST(FetchForecastTest, TriesWhatItHasNotMeasured) {
  FetchForecast forecast;
  const Answer first = forecast.Worth(1000, 1000, kStart);
  EXPECT_TRUE(first.worth);
  EXPECT_FALSE(first.fetch.has_value());
  EXPECT_FALSE(first.recompute.has_value());
  EXPECT_EQ(first.patience, FetchForecast::kFirstPatience);
  forecast.Computed(500, absl::Milliseconds(250));
  const Answer second = forecast.Worth(1000, 1000, kStart);
  EXPECT_TRUE(second.worth) << "nothing is known of the disk";
  ASSERT_TRUE(second.recompute.has_value());
  EXPECT_NEAR(absl::ToDoubleSeconds(*second.recompute), 0.5, 1e-6);
  EXPECT_EQ(second.patience, *second.recompute) << "no longer than computing takes";
}

TEST(FetchForecastTest, PatienceHasBounds) {
  FetchForecast forecast;
  forecast.Computed(1000, absl::Seconds(1));
  EXPECT_EQ(forecast.Worth(1, 1, kStart).patience, FetchForecast::kLeastPatience);
  EXPECT_EQ(forecast.Worth(1'000'000, 1'000'000, kStart).patience, FetchForecast::kMostPatience);
}

TEST(FetchForecastTest, ComparesWithComputing) {
  FetchForecast forecast;
  forecast.Computed(1000, absl::Seconds(1));
  for (int i = 0; i < 5; ++i) forecast.Fetched(1000, 1000, absl::Milliseconds(100), kStart);
  const Answer fast = forecast.Worth(2000, 2000, kStart);
  EXPECT_TRUE(fast.worth);
  ASSERT_TRUE(fast.fetch.has_value());
  EXPECT_NEAR(absl::ToDoubleSeconds(*fast.fetch), 0.2, 1e-6) << "of one size: by the token";
  for (int i = 0; i < 20; ++i) forecast.Computed(1000, absl::Milliseconds(50));
  EXPECT_FALSE(forecast.Worth(1000, 1000, kStart + seconds(1)).worth)
      << "the engine has become faster";
}

TEST(FetchForecastTest, TellsWhatEachFetchTakesFromWhatEachTokenTakes) {
  FetchForecast forecast;
  // 10 ms, and 10 us per token.
  for (const uint64_t tokens : {100, 5000, 300, 8000, 1000}) {
    forecast.Fetched(tokens, tokens, absl::Milliseconds(10) + absl::Microseconds(10 * tokens),
                     kStart);
  }
  const auto expect = [&](uint64_t tokens, double expected) {
    const Answer answer = forecast.Worth(tokens, tokens, kStart);
    ASSERT_TRUE(answer.fetch.has_value());
    EXPECT_NEAR(absl::ToDoubleSeconds(*answer.fetch), expected, 1e-6) << tokens;
  };
  expect(10, 0.0101);
  expect(20'000, 0.21);
  // 20 us per token: fetching more than 1000 tokens is worth it.
  forecast.Computed(1'000'000, absl::Seconds(20));
  EXPECT_FALSE(forecast.Worth(900, 900, kStart).worth);
  EXPECT_TRUE(forecast.Worth(1100, 1100, kStart).worth);
}

TEST(FetchForecastTest, NeitherPartIsNegative) {
  FetchForecast forecast;
  forecast.Fetched(1000, 1000, absl::Milliseconds(50), kStart);
  forecast.Fetched(2000, 2000, absl::Milliseconds(10), kStart);
  const Answer more = forecast.Worth(4000, 4000, kStart);
  EXPECT_GE(*more.fetch, absl::Milliseconds(10));
  EXPECT_LE(*more.fetch, absl::Milliseconds(50));
  FetchForecast steep;
  steep.Fetched(1000, 1000, absl::Milliseconds(1), kStart);
  steep.Fetched(2000, 2000, absl::Milliseconds(50), kStart);
  EXPECT_GE(*steep.Worth(1, 1, kStart).fetch, absl::ZeroDuration());
}

TEST(FetchForecastTest, SmallFetchesSayNothingOfLargeOnes) {
  FetchForecast forecast;
  forecast.Computed(1000, absl::Milliseconds(20));
  forecast.Fetched(16, 16, absl::Milliseconds(5), kStart);
  EXPECT_FALSE(forecast.Worth(16, 16, kStart).worth);
  const Answer large = forecast.Worth(10'000, 10'000, kStart);
  EXPECT_TRUE(large.worth);
  EXPECT_FALSE(large.fetch.has_value());
  EXPECT_EQ(large.patience, absl::Milliseconds(200));
  // A fetch that was cut off does.
  forecast.Fetched(100, 10'000, absl::Milliseconds(200), kStart);
  EXPECT_FALSE(forecast.Worth(10'000, 10'000, kStart).worth);
}

TEST(FetchForecastTest, ASlowDiskIsTriedFromTimeToTime) {
  FetchForecast forecast;
  forecast.Computed(1000, absl::Milliseconds(100));
  forecast.Fetched(1000, 1000, absl::Seconds(1), kStart);
  EXPECT_FALSE(forecast.Worth(1000, 1000, kStart + seconds(29)).worth);
  EXPECT_TRUE(forecast.Worth(1000, 1000, kStart + seconds(30)).worth);
  EXPECT_FALSE(forecast.Worth(1000, 1000, kStart + seconds(31)).worth) << "one trial";
  EXPECT_TRUE(forecast.Worth(1000, 1000, kStart + seconds(61)).worth) << "nobody told how it ended";
  for (int i = 0; i < 20; ++i) {
    forecast.Fetched(1000, 1000, absl::Milliseconds(10), kStart + seconds(61));
  }
  EXPECT_TRUE(forecast.Worth(1000, 1000, kStart + seconds(62)).worth) << "it has recovered";
  EXPECT_TRUE(forecast.Worth(1000, 1000, kStart + seconds(62)).worth);
}

TEST(FetchForecastTest, FetchesThatBringNothingAreTriedLessAndLess) {
  FetchForecast forecast;
  SteadyTime now = kStart;
  absl::Duration pause = FetchForecast::kFirstFailurePause;
  for (int i = 0; i < 12; ++i) {
    forecast.Failed(now);
    const SteadyTime next = now + absl::ToChronoNanoseconds(pause);
    EXPECT_FALSE(forecast.Worth(1000, 1000, next - milliseconds(1)).worth) << i;
    EXPECT_TRUE(forecast.Worth(1000, 1000, next).worth) << i;
    EXPECT_FALSE(forecast.Worth(1000, 1000, next).worth) << "one trial";
    now = next;
    pause = std::min(2 * pause, FetchForecast::kMostFailurePause);
  }
  EXPECT_EQ(pause, FetchForecast::kMostFailurePause);
  forecast.Fetched(1000, 1000, absl::Milliseconds(1), now);
  EXPECT_TRUE(forecast.Worth(1000, 1000, now).worth);
  forecast.Failed(now);
  EXPECT_TRUE(forecast.Worth(1000, 1000, now + seconds(1)).worth) << "from the beginning";
}

TEST(FetchForecastTest, MoreMayBeComputedThanIsFetched) {
  FetchForecast forecast;
  forecast.Computed(1000, absl::Milliseconds(50));
  forecast.Fetched(1000, 1000, absl::Milliseconds(100), kStart);
  EXPECT_FALSE(forecast.Worth(1000, 1000, kStart).worth);
  EXPECT_TRUE(forecast.Worth(1000, 2100, kStart).worth) << "the rest is in memory";
}

TEST(FetchForecastTest, LargeStepsCountForMore) {
  FetchForecast forecast;
  forecast.Computed(2000, absl::Seconds(2));
  for (int i = 0; i < 10; ++i) forecast.Computed(2, absl::Milliseconds(100));
  const Answer answer = forecast.Worth(1000, 1000, kStart);
  EXPECT_NEAR(absl::ToDoubleSeconds(*answer.recompute), 1.5, 0.02);
}

}  // namespace
}  // namespace pagoda
