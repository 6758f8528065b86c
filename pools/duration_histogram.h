// A histogram of durations.
#ifndef PAGODA_POOLS_DURATION_HISTOGRAM_H_
#define PAGODA_POOLS_DURATION_HISTOGRAM_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/time/time.h"
#include "absl/types/span.h"

namespace pagoda {

// Counts durations by upper bounds, and sums them, as a Prometheus histogram does. Copies of the
// object are independent. Observe compares with each bound at most, and allocates nothing.
// Thread-compatible.
class DurationHistogram {
 public:
  static constexpr size_t kMaxBounds = 20;

  // `bounds`: seconds, ascending, at most kMaxBounds. They must outlive the histogram and its
  // copies.
  explicit DurationHistogram(absl::Span<const double> bounds) : bounds_(bounds) {}

  // A negative duration counts as 0. Only a clock that was set back yields one.
  void Observe(absl::Duration duration) {
    const double seconds = std::max(0.0, absl::ToDoubleSeconds(duration));
    const auto bound = std::lower_bound(bounds_.begin(), bounds_.end(), seconds);
    ++counts_[static_cast<size_t>(bound - bounds_.begin())];
    sum_seconds_ += seconds;
  }

  absl::Span<const double> bounds() const { return bounds_; }
  // The number of durations above bound i - 1 and at most bound i. For i = bounds().size(): the
  // number above all bounds.
  uint64_t count(size_t i) const { return counts_[i]; }
  uint64_t total() const {
    uint64_t total = 0;
    for (const uint64_t count : counts_) total += count;
    return total;
  }
  double sum_seconds() const { return sum_seconds_; }

 private:
  absl::Span<const double> bounds_;
  std::array<uint64_t, kMaxBounds + 1> counts_ = {};
  double sum_seconds_ = 0;
};

}  // namespace pagoda

#endif  // PAGODA_POOLS_DURATION_HISTOGRAM_H_
