#include "manager/eviction_policy.h"

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "manager/lfu_aging_policy.h"
#include "manager/multi_queue_policy.h"
#include "manager/priority_lru_policy.h"
#include "pools/error.h"

namespace pagoda {
namespace {

template <class Policy>
std::unique_ptr<EvictionPolicy> Make(uint32_t num_ids) {
  return std::make_unique<Policy>(num_ids);
}

struct Entry {
  std::string_view name;
  std::unique_ptr<EvictionPolicy> (*make)(uint32_t num_ids);
};

constexpr std::array kPolicies = {
    Entry{"lru", &Make<PriorityLruPolicy>},
    Entry{"mq", &Make<MultiQueuePolicy>},
    Entry{"lfuda", &Make<LfuAgingPolicy>},
};

}  // namespace

absl::StatusOr<std::unique_ptr<EvictionPolicy>> MakeEvictionPolicy(std::string_view name,
                                                                   uint32_t num_ids) {
  const auto entry = std::find_if(kPolicies.begin(), kPolicies.end(),
                                  [name](const Entry& policy) { return policy.name == name; });
  if (entry == kPolicies.end()) {
    std::string message = "there is no eviction policy \"" + std::string(name) + "\"; there are";
    for (const Entry& policy : kPolicies) (message += ' ').append(policy.name);
    return MakeError(Reason::kInvalidArgument, message);
  }
  return entry->make(num_ids);
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
