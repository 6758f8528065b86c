// A run that finds something wrong says what and stops its process: each run is a process of its
// own, so that a broken invariant of the core ends it in the same way (runner.h).
#ifndef PAGODA_TESTS_SIM_FAIL_H_
#define PAGODA_TESTS_SIM_FAIL_H_

#include <sstream>
#include <string>

namespace pagoda::sim {

[[noreturn]] void Fail(const std::string& what);

// The parts, one after another.
template <class... Parts>
std::string Text(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  return text.str();
}

}  // namespace pagoda::sim

// What follows the condition are parts of the message.
#define SIM_CHECK(condition, ...)                                                        \
  do {                                                                                   \
    if (!(condition)) [[unlikely]] {                                                     \
      ::pagoda::sim::Fail(::pagoda::sim::Text(__VA_ARGS__, " (not: ", #condition, ")")); \
    }                                                                                    \
  } while (false)

#endif  // PAGODA_TESTS_SIM_FAIL_H_
