// Hears which blocks a policy keeps in a tier although others want their places.
#ifndef PAGODA_TESTS_SIM_RECORD_WITNESS_H_
#define PAGODA_TESTS_SIM_RECORD_WITNESS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "manager/policy/eviction_policy.h"
#include "pools/types.h"

namespace pagoda::sim {

// Wraps the policies of a core. They decide as before. Each question (EvictionPolicy::Keeps) must
// be about the policy's victim and a block of the same priority from a nearer tier.
class Witness {
 public:
  // The policy of the tier kept its victim, so that `refused` got no place there.
  struct Refusal {
    uint32_t window = 0;
    Tier tier = kPrimaryTier;
    BlockId refused = kNoBlock;
  };

  // For ManagerOptions::make_policies of one core, which the witness outlives.
  std::function<TierPolicies(const PolicyTiers&, uint16_t)> Wrapped(std::string name);

  const std::vector<Refusal>& refusals() const { return refusals_; }
  bool HeardRefusal(uint32_t window, Tier tier, BlockId refused) const;
  void Forget() { refusals_.clear(); }

 private:
  class Wrapper;

  std::vector<Refusal> refusals_;
};

}  // namespace pagoda::sim

#endif  // PAGODA_TESTS_SIM_RECORD_WITNESS_H_
