// Random numbers that depend neither on the C++ library nor on the machine.
#ifndef PAGODA_CLIENTS_PAGODA_PLAN_TRACE_RANDOM_DRAWS_H_
#define PAGODA_CLIENTS_PAGODA_PLAN_TRACE_RANDOM_DRAWS_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "clients/pagoda_plan/trace/portable_math.h"

namespace pagoda {

// Draws from distributions. The distributions of <random> differ between libraries, and so do the
// last bits of <cmath>'s log, exp, cos and pow, so these use portable_math.h. Sums of products are
// the same everywhere in code that is compiled with -ffp-contract=off. Thread-compatible.
class RandomDraws {
 public:
  explicit RandomDraws(uint64_t seed) : bits_(seed) {}

  uint64_t Bits() { return bits_(); }
  // From 0 to below 1.
  double Uniform() { return static_cast<double>(bits_() >> 11) * 0x1.0p-53; }
  bool Happens(double probability) { return Uniform() < probability; }
  // From 0 to below `count`. REQUIRES: count > 0.
  uint64_t Below(uint64_t count) {
    return std::min(count - 1, static_cast<uint64_t>(Uniform() * static_cast<double>(count)));
  }
  double Exponential(double mean) { return -mean * PortableLog(1 - Uniform()); }
  // `sigma` is the deviation of the logarithm. The mean is median * exp(sigma^2 / 2).
  double LogNormal(double median, double sigma) {
    const double radius = std::sqrt(-2 * PortableLog(1 - Uniform()));
    return median * PortableExp(sigma * radius * PortableCosOfTurns(Uniform()));
  }
  // At least 1. REQUIRES: mean > 1.
  uint32_t Geometric(double mean) {
    return 1 + static_cast<uint32_t>(PortableLog(1 - Uniform()) / PortableLog(1 - 1 / mean));
  }

 private:
  std::mt19937_64 bits_;
};

// Ranks by popularity: rank r has the weight 1 / (r + 1)^exponent.
class ZipfRanks {
 public:
  ZipfRanks(size_t count, double exponent) {
    double sum = 0;
    for (size_t rank = 0; rank < count; ++rank) {
      sum += PortableExp(-exponent * PortableLog(static_cast<double>(rank + 1)));
      sums_.push_back(sum);
    }
  }
  size_t Draw(RandomDraws& random) const {
    const double at = random.Uniform() * sums_.back();
    const auto found = std::upper_bound(sums_.begin(), sums_.end(), at);
    return std::min(static_cast<size_t>(found - sums_.begin()), sums_.size() - 1);
  }

 private:
  std::vector<double> sums_;
};

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODA_PLAN_TRACE_RANDOM_DRAWS_H_
