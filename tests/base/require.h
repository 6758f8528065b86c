// A value that a test or a benchmark cannot go on without.
#ifndef PAGODA_TESTS_BASE_REQUIRE_H_
#define PAGODA_TESTS_BASE_REQUIRE_H_

#include <utility>

#include "absl/status/statusor.h"
#include "base/check.h"

namespace pagoda {

// Stops the process with the error if there is no value.
template <class T>
T Require(absl::StatusOr<T> value) {
  PAGODA_CHECK(value.ok(), value.status().ToString().c_str());
  return *std::move(value);
}

}  // namespace pagoda

#endif  // PAGODA_TESTS_BASE_REQUIRE_H_
