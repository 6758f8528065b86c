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
#include "base/metric.h"
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

// Labels: window, tier.
inline constexpr Metric<TierOccupancy> kTierMetrics[] = {
    {&TierOccupancy::capacity, "pagoda_block_capacity_blocks", "capacity_blocks",
     "Blocks that a tier holds, in all states."},
    {&TierOccupancy::free,
     "pagoda_blocks",
     "free_blocks",
     "Blocks by state; the states of a tier add up to its capacity. free; cached: nothing holds "
     "it; active: a sequence or a client holds it; pinned; in_flight: a copy uses it, or its "
     "release is deferred.",
     {"state", "free"}},
    {&TierOccupancy::cached, "pagoda_blocks", "cached_blocks", "", {"state", "cached"}},
    {&TierOccupancy::active, "pagoda_blocks", "active_blocks", "", {"state", "active"}},
    {&TierOccupancy::pinned, "pagoda_blocks", "pinned_blocks", "", {"state", "pinned"}},
    {&TierOccupancy::in_flight, "pagoda_blocks", "in_flight_blocks", "", {"state", "in_flight"}},
    {&TierOccupancy::duplicates, "pagoda_duplicate_blocks", "duplicate_blocks",
     "Cached blocks of pagoda_blocks that are copies of blocks in a nearer tier."},
};
static_assert(EachFieldHasARow(kTierMetrics), "a field has no row");

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
  uint64_t freed_blocks = 0;
  uint64_t evicted_blocks = 0;  // With the blocks that left with them.
  uint64_t displaced_blocks = 0;
  uint64_t offloaded_blocks = 0;
  uint64_t freely_evicted_blocks = 0;
  uint64_t onboarded_blocks = 0;
  uint64_t partial_copies = 0;
  uint64_t taken_over_blocks = 0;
  uint64_t merged_blocks = 0;
  uint64_t lost_blocks = 0;
  uint64_t expired_priorities = 0;
  uint64_t prefix_lookup_tokens = 0;  // See SequencePrompt::uncounted.
  uint64_t prefix_hit_tokens = 0;
  uint64_t lower_hit_tokens = 0;
};

// Label: window. TenantCounters has the families of the values without one.
inline constexpr Metric<WindowCounters> kWindowCounters[] = {
    {&WindowCounters::allocated_blocks, "", "allocated_blocks_total", "Blocks handed out."},
    {&WindowCounters::freed_blocks, "pagoda_freed_blocks_total", "freed_blocks_total",
     "Blocks that became free when their last holder released them, because they were not cached."},
    {&WindowCounters::evicted_blocks, "", "evicted_blocks_total",
     "Blocks dropped from the cache to free slots in the primary tier."},
    {&WindowCounters::displaced_blocks, "", "displaced_blocks_total",
     "Blocks dropped from a lower tier to make space for another block."},
    {&WindowCounters::offloaded_blocks, "pagoda_offloaded_blocks_total", "offloaded_blocks_total",
     "Blocks offloaded by a copy."},
    {&WindowCounters::freely_evicted_blocks, "pagoda_freely_evicted_blocks_total",
     "freely_evicted_blocks_total",
     "Blocks offloaded without a copy, because the lower tier had one already."},
    {&WindowCounters::onboarded_blocks, "pagoda_onboarded_blocks_total", "onboarded_blocks_total",
     "Blocks onboarded by a copy."},
    {&WindowCounters::partial_copies, "pagoda_partial_copies_total", "partial_copies_total",
     "Tails copied for a match, a fork or a truncation."},
    {&WindowCounters::taken_over_blocks, "", "taken_over_blocks_total",
     "Cached blocks that a match took over without a copy."},
    {&WindowCounters::merged_blocks, "pagoda_merged_blocks_total", "merged_blocks_total",
     "Blocks committed with content that was cached already."},
    {&WindowCounters::lost_blocks, "", "lost_blocks_total",
     "Blocks that left the cache because a copy failed."},
    {&WindowCounters::expired_priorities, "pagoda_expired_priorities_total",
     "expired_priorities_total", "Block priorities that expired."},
    {&WindowCounters::prefix_lookup_tokens, "", "prefix_lookup_tokens_total",
     "Prompt tokens of requests."},
    {&WindowCounters::prefix_hit_tokens, "", "prefix_hit_tokens_total",
     "Prompt tokens of requests that were cached."},
    {&WindowCounters::lower_hit_tokens, "", "lower_hit_tokens_total",
     "The cached prompt tokens that lay below the first tier."},
};
static_assert(EachFieldHasARow(kWindowCounters), "a field has no row");

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

// Labels: window, tenant. The counts by tier have more labels: see server/metrics/cache_metrics.cc.
inline constexpr Metric<TenantCounters> kTenantCounters[] = {
    {&TenantCounters::allocated_blocks, "pagoda_allocated_blocks_total", "", "Blocks handed out."},
    {&TenantCounters::prefix_lookup_tokens, "pagoda_prefix_lookup_tokens_total", "",
     "Prompt tokens of requests. A request's prompt counts once, when its first sequence is added. "
     "What it matches after a preemption, or after its engine fetched blocks, counts nowhere."},
};
static_assert(EachFieldHasARow<&TenantCounters::prefix_hit_tokens, &TenantCounters::removed_blocks>(
                  kTenantCounters),
              "a field has no row");

// Blocks by their priority.
using PriorityCounts = std::array<uint32_t, kMaxPriority + 1>;

