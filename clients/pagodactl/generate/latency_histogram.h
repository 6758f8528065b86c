#ifndef PAGODA_CLIENTS_PAGODACTL_GENERATE_LATENCY_HISTOGRAM_H_
#define PAGODA_CLIENTS_PAGODACTL_GENERATE_LATENCY_HISTOGRAM_H_

#include <array>
#include <cstdint>

#include "absl/time/time.h"

namespace pagoda {

// Counts durations in cells that are 2 % wide, from 100 ns to about 3 minutes. Its memory does not
// grow with the run. Thread-compatible.
class LatencyHistogram {
 public:
  void Add(absl::Duration latency);
  void Add(const LatencyHistogram& other);

  uint64_t count() const { return count_; }
  // The duration that a share of `share` of them does not exceed, at most 2 % too large. Zero if
  // there are none.
  absl::Duration Percentile(double share) const;

 private:
  static constexpr size_t kCells = 1080;

  std::array<uint64_t, kCells> cells_ = {};
  uint64_t count_ = 0;
};

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODACTL_GENERATE_LATENCY_HISTOGRAM_H_
