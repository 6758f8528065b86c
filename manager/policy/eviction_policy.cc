#include "manager/policy/eviction_policy.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "manager/policy/learned_policy.h"
#include "manager/policy/priority_lru_policy.h"

namespace pagoda {
namespace {

struct Entry {
  std::string_view name;
  TierPolicies (*make)(const PolicyTiers& tiers, uint16_t num_tenants);
};

constexpr std::array kPolicies = {
    Entry{"learned", &MakeLearnedPolicies},
    Entry{"lru", &MakePriorityLruPolicies},
};

}  // namespace

SlotIndex EvictionPolicy::Evicted(const BlockFacts& victim, const BlockFacts* unparked) {
  Withdrawn(victim);
  Removed(victim);
  if (unparked != nullptr) Unparked(*unparked);
  return Victim();
}

absl::Status EvictionPolicy::RestoreLearned(absl::Span<const std::byte> /*learned*/) {
  return MakeError(Reason::kInvalidArgument, "the eviction policy learns nothing");
}

absl::StatusOr<TierPolicies> MakeEvictionPolicies(std::string_view name, const PolicyTiers& tiers,
                                                  uint16_t num_tenants) {
  const auto entry = std::find_if(kPolicies.begin(), kPolicies.end(),
                                  [name](const Entry& policy) { return policy.name == name; });
  if (entry == kPolicies.end()) {
    std::string message = "there is no eviction policy '" + std::string(name) + "'; there are ";
    for (const Entry& policy : kPolicies) {
      if (&policy != kPolicies.data()) message += ", ";
      message += policy.name;
    }
    return MakeError(Reason::kInvalidArgument, message);
  }
  return entry->make(tiers, num_tenants);
}

const std::vector<std::string_view>& EvictionPolicyNames() {
  static const auto* const names = [] {
    auto* all = new std::vector<std::string_view>;
    for (const Entry& policy : kPolicies) all->push_back(policy.name);
    return all;
  }();
  return *names;
}

}  // namespace pagoda