// A window's tier on disk. All but the last two fields count since the manager was made.
struct DiskTierStats {
  uint64_t backups = 0;
  uint64_t backup_bytes = 0;
  uint64_t failed_backups = 0;
  uint64_t passed_over = 0;
  uint64_t fetches = 0;
  uint64_t fetch_bytes = 0;
  uint64_t failed_fetches = 0;
  uint64_t late_fetches = 0;
  uint64_t erased_blocks = 0;
  uint64_t failed_erases = 0;
  uint32_t waiting_backups = 0;
  uint32_t retired_slots = 0;
};

// Label: window.
inline constexpr Metric<DiskTierStats> kDiskTierMetrics[] = {
    {&DiskTierStats::backups, "pagoda_disk_backups_total", "backups_total",
     "Blocks that got a copy on disk."},
    {&DiskTierStats::backup_bytes, "pagoda_disk_backup_bytes_total", "backup_bytes_total",
     "Bytes ordered to be written, including failed writes. They count against the write budget."},
    {&DiskTierStats::failed_backups, "pagoda_disk_failed_backups_total", "failed_backups_total",
     "Blocks whose write failed."},
    {&DiskTierStats::passed_over, "pagoda_disk_passed_over_blocks_total",
     "passed_over_blocks_total",
     "Blocks that left memory without a copy on disk, because the disk or the write budget was too "
     "slow."},
    {&DiskTierStats::fetches, "pagoda_disk_fetches_total", "fetches_total",
     "Blocks fetched from the disk into memory."},
    {&DiskTierStats::fetch_bytes, "pagoda_disk_fetch_bytes_total", "fetch_bytes_total",
     "Bytes fetched from the disk into memory."},
    {&DiskTierStats::failed_fetches, "pagoda_disk_failed_fetches_total", "failed_fetches_total",
     "Blocks that could not be read or had changed on the disk. Their copy on disk is lost."},
    {&DiskTierStats::late_fetches, "pagoda_disk_late_fetches_total", "late_fetches_total",
     "Blocks read and not used, because their deadline had passed or their slot was gone."},
    {&DiskTierStats::erased_blocks, "pagoda_disk_erased_blocks_total", "erased_blocks_total",
     "Blocks erased for invalidations, so that a restart does not recover them."},
    {&DiskTierStats::failed_erases, "pagoda_disk_failed_erases_total", "failed_erases_total",
     "Erases that the disk gave up. Their blocks can come back after a restart."},
    {&DiskTierStats::waiting_backups, "pagoda_disk_waiting_backups", "waiting_backups",
     "Blocks for which the core has not ordered a write yet."},
    {&DiskTierStats::retired_slots, "pagoda_disk_retired_slots", "retired_slots",
     "Slots that the core does not use until the next start, because a write to them failed."},
};
static_assert(EachFieldHasARow(kDiskTierMetrics), "a field has no row");

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

// Label: window.
inline constexpr Metric<WindowStats> kWindowMetrics[] = {
    {&WindowStats::holes, "pagoda_holes", "holes",
     "Positions in the prefix tree without data: the places of blocks that have left a sliding "
     "window, with cached blocks behind them."},
    {&WindowStats::pinned_blocks, "pagoda_pinned_blocks", "pinned_blocks",
     "Blocks that pins hold, in all tiers."},
    {&WindowStats::pin_budget_blocks, "pagoda_pin_budget_blocks", "pin_budget_blocks",
     "The most blocks that pins can hold."},
};
static_assert(
    EachFieldHasARow<&WindowStats::window, &WindowStats::tiers, &WindowStats::cached_by_priority,
                     &WindowStats::counters, &WindowStats::freely_evicted_blocks,
                     &WindowStats::tenants, &WindowStats::reuse_intervals,
                     &WindowStats::reuse_distances, &WindowStats::disk>(kWindowMetrics),
    "a field has no row");

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
    Tier tier = kPrimaryTier;
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

// Label: tenant.
inline constexpr Metric<TenantUsage> kTenantMetrics[] = {
    {&TenantUsage::sessions, "pagoda_tenant_sessions", "", "Open sessions of a tenant."},
    {&TenantUsage::sequences, "pagoda_tenant_sequences", "", "Sequences of a tenant."},
    {&TenantUsage::sequence_bytes, "pagoda_tenant_sequence_bytes", "",
     "Bytes that a tenant's sequences keep beside their blocks."},
};
static_assert(
    EachFieldHasARow<&TenantUsage::tenant, &TenantUsage::max_sequences,
                     &TenantUsage::max_sequence_bytes, &TenantUsage::uses>(kTenantMetrics),
    "a field has no row");

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

// Without a label.
inline constexpr Metric<ManagerStats> kCacheMetrics[] = {
    {&ManagerStats::sessions, "pagoda_sessions", "sessions",
     "Open sessions, with the one of the bundled engine and one more for each tenant that has "
     "generated lately."},
    {&ManagerStats::sequences, "pagoda_sequences", "sequences",
     "Sequences that hold blocks, with those of the bundled engine."},
    {&ManagerStats::pins, "pagoda_pins", "pins", "Pins of all sessions."},
    {&ManagerStats::quarantines, "pagoda_quarantines", "quarantines",
     "Ended sessions whose processes can still write to blocks."},
    {&ManagerStats::quarantined_blocks, "pagoda_quarantined_blocks", "quarantined_blocks",
     "Blocks that wait for the end of a quarantine."},
    {&ManagerStats::recovered_blocks, "pagoda_recovered_blocks", "recovered_blocks",
     "Blocks that the start found again, in memory or on disk."},
};
static_assert(
    EachFieldHasARow<&ManagerStats::windows, &ManagerStats::copies_in_flight,
                     &ManagerStats::session_counters, &ManagerStats::operations>(kCacheMetrics),
    "a field has no row");

}  // namespace pagoda

#endif  // PAGODA_MANAGER_API_STATS_H_
