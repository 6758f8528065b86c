#include "clients/pagodactl/generate/latency_histogram.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace pagoda {
namespace {

TEST(LatencyHistogramTest, NothingIsZero) {
  EXPECT_EQ(LatencyHistogram().Percentile(0.99), absl::ZeroDuration());
}

TEST(LatencyHistogramTest, PercentilesAreThoseOfTheSortedDurationsWithinTwoPercent) {
  std::mt19937_64 random(7);
  std::vector<absl::Duration> all;
  LatencyHistogram histogram;
  for (int i = 0; i < 10'000; ++i) {
    // From 200 ns to some 20 s.
    const double exponent = static_cast<double>(random() % 8'000) / 1'000;
    all.push_back(absl::Nanoseconds(200 * std::pow(10, exponent)));
    histogram.Add(all.back());
  }
  std::sort(all.begin(), all.end());
  for (const double share : {0.0001, 0.01, 0.5, 0.9, 0.99, 1.0}) {
    const absl::Duration exact = all[static_cast<size_t>(share * 10'000) - 1];
    EXPECT_GE(histogram.Percentile(share) * 1.0001, exact) << share;
    EXPECT_LE(histogram.Percentile(share), exact * 1.0201) << share;
  }
}

TEST(LatencyHistogramTest, TheEndsTakeWhatIsBeyondThem) {
  LatencyHistogram histogram;
  histogram.Add(absl::ZeroDuration());
  EXPECT_EQ(histogram.Percentile(1), absl::Nanoseconds(100));
  histogram.Add(absl::Hours(5));
  EXPECT_GT(histogram.Percentile(1), absl::Minutes(2));
}

TEST(LatencyHistogramTest, OneTakesInAnother) {
  LatencyHistogram slow, fast;
  for (int i = 0; i < 10; ++i) slow.Add(absl::Milliseconds(1));
  for (int i = 0; i < 90; ++i) fast.Add(absl::Microseconds(1));
  fast.Add(slow);
  EXPECT_EQ(fast.count(), 100u);
  EXPECT_LT(fast.Percentile(0.9), absl::Microseconds(2));
  EXPECT_GT(fast.Percentile(0.91), absl::Microseconds(900));
}

}  // namespace
}  // namespace pagoda
