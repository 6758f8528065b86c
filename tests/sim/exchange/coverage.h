// How often the runs met each case.
#ifndef PAGODA_TESTS_SIM_EXCHANGE_COVERAGE_H_
#define PAGODA_TESTS_SIM_EXCHANGE_COVERAGE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace pagoda::exchange_sim {

enum class Met : uint8_t {
  // The outcomes of fetches, in the order of FetchOutcome.
  kFetched,
  kCached,
  kMissing,
  kPartly,
  kFailed,
  kSlower,
  kNoRoom,
  kRefused,
  kCancelled,
  kJoined,
  kProbe,
  kExpired,  // Fetches that ended at their deadline while they waited.
  kWritten,  // Blocks published.
  kFound,    // Blocks of a publish that the store had.
  kUnwritten,
  kOverBudget,
  kInvalid,
  kWithdrawn,
  kTimedOut,   // Reads whose bytes were late.
  kLateWrite,  // Values that the store took after it had given up.
  kHarmed,
  kEvicted,  // From the store.
  kStalled,
  kOverloaded,
  kForeign,  // Reads of another model's machine.
  kCopy,
  kCopyFailed,
  kShortened,
  kTableRead,  // Sequences whose computed tokens were read.
  kMatched,
  kExhausted,
  kQuota,
  kForked,
  kPinned,
  kKeyed,  // Blocks with clients' keys fetched.
  kOfTenant,
  kStopped,       // Exchanges stopped with jobs under way.
  kStoreStopped,  // Their store was stopped first.
  kFromPeer,      // Fetches that a peer served.
  kNested,        // Fetches that a report began.
  kRepaired,      // Runs whose store got whole at the end.
  kCount,
};

inline constexpr std::array<std::string_view, static_cast<size_t>(Met::kCount)> kMetNames = {
    "fetched",   "cached",        "missing",     "partly",      "failed",     "slower",
    "no_room",   "refused",       "cancelled",   "joined",      "probe",      "expired",
    "written",   "found",         "unwritten",   "over_budget", "invalid",    "withdrawn",
    "timed_out", "late_write",    "harmed",      "evicted",     "stalled",    "overloaded",
    "foreign",   "copy",          "copy_failed", "shortened",   "table_read", "matched",
    "exhausted", "quota",         "forked",      "pinned",      "keyed",      "of_tenant",
    "stopped",   "store_stopped", "from_peer",   "nested",      "repaired"};

struct Coverage {
  std::array<uint64_t, static_cast<size_t>(Met::kCount)> counts = {};

  void Add(Met met, uint64_t count = 1) { counts[static_cast<size_t>(met)] += count; }
  void Add(const Coverage& other) {
    for (size_t i = 0; i < counts.size(); ++i) counts[i] += other.counts[i];
  }
};

}  // namespace pagoda::exchange_sim

#endif  // PAGODA_TESTS_SIM_EXCHANGE_COVERAGE_H_
