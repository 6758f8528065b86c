// Numbers that operators look at. Plain counters, copied out under the core's lock.
#ifndef PAGODA_MANAGER_STATS_H_
#define PAGODA_MANAGER_STATS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "base/error.h"
#include "events/event.h"
#include "manager/ids.h"
#include "manager/retention.h"
#include "manager/reuse_intervals.h"
#include "pools/types.h"

namespace pagoda {

// Blocks of one window and tier by state. Each slot counts once (rule 5): in flight before pinned,
// pinned before active, active before cached.
struct TierOccupancy {
  uint32_t capacity = 0;
  uint32_t free = 0;
  uint32_t cached = 0;  // In the tree, held by nobody: evictable.
  // Of those: copies of blocks that lie in a nearer tier, too, where they may be held.
  uint32_t duplicates = 0;
  uint32_t active = 0;  // Held by a sequence or a client.
  uint32_t pinned = 0;
  uint32_t in_flight = 0;  // Copying or draining.

  uint32_t sum() const { return free + cached + active + pinned + in_flight; }
};

// One slot, as TierOccupancy counts it.
enum class SlotState : uint8_t {
  kFree,
  kCached,
  kActive,
  kPinned,
  kInFlight,
  kSpare,  // Of the secondary tier, for swaps: in no count.
};

// Since the manager was made. A counter never goes down.
struct WindowCounters {
  uint64_t allocated_blocks = 0;
  uint64_t freed_blocks = 0;  // Let go by their last holder, and not cached.
  // Dropped from the cache for room in the primary tier, with what went with them.
  uint64_t evicted_blocks = 0;
  uint64_t displaced_blocks = 0;  // Dropped from the secondary tier for another block.
  uint64_t offloaded_blocks = 0;  // Moved down by a copy.
  // Moved down without one, because a copy of theirs was there.
  uint64_t freely_evicted_blocks = 0;
  uint64_t onboarded_blocks = 0;  // Moved up by a copy.
  uint64_t partial_copies = 0;    // Tails copied for a match, a fork or a truncation.
  // Cached blocks that a match continued in place.
  uint64_t taken_over_blocks = 0;
  uint64_t merged_blocks = 0;         // Committed with content that was cached already.
  uint64_t lost_blocks = 0;           // Left the tree because a copy failed.
  uint64_t expired_priorities = 0;    // Priorities whose duration was over.
  uint64_t prefix_lookup_tokens = 0;  // Prompt tokens of added sequences.
  uint64_t prefix_hit_tokens = 0;     // Those that were matched.
  uint64_t secondary_hit_tokens = 0;  // Of those, the ones that lay in the secondary tier.
};

inline constexpr size_t kNumRemovalReasons = static_cast<size_t>(RemovalReason::kLost) + 1;
using RemovalCounts = std::array<std::array<uint64_t, kNumRemovalReasons>, kMaxTiers>;

// Of one window, by tenant. A counter never goes down.
struct TenantCounters {
  uint64_t allocated_blocks = 0;      // Handed to it.
  uint64_t prefix_lookup_tokens = 0;  // Prompt tokens of its sequences.
  // Those that were matched, by the tier where they lay.
  std::array<uint64_t, kMaxTiers> prefix_hit_tokens = {};
  // Its blocks that left the cache, by the tier that they left and by the reason.
  RemovalCounts removed_blocks = {};
};

// Blocks by their priority.
using PriorityCounts = std::array<uint32_t, kMaxPriority + 1>;

// Of a window's tier on disk. All but the last two count since the manager was made.
struct DiskTierStats {
  uint64_t backups = 0;         // Blocks that got a copy on disk.
  uint64_t backup_bytes = 0;    // That were ordered to be written, those that failed too.
  uint64_t failed_backups = 0;  // Of the disk's errors.
  uint64_t passed_over = 0;     // Blocks that left memory without a copy on disk.
  uint64_t fetches = 0;         // Blocks that came into memory.
  uint64_t fetch_bytes = 0;
  uint64_t failed_fetches = 0;  // Of the disk's errors: the copy was lost.
  uint64_t late_fetches = 0;    // Read, and not used: their deadline was over, or their place gone.
  uint64_t erased_blocks = 0;   // For invalidations.
  uint64_t failed_erases = 0;   // Given up: what they name may come back after a restart.
  uint32_t waiting_backups = 0;
  uint32_t retired_slots = 0;  // Of failed writes, until the next start.
};

struct WindowStats {
  WindowSize window;
  std::array<TierOccupancy, kMaxTiers> tiers;
  // What is TierOccupancy::cached without the duplicates, by priority: eviction begins with the
  // lowest.
  std::array<PriorityCounts, kMaxTiers> cached_by_priority = {};
  uint32_t holes = 0;
  uint32_t pinned_blocks = 0;  // Over both tiers, in flight or not.
  uint32_t pin_budget_blocks = 0;
  WindowCounters counters;
  // WindowCounters::freely_evicted_blocks by the tier that they left.
  std::array<uint64_t, kMaxTiers> freely_evicted_blocks = {};
  std::vector<TenantCounters> tenants;  // By TenantId.
  ReuseIntervals::Histograms reuse_intervals;
  DiskTierStats disk;  // Zero without a tier on disk.
};

// How a session came to its end.
enum class SessionEnd : uint8_t { kClosed, kLeaseExpired, kEndedByOperator };
inline constexpr size_t kNumSessionEnds = 3;

// Since the manager was made.
struct SessionCounters {
  std::array<uint64_t, kNumSessionEnds> ended = {};  // Sessions, by SessionEnd.
  // Blocks that nobody held any more when their session had ended, by SessionEnd: free, or cached
  // and evictable. What was quarantined then is in the next number, once it comes back.
  std::array<uint64_t, kNumSessionEnds> reclaimed_blocks = {};
  uint64_t reclaimed_from_quarantine = 0;
};

// Operations that came to the core, by their place in the variant Operation, and those of them that
// failed, by tenant and reason.
struct OperationCounters {
  std::vector<uint64_t> run;
  std::map<std::pair<TenantId, Reason>, uint64_t> failed;
};

// What is quarantined of one session.
struct QuarantineInfo {
  SessionId session;  // 0: of an earlier run.
  std::string client_name;
  TenantId tenant = kDefaultTenant;
  absl::Time since;
  uint32_t blocks = 0;  // Over all windows and tiers.
};

struct TenantUsage {
  struct Use {
    WindowSize window;
    Tier tier = Tier::kPrimary;
    uint32_t used_blocks = 0;
    uint32_t cached_blocks = 0;  // Of those, held by nobody.
    uint32_t quota_blocks = 0;   // kNoQuota: none.
  };
  TenantId tenant = kDefaultTenant;
  uint64_t sessions = 0;
  // Sequences that work for it, and what these keep beside their blocks: see SequenceAccounts.
  uint64_t sequences = 0;
  uint64_t max_sequences = 0;  // While no other tenant has more than its part; likewise bytes.
  uint64_t sequence_bytes = 0;
  uint64_t max_sequence_bytes = 0;
  std::vector<Use> uses;
};

struct ManagerStats {
  std::vector<WindowStats> windows;  // Ascending by window.
  uint64_t sessions = 0;
  uint64_t sequences = 0;
  uint64_t pins = 0;
  uint64_t copies_in_flight = 0;
  uint64_t quarantines = 0;
  uint64_t quarantined_blocks = 0;
  uint64_t recovered_blocks = 0;
  SessionCounters session_counters;
  OperationCounters operations;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_STATS_H_
