// A manager's calls on eviction policies, for their tests.
#ifndef PAGODA_TESTS_MANAGER_POLICY_POLICY_CACHE_H_
#define PAGODA_TESTS_MANAGER_POLICY_POLICY_CACHE_H_

#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "manager/policy/eviction_policy.h"
#include "manager/words/retention.h"

namespace pagoda {

inline constexpr Priority kPriorities[] = {Priority{0}, Priority{34}, kDefaultPriority,
                                           Priority{100}};

using Policies = std::vector<std::unique_ptr<EvictionPolicy>>;

// The policies of one tier, by tenant.
inline Policies Make(std::string_view name, uint32_t num_slots, uint16_t num_tenants) {
  absl::StatusOr<TierPolicies> policies =
      MakeEvictionPolicies(name, {PolicyTier{num_slots}}, num_tenants);
  return policies.ok() ? std::move(policies->front()) : Policies(num_tenants);
}

// A block whose id is unrelated to its slot, because policies go by slot.
inline BlockFacts Facts(uint32_t slot, Priority priority = kDefaultPriority, uint64_t hash = 0) {
  return {.slot = SlotIndex{slot},
          .block = BlockId{2'000'000 - slot},
          .hash = BlockHash{hash},
          .priority = priority};
}

// A manager's actions on one block, as calls of a policy.
class Cache {
 public:
  explicit Cache(std::unique_ptr<EvictionPolicy> policy) : policy_(std::move(policy)) {}
  Cache(std::string_view name, uint32_t num_slots)
      : Cache(std::move(Make(name, num_slots, 1)[0])) {}

  EvictionPolicy& policy() { return *policy_; }
  uint32_t Victim() const { return policy_->Victim().value(); }

  // New content, used and released.
  void Add(uint32_t id, uint64_t content = 0, Priority priority = kDefaultPriority) {
    policy_->Inserted(Facts(id, kDefaultPriority, content));
    policy_->Released(Facts(id, priority));
  }
  // A candidate is matched and released again.
  void Match(uint32_t id, Priority priority = kDefaultPriority) {
    policy_->Withdrawn(Facts(id));
    policy_->Touched(Facts(id));
    policy_->Released(Facts(id, priority));
  }
  // The victim leaves.
  uint32_t Evict(uint64_t content = 0) {
    const uint32_t victim = Victim();
    policy_->Withdrawn(Facts(victim));
    policy_->Removed(Facts(victim, kDefaultPriority, content));
    return victim;
  }
  std::vector<uint32_t> EvictAll() {
    std::vector<uint32_t> ids;
    while (policy_->Victim() != kNoSlot) ids.push_back(Evict());
    return ids;
  }

 private:
  std::unique_ptr<EvictionPolicy> policy_;
};

}  // namespace pagoda

#endif  // PAGODA_TESTS_MANAGER_POLICY_POLICY_CACHE_H_
