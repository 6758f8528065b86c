#include "pools/store/store.h"

#include <array>
#include <cstddef>

namespace pagoda {
namespace {

constexpr std::array<const char*, kStoreOutcomes> kOutcomeNames = {
    "ok", "missing", "invalid", "refused", "unreachable", "timed_out", "overloaded", "cancelled"};
constexpr std::array<const char*, kValueFaults> kFaultNames = {"none",      "foreign", "swapped",
                                                               "truncated", "damaged", "forged"};

}  // namespace

const char* StoreOutcomeName(StoreOutcome outcome) {
  return kOutcomeNames[static_cast<size_t>(outcome)];
}

const char* ValueFaultName(ValueFault fault) { return kFaultNames[static_cast<size_t>(fault)]; }

}  // namespace pagoda
