// A clock that is not affected by changes of the system's time.
#ifndef PAGODA_BASE_STOPWATCH_H_
#define PAGODA_BASE_STOPWATCH_H_

#include <chrono>

#include "absl/time/time.h"

namespace pagoda {

using SteadyTime = std::chrono::steady_clock::time_point;

inline SteadyTime SteadyNow() { return std::chrono::steady_clock::now(); }
inline absl::Duration Since(SteadyTime start) { return absl::FromChrono(SteadyNow() - start); }

// Adds the duration of its scope to a sum.
class Stopwatch {
 public:
  explicit Stopwatch(absl::Duration& sum) : sum_(sum) {}
  ~Stopwatch() { sum_ += Since(start_); }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  absl::Duration& sum_;
  const SteadyTime start_ = SteadyNow();
};

}  // namespace pagoda

#endif  // PAGODA_BASE_STOPWATCH_H_
