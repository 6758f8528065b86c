#include "pools/duration_histogram.h"

#include <gtest/gtest.h>

namespace pagoda {
namespace {

constexpr double kBounds[] = {0.001, 0.1, 10};

TEST(DurationHistogramTest, ADurationCountsAtTheFirstBoundThatItDoesNotExceed) {
  DurationHistogram histogram(kBounds);
  histogram.Observe(absl::ZeroDuration());
  histogram.Observe(absl::Milliseconds(1));
  histogram.Observe(absl::Microseconds(1001));
  histogram.Observe(absl::Milliseconds(100));
  histogram.Observe(absl::Seconds(11));
  EXPECT_EQ(histogram.count(0), 2u) << "a bound belongs to what is below it";
  EXPECT_EQ(histogram.count(1), 2u);
  EXPECT_EQ(histogram.count(2), 0u);
  EXPECT_EQ(histogram.count(3), 1u) << "above all bounds";
  EXPECT_EQ(histogram.total(), 5u);
  EXPECT_NEAR(histogram.sum_seconds(), 0.001 + 0.001001 + 0.1 + 11, 1e-9);
}

TEST(DurationHistogramTest, ANegativeDurationIsNone) {
  DurationHistogram histogram(kBounds);
  histogram.Observe(-absl::Seconds(5));
  EXPECT_EQ(histogram.count(0), 1u);
  EXPECT_EQ(histogram.sum_seconds(), 0);
}

TEST(DurationHistogramTest, ACopyStandsStill) {
  DurationHistogram histogram(kBounds);
  const DurationHistogram before = histogram;
  histogram.Observe(absl::Seconds(1));
  EXPECT_EQ(before.total(), 0u);
  EXPECT_EQ(histogram.total(), 1u);
}

}  // namespace
}  // namespace pagoda
