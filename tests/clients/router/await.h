// Waits for something that other threads or processes do.
#ifndef PAGODA_TESTS_CLIENTS_ROUTER_AWAIT_H_
#define PAGODA_TESTS_CLIENTS_ROUTER_AWAIT_H_

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace pagoda {

// Fails the test if it does not happen. Only a fault takes this long.
inline bool Await(const std::function<bool()>& happens, const std::string& what) {
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  while (!happens()) {
    if (absl::Now() > deadline) {
      ADD_FAILURE() << "never: " << what;
      return false;
    }
    absl::SleepFor(absl::Milliseconds(1));
  }
  return true;
}

}  // namespace pagoda

#endif  // PAGODA_TESTS_CLIENTS_ROUTER_AWAIT_H_
