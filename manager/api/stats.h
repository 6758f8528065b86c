// Statistics for operators: plain counters, copied under the core's lock.
#ifndef PAGODA_MANAGER_API_STATS_H_
#define PAGODA_MANAGER_API_STATS_H_

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
#include "manager/advice/hit_rate_curve.h"
#include "manager/advice/reuse_intervals.h"
#include "manager/words/ids.h"
#include "manager/words/retention.h"
#include "pools/types.h"

namespace pagoda {

// Slots of one window and tier by state. Each slot counts once (rule 5): in flight before pinned,
// pinned before active, active before cached.
struct TierOccupancy {
  uint32_t capacity = 0;
  uint32_t free = 0;
  uint32_t cached = 0;  // In the tree, and nothing holds it: evictable.
  // Copies of blocks that also lie in a nearer tier, where they can be held. They are among the
  // cached.
  uint32_t duplicates = 0;
  uint32_t active = 0;  // Held by a sequence or a client.
  uint32_t pinned = 0;
  uint32_t in_flight = 0;  // A copy or the disk uses it, or a deferred release holds it.

  uint32_t sum() const { return free + cached + active + pinned + in_flight; }
};

// One slot, as TierOccupancy counts it.
enum class SlotState : uint8_t {
  kFree,
  kCached,
  kActive,
  kPinned,
  kInFlight,
  kSpare,  // The spare or a staging slot: in no count.
};

// Counts since the manager was made. A counter never decreases.
struct WindowCounters {
  uint64_t allocated_blocks = 0;
  uint64_t freed_blocks = 0;  // Released by their last holder, and not cached.
  // Dropped from the cache to free slots in the primary tier, with the blocks that left with them.
  uint64_t evicted_blocks = 0;
  uint64_t displaced_blocks = 0;  // Dropped from a lower tier to make space for another block.
  uint64_t offloaded_blocks = 0;  // Offloaded by a copy.
  // Offloaded without a copy of bytes, because the lower tier had one already.
  uint64_t freely_evicted_blocks = 0;
  uint64_t onboarded_blocks = 0;  // Onboarded by a copy.
  uint64_t partial_copies = 0;    // Tails copied for a match, a fork or a truncation.
  // Cached blocks that a match took over without a copy.
  uint64_t taken_over_blocks = 0;
  uint64_t merged_blocks = 0;         // Committed with content that was cached already.
  uint64_t lost_blocks = 0;           // Left the tree because a copy failed.
  uint64_t expired_priorities = 0;    // Priorities whose duration was over.
  uint64_t prefix_lookup_tokens = 0;  // Prompt tokens: see SequencePrompt::uncounted.
  uint64_t prefix_hit_tokens = 0;     // The tokens that matched.
  uint64_t secondary_hit_tokens = 0;  // The matched tokens that lay below the first tier.
};

inline constexpr size_t kNumRemovalReasons = static_cast<size_t>(RemovalReason::kLost) + 1;
using RemovalCounts = std::array<std::array<uint64_t, kNumRemovalReasons>, kMaxTiers>;

// Counts for one window and tenant. A counter never decreases.
struct TenantCounters {
  uint64_t allocated_blocks = 0;      // Given to the tenant.
  uint64_t prefix_lookup_tokens = 0;  // Prompt tokens of its sequences.
  // The tokens that matched, by the tier in which they lay.
  std::array<uint64_t, kMaxTiers> prefix_hit_tokens = {};
  // Its blocks that left the cache, by the tier that they left and by reason.
  RemovalCounts removed_blocks = {};
};

// Blocks by their priority.
using PriorityCounts = std::array<uint32_t, kMaxPriority + 1>;

// A window's tier on disk. All but the last two fields count since the manager was made.
struct DiskTierStats {
  uint64_t backups = 0;         // Blocks that got a copy on disk.
  uint64_t backup_bytes = 0;    // Writes that were ordered, including failed ones.
  uint64_t failed_backups = 0;  // Because of the disk's errors.
  uint64_t passed_over = 0;     // Blocks that left memory without a copy on disk.
  uint64_t fetches = 0;         // Blocks read into memory.
  uint64_t fetch_bytes = 0;
  uint64_t failed_fetches = 0;  // Because of the disk's errors: the copy was lost.
  uint64_t late_fetches = 0;    // Read, but too late: past the deadline, or their place was gone.
  uint64_t erased_blocks = 0;   // For invalidations.
  uint64_t failed_erases = 0;   // Given up: these blocks can come back after a restart.
  uint32_t waiting_backups = 0;
  uint32_t retired_slots = 0;  // Their writes failed. Not used until the next start.
};

struct WindowStats {
  WindowSize window;
  std::array<TierOccupancy, kMaxTiers> tiers;
  // TierOccupancy::cached without the duplicates, by priority. Eviction begins with the lowest.
  std::array<PriorityCounts, kMaxTiers> cached_by_priority = {};
  uint32_t holes = 0;
  uint32_t pinned_blocks = 0;  // Over all tiers, in flight or not.
  uint32_t pin_budget_blocks = 0;
  WindowCounters counters;
  // WindowCounters::freely_evicted_blocks, by the tier that the blocks left.
  std::array<uint64_t, kMaxTiers> freely_evicted_blocks = {};
  std::vector<TenantCounters> tenants;  // By TenantId.
  ReuseIntervals::Histograms reuse_intervals;
  ReuseCounts reuse_distances;  // For HitRateCurve.
  DiskTierStats disk;           // Zero without a tier on disk.
};

// How a session ended.
enum class SessionEnd : uint8_t { kClosed, kLeaseExpired, kEndedByOperator };
inline constexpr size_t kNumSessionEnds = 3;

// Counts since the manager was made.
struct SessionCounters {
  std::array<uint64_t, kNumSessionEnds> ended = {};  // Sessions, by SessionEnd.
  // Blocks that nothing held any more when their session had ended (free, or cached and evictable),
  // by SessionEnd. Blocks that were quarantined then count in reclaimed_from_quarantine later.
  std::array<uint64_t, kNumSessionEnds> reclaimed_blocks = {};
  uint64_t reclaimed_from_quarantine = 0;
};

// Operations that came to the core, by their index in the variant Operation; and the failed ones
// among them, by tenant and reason.
struct OperationCounters {
  std::vector<uint64_t> run;
  std::map<std::pair<TenantId, Reason>, uint64_t> failed;
};

// The quarantine of one session.
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
    uint32_t cached_blocks = 0;  // The part of them that nothing holds.
    uint32_t quota_blocks = 0;   // kNoQuota: none.
  };
  TenantId tenant = kDefaultTenant;
  uint64_t sessions = 0;
  // Sequences charged to it, and what these keep beside their blocks: see SequenceAccounts.
  uint64_t sequences = 0;
  uint64_t max_sequences = 0;  // While no other tenant exceeds its part. Likewise bytes.
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

#endif  // PAGODA_MANAGER_API_STATS_H_
