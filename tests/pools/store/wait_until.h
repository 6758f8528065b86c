// Waits for something that other threads or processes do.
#ifndef PAGODA_TESTS_POOLS_STORE_WAIT_UNTIL_H_
#define PAGODA_TESTS_POOLS_STORE_WAIT_UNTIL_H_

#include <functional>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace pagoda {

// Whether it happens within 30 seconds.
inline bool WaitUntil(const std::function<bool()>& happens) {
  const absl::Time deadline = absl::Now() + absl::Seconds(30);
  while (!happens()) {
    if (absl::Now() > deadline) return false;
    absl::SleepFor(absl::Milliseconds(20));
  }
  return true;
}

}  // namespace pagoda

#endif  // PAGODA_TESTS_POOLS_STORE_WAIT_UNTIL_H_
