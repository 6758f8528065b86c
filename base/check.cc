#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace pagoda {

void CheckFailed(const char* condition, const char* what, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: broken invariant: %s [%s]\n", file, line, what, condition);
  std::fflush(stderr);
  std::abort();
}

}  // namespace pagoda
