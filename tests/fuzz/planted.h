// Faults that a target plants in its own check, to show that its inputs reach the check. The faults
// of the core are in tests/mutation/faults.
#ifndef PAGODA_TESTS_FUZZ_PLANTED_H_
#define PAGODA_TESTS_FUZZ_PLANTED_H_

#include <cstdlib>
#include <string_view>

namespace pagoda::fuzz {

// Whether the environment variable PAGODA_FUZZ_FAULT names this one.
inline bool Planted(std::string_view fault) {
  static const char* const planted = std::getenv("PAGODA_FUZZ_FAULT");
  return planted != nullptr && fault == planted;
}

}  // namespace pagoda::fuzz

#endif  // PAGODA_TESTS_FUZZ_PLANTED_H_
