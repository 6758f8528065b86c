#include "tests/mutation/fault.h"

#include <cstdlib>
#include <string_view>

#include "base/check.h"

namespace pagoda {
namespace {

Fault Find(const char* name) {
  if (name == nullptr || *name == '\0') return Fault::kNone;
#define X(fault) \
  if (std::string_view(name) == #fault) return Fault::k##fault;
#include "tests/mutation/faults.def"
#undef X
  PAGODA_CHECK(false, "PAGODA_FAULT names a fault of tests/mutation/faults");
  return Fault::kNone;
}

}  // namespace

Fault PlantedFault() {
  static const Fault planted = Find(std::getenv("PAGODA_FAULT"));
  return planted;
}

}  // namespace pagoda
