// The options of a BlockManager.
#ifndef PAGODA_MANAGER_API_MANAGER_OPTIONS_H_
#define PAGODA_MANAGER_API_MANAGER_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "manager/policy/eviction_policy.h"
#include "manager/words/ids.h"
#include "manager/words/lifecycle_events.h"
#include "manager/words/record_events.h"
#include "manager/words/retention.h"
#include "manager/words/sequence_limits.h"
#include "manager/words/tenant_options.h"
#include "manager/words/tier_spec.h"
#include "pools/layout.h"
#include "pools/pool.h"
#include "pools/types.h"

namespace pagoda {

struct ManagerOptions {
  CacheLayout layout;
  std::vector<TierSpec> tiers;  // Nearest first.
  // The most blocks without bytes (holes) that a sliding window remembers; 0: as many as the
  // largest window has blocks.
  uint32_t max_holes = 0;
  std::string eviction_policy;  // One of EvictionPolicyNames(); empty: the first.
  // Makes policies instead of the named ones, as MakeEvictionPolicies() does. Called once for each
  // window. Empty: `eviction_policy` applies.
  std::function<TierPolicies(const PolicyTiers& tiers, uint16_t num_tenants)> make_policies;
  // The most blocks that can be pinned, in thousandths of each window's capacity over all tiers.
  uint32_t pin_budget_permille = 250;
  // The longest lease of a pin that a tenant's session makes, and the lease of its pins that name
  // none. Sessions of the default tenant can pin without end.
  absl::Duration max_pin_lease = absl::InfiniteDuration();
  // Handed to clients as they are; the core never touches memory.
  std::vector<PoolMapping> pool_mappings;
  LifecycleEvents lifecycle_events = LifecycleEvents::kRaw;
  RecordEvents record_events = RecordEvents::kYes;
  Epoch epoch;
  // The tenants that share the cache, and the default tenant's weight: see TenantOptions.
  std::vector<TenantOptions> tenants;
  uint32_t default_tenant_share = 1;
  // Whether BlockManager::TakeSlotChanges() returns anything.
  bool journal_slots = false;
  // One in this many block ids is sampled for WindowStats::reuse_intervals; 0: none.
  uint32_t reuse_sample = 64;
  // The most blocks that ReuseDistances follows in each window; 0: none.
  uint32_t max_distance_samples = 16'384;
  // Blocks are worth publishing to a store after so many prefix matches, at most
  // BlockFacts::kMaxUses; 0: as soon as they are stored. nullopt: never, and
  // CacheLists::TakePublishable() returns nothing.
  std::optional<uint8_t> publish_min_uses = std::nullopt;
  uint32_t max_sessions = 4096;
  // Session ids count up from the next one. A multiple of 2^32, so that each manager of a process
  // can have its own range.
  SessionId last_session{0};
  SequenceLimits sequence_limits;
  absl::Time start_time = absl::UnixEpoch();
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_API_MANAGER_OPTIONS_H_
