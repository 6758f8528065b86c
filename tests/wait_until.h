// Waits for something that other threads or processes do. A test waits for a condition, however
// busy the machine is: a number of tries or a short time is none.
#ifndef PAGODA_TESTS_WAIT_UNTIL_H_
#define PAGODA_TESTS_WAIT_UNTIL_H_

#include <functional>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace pagoda {

// Whether it happens. Only a fault takes a minute.
[[nodiscard]] inline bool WaitUntil(const std::function<bool()>& happens) {
  const absl::Time deadline = absl::Now() + absl::Seconds(60);
  while (!happens()) {
    if (absl::Now() > deadline) return false;
    absl::SleepFor(absl::Milliseconds(5));
  }
  return true;
}

// Whether what `timed` times takes less than `bound`, in one of ten tries. A fault that waits for
// longer does so each time, but a busy machine does not.
inline bool TakesLess(absl::Duration bound, const std::function<absl::Duration()>& timed) {
  for (int i = 0; i < 10; ++i) {
    if (timed() < bound) return true;
  }
  return false;
}

}  // namespace pagoda

#endif  // PAGODA_TESTS_WAIT_UNTIL_H_
