#ifndef PAGODA_MANAGER_POLICY_LFU_AGING_POLICY_H_
#define PAGODA_MANAGER_POLICY_LFU_AGING_POLICY_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "manager/policy/aging_arena.h"
#include "manager/policy/aging_candidates.h"
#include "manager/policy/eviction_policy.h"
#include "manager/policy/use_history.h"

namespace pagoda {

// "lfuda": Least Frequently Used with Dynamic Aging (M. Arlitt, L. Cherkasova, J. Dilley, R.
// Friedrich, T. Jin, "Evaluating Content Management Techniques for Web Proxy Caches", HPL-98-173;
// the policy `heap LFUDA` of Squid), strictly by priority first. A block's key is the cache's age
// at the block's last use, plus 1, plus its matches. The block with the lowest key is evicted
// first, and the cache's age becomes that key. So a block with many matches stays longer, but not
// for ever. The policy remembers matches for a while after content has left.
//
// All tenants of a tier share 16 bytes for each slot. Each tenant takes 2 KiB, and 256 bytes for
// each priority that its blocks have.
class LfuAgingPolicy final : public EvictionPolicy {
 public:
  using Shared = AgingArena;

  explicit LfuAgingPolicy(std::shared_ptr<Shared> shared)
      : shared_(std::move(shared)), candidates_(&shared_->candidates), history_(&shared_->uses) {}

  void Inserted(const BlockFacts& block) override;
  void Touched(const BlockFacts& block) override;
  void Removed(const BlockFacts& block) override;
  void Released(const BlockFacts& block) override;
  void Unparked(const BlockFacts& block) override;
  void Passed(const BlockFacts& block) override;
  void Withdrawn(const BlockFacts& block) override;
  SlotIndex Victim() const override;

 private:
  uint64_t KeyOf(SlotIndex slot) const;

  const std::shared_ptr<Shared> shared_;  // Owned by these policies.
  AgingCandidates candidates_;
  UseHistory history_;
  uint64_t age_ = 0;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_POLICY_LFU_AGING_POLICY_H_
