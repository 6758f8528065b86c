// PAGODA_CHECK: a broken invariant stops the process, in release builds too. It is for faults of
// the program. Bad input gets an absl::Status instead.
#ifndef PAGODA_BASE_CHECK_H_
#define PAGODA_BASE_CHECK_H_

namespace pagoda {

[[noreturn]] void CheckFailed(const char* condition, const char* what, const char* file, int line);

}  // namespace pagoda

// `what` is a short literal that says what is required. For a numbered rule of the core's contract
// it begins with "rule N: ".
#define PAGODA_CHECK(condition, what)                              \
  do {                                                             \
    if (!(condition)) [[unlikely]] {                               \
      ::pagoda::CheckFailed(#condition, what, __FILE__, __LINE__); \
    }                                                              \
  } while (false)

#endif  // PAGODA_BASE_CHECK_H_
