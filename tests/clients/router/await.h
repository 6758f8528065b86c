// Waits for something that other threads or processes do.
#ifndef PAGODA_TESTS_CLIENTS_ROUTER_AWAIT_H_
#define PAGODA_TESTS_CLIENTS_ROUTER_AWAIT_H_

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "tests/wait_until.h"

namespace pagoda {

// Fails the test if it does not happen.
inline bool Await(const std::function<bool()>& happens, const std::string& what) {
  if (WaitUntil(happens)) return true;
  ADD_FAILURE() << "never: " << what;
  return false;
}

}  // namespace pagoda

#endif  // PAGODA_TESTS_CLIENTS_ROUTER_AWAIT_H_
