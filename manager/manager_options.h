// How a BlockManager is made.
#ifndef PAGODA_MANAGER_MANAGER_OPTIONS_H_
#define PAGODA_MANAGER_MANAGER_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "manager/eviction_policy.h"
#include "manager/ids.h"
#include "manager/lifecycle_events.h"
#include "manager/record_events.h"
#include "manager/retention.h"
#include "manager/sequence_limits.h"
#include "manager/tenant_options.h"
#include "manager/tier_spec.h"
#include "pools/layout.h"
#include "pools/pool.h"
#include "pools/types.h"

namespace pagoda {

struct ManagerOptions {
  CacheLayout layout;
  std::vector<TierSpec> tiers;  // Nearest first.
  // Blocks without bytes that a sliding window may remember (holes); 0: as many as the largest
  // window has blocks.
  uint32_t max_holes = 0;
  std::string eviction_policy;  // One of EvictionPolicyNames(); empty: the first.
  // Makes policies in place of those, as MakeEvictionPolicies() does; called once for each window
  // and tier that has blocks, nearest first. Empty: `eviction_policy` counts.
  std::function<std::vector<std::unique_ptr<EvictionPolicy>>(uint32_t num_slots,
                                                             uint16_t num_tenants)>
      make_policies;
  // Blocks that may be pinned, in thousandths of each window's capacity over all tiers.
  uint32_t pin_budget_permille = 250;
  // The longest lease of a pin that a tenant's session makes, and the lease of one that it makes
  // without. The default tenant's sessions are trusted to pin without end.
  absl::Duration max_pin_lease = absl::InfiniteDuration();
  // Handed to clients as they are; the core never touches memory.
  std::vector<PoolMapping> pool_mappings;
  LifecycleEvents lifecycle_events = LifecycleEvents::kRaw;
  RecordEvents record_events = RecordEvents::kYes;
  Epoch epoch;
  // Who shares the cache, and the weight of what is nobody's: see TenantOptions.
  std::vector<TenantOptions> tenants;
  uint32_t default_tenant_share = 1;
  // Whether BlockManager::TakeSlotChanges() has anything to say.
  bool journal_slots = false;
  // Of so many blocks one is followed for WindowStats::lives; 0: none.
  uint32_t reuse_sample = 64;
  uint32_t max_sessions = 4096;
  // Session ids count up from the one behind this. A multiple of 2^32, so that the managers of a
  // process can have ranges of their own.
  SessionId last_session{0};
  SequenceLimits sequence_limits;
  absl::Time start_time = absl::UnixEpoch();
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_MANAGER_OPTIONS_H_
