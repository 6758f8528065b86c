#include "tests/sim/record/witness.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "tests/sim/words/fail.h"

namespace pagoda::sim {

class Witness::Wrapper final : public EvictionPolicy {
 public:
  Wrapper(std::unique_ptr<EvictionPolicy> policy, uint32_t window, Tier tier, Witness* witness)
      : policy_(std::move(policy)), window_(window), tier_(tier), witness_(*witness) {}

  bool follows_contents() const override { return policy_->follows_contents(); }
  void Inserted(const pagoda::BlockFacts& block) override { policy_->Inserted(block); }
  void Recovered(const pagoda::BlockFacts& block) override { policy_->Recovered(block); }
  void Touched(const pagoda::BlockFacts& block) override { policy_->Touched(block); }
  void Removed(const pagoda::BlockFacts& block) override { policy_->Removed(block); }
  void Inherited(const pagoda::BlockFacts& block, SlotRef other) override {
    policy_->Inherited(block, other);
  }
  void Released(const pagoda::BlockFacts& block) override { policy_->Released(block); }
  void Unparked(const pagoda::BlockFacts& block) override { policy_->Unparked(block); }
  void Withdrawn(const pagoda::BlockFacts& block) override { policy_->Withdrawn(block); }
  SlotIndex Victim() const override { return policy_->Victim(); }
  bool Keeps(const pagoda::BlockFacts& candidate, const pagoda::BlockFacts& comes,
             Tier from) const override {
    SIM_CHECK(candidate.slot == policy_->Victim(), "the block whose place block ",
              comes.block.value(), " would take is not the victim");
    SIM_CHECK(candidate.priority == comes.priority && from < tier_, "block ", comes.block.value(),
              " of priority ", comes.priority, " is compared with one of priority ",
              candidate.priority);
    const bool keeps = policy_->Keeps(candidate, comes, from);
    if (keeps) witness_.refusals_.push_back({window_, tier_, comes.block});
    return keeps;
  }
  SlotIndex Evicted(const pagoda::BlockFacts& victim, const pagoda::BlockFacts* unparked) override {
    return policy_->Evicted(victim, unparked);
  }
  std::vector<std::byte> Learned() const override { return policy_->Learned(); }
  absl::Status RestoreLearned(absl::Span<const std::byte> learned) override {
    return policy_->RestoreLearned(learned);
  }

 private:
  const std::unique_ptr<EvictionPolicy> policy_;
  const uint32_t window_;
  const Tier tier_;
  Witness& witness_;
};

std::function<TierPolicies(const PolicyTiers&, uint16_t)> Witness::Wrapped(std::string name) {
  // The core makes the policies of its windows in their order.
  return [this, name = std::move(name), window = uint32_t{0}](const PolicyTiers& tiers,
                                                              uint16_t num_tenants) mutable {
    TierPolicies policies = *MakeEvictionPolicies(name, tiers, num_tenants);
    for (size_t t = 0; t < kMaxTiers; ++t) {
      for (std::unique_ptr<EvictionPolicy>& policy : policies[t]) {
        policy = std::make_unique<Wrapper>(std::move(policy), window, Tier(t), this);
      }
    }
    ++window;
    return policies;
  };
}

bool Witness::HeardRefusal(uint32_t window, Tier tier, BlockId refused) const {
  return std::any_of(refusals_.begin(), refusals_.end(), [&](const Refusal& refusal) {
    return refusal.window == window && refusal.tier == tier && refusal.refused == refused;
  });
}

}  // namespace pagoda::sim
