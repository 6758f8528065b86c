#ifndef PAGODA_ENGINE_SCHEDULE_STOPWATCH_H_
#define PAGODA_ENGINE_SCHEDULE_STOPWATCH_H_

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace pagoda {

// Adds the time that it lives to a sum.
class Stopwatch {
 public:
  explicit Stopwatch(absl::Duration& sum) : sum_(sum) {}
  ~Stopwatch() { sum_ += absl::Now() - start_; }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  absl::Duration& sum_;
  const absl::Time start_ = absl::Now();
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_SCHEDULE_STOPWATCH_H_
