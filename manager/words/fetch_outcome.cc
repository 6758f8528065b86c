#include "manager/words/fetch_outcome.h"

#include <array>

namespace pagoda {
namespace {

constexpr std::array<const char*, kFetchOutcomes> kNames = {
    "fetched", "cached",  "missing", "partly",    "failed",
    "slower",  "no_room", "refused", "cancelled", "no_source"};

}  // namespace

const char* FetchOutcomeName(FetchOutcome outcome) { return kNames[static_cast<size_t>(outcome)]; }

}  // namespace pagoda
