#include "clients/pagodactl/generate/latency_histogram.h"

#include <algorithm>
#include <cmath>

namespace pagoda {
namespace {

constexpr double kFirstNanoseconds = 100;
constexpr double kGrowth = 1.02;

// The upper end of a cell.
absl::Duration EndOf(size_t cell) {
  return absl::Nanoseconds(kFirstNanoseconds * std::pow(kGrowth, static_cast<double>(cell)));
}

}  // namespace

void LatencyHistogram::Add(absl::Duration latency) {
  const double nanoseconds = std::max(absl::ToDoubleNanoseconds(latency), kFirstNanoseconds);
  const double cell = std::ceil(std::log(nanoseconds / kFirstNanoseconds) / std::log(kGrowth));
  ++cells_[std::min(static_cast<size_t>(cell), kCells - 1)];
  ++count_;
}

void LatencyHistogram::Add(const LatencyHistogram& other) {
  for (size_t cell = 0; cell < kCells; ++cell) cells_[cell] += other.cells_[cell];
  count_ += other.count_;
}

absl::Duration LatencyHistogram::Percentile(double share) const {
  if (count_ == 0) return absl::ZeroDuration();
  const auto wanted =
      std::max<uint64_t>(1, static_cast<uint64_t>(std::ceil(share * static_cast<double>(count_))));
  uint64_t seen = 0;
  for (size_t cell = 0; cell < kCells; ++cell) {
    seen += cells_[cell];
    if (seen >= wanted) return EndOf(cell);
  }
  return EndOf(kCells - 1);
}

}  // namespace pagoda
