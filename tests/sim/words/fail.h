// A run that finds an error prints it and stops its process. Each run is a separate process, so a
// broken invariant of the core ends it in the same way (tests/sim/runner.h).
#ifndef PAGODA_TESTS_SIM_WORDS_FAIL_H_
#define PAGODA_TESTS_SIM_WORDS_FAIL_H_

#include <sstream>
#include <string>

namespace pagoda::sim {

[[noreturn]] void Fail(const std::string& what);

// Concatenates the parts.
template <class... Parts>
std::string Text(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  return text.str();
}

}  // namespace pagoda::sim

// The arguments after the condition make up the message.
#define SIM_CHECK(condition, ...)                                                        \
  do {                                                                                   \
    if (!(condition)) [[unlikely]] {                                                     \
      ::pagoda::sim::Fail(::pagoda::sim::Text(__VA_ARGS__, " (not: ", #condition, ")")); \
    }                                                                                    \
  } while (false)

#endif  // PAGODA_TESTS_SIM_WORDS_FAIL_H_
