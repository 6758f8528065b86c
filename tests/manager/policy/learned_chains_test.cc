// "learned" evicts chains of blocks by one call a block. The calls that this stands for must give
// the same victims.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "manager/policy/learned_policy.h"
#include "tests/manager/policy/policy_cache.h"

namespace pagoda {
namespace {

// More than the sample holds: most accesses teach nothing.
constexpr uint32_t kSlots = 5'000;

// A request's blocks, from the prompt's start. The last one is a candidate.
struct Chain {
  uint64_t content = 0;
  Priority priority;
  std::vector<uint32_t> slots;
};

// Makes every call to two policies. Only one of them gets Evicted().
class Twins {
 public:
  explicit Twins(uint64_t seed) : random_(seed) {
    for (uint32_t slot = 0; slot < kSlots; ++slot) free_.push_back(slot);
  }

  void Step() {
    const uint64_t choice = random_() % 10;
    if (choice < 4) {
      Add(1 + random_() % 40);
    } else if (choice < 7 && !chains_.empty()) {
      Match();
    } else if (choice == 7 && !chains_.empty()) {
      TouchTheVictim();
    } else if (choice == 8 && !chains_.empty()) {
      HoldForAMoment();
    } else {
      Evict(random_() % 60);
    }
    ASSERT_EQ(one_call().Victim(), four_calls().Victim());
    ASSERT_FALSE(::testing::Test::HasFailure());
  }

  uint64_t in_chains() const { return in_chains_; }

 private:
  EvictionPolicy& one_call() { return *one_call_[0][0]; }
  EvictionPolicy& four_calls() { return *four_calls_[0][0]; }
  template <class Call>
  void Both(const Call& call) {
    call(one_call());
    call(four_calls());
  }

  BlockFacts FactsOf(const Chain& chain, size_t i) const {
    return Facts(chain.slots[i], i % 16 == 7 ? Priority{50} : chain.priority,
                 (chain.content * 64 + i + 1) * 0x9E37'79B9'7F4A'7C15u);
  }
  void Release(const Chain& chain) {
    const BlockFacts tail = FactsOf(chain, chain.slots.size() - 1);
    Both([&](EvictionPolicy& policy) { policy.Released(tail); });
  }
  void Add(size_t blocks) {
    if (free_.size() < blocks) Evict(blocks);
    if (free_.size() < blocks || ::testing::Test::HasFatalFailure()) return;
    Chain chain = {.content = random_() % 600,  // So contents come back.
                   .priority = Priority{static_cast<uint8_t>(random_() % 8 == 0 ? 20 : 35)},
                   .slots = {}};
    if (chains_.contains(chain.content)) return;
    chain.slots.assign(free_.end() - static_cast<ptrdiff_t>(blocks), free_.end());
    free_.resize(free_.size() - blocks);
    for (size_t i = 0; i < blocks; ++i) {
      const BlockFacts facts = FactsOf(chain, i);
      Both([&](EvictionPolicy& policy) { policy.Inserted(facts); });
      if (random_() % 64 == 0) Evict(2);
    }
    Release(chain);
    for (const uint32_t slot : chain.slots) chain_of_[slot] = chain.content;
    chains_[chain.content] = std::move(chain);
  }
  Chain& RandomChain() {
    return std::next(chains_.begin(), static_cast<ptrdiff_t>(random_() % chains_.size()))->second;
  }
  // It is matched, and neither held nor released.
  void TouchTheVictim() {
    const Chain& chain = chains_.at(chain_of_.at(one_call().Victim().value()));
    const BlockFacts tail = FactsOf(chain, chain.slots.size() - 1);
    Both([&](EvictionPolicy& policy) { policy.Touched(tail); });
  }
  void Touch(const Chain& chain, size_t blocks) {
    for (size_t i = 0; i < std::min(blocks, chain.slots.size()); ++i) {
      const BlockFacts facts = FactsOf(chain, i);
      Both([&](EvictionPolicy& policy) { policy.Touched(facts); });
    }
  }
  void HoldForAMoment() {
    const Chain& chain = RandomChain();
    const BlockFacts tail = FactsOf(chain, chain.slots.size() - 1);
    Both([&](EvictionPolicy& policy) { policy.Withdrawn(tail); });
    EXPECT_EQ(one_call().Victim(), four_calls().Victim());
    Release(chain);
  }
  void Match() {
    const Chain& chain = RandomChain();
    const BlockFacts tail = FactsOf(chain, chain.slots.size() - 1);
    Both([&](EvictionPolicy& policy) { policy.Withdrawn(tail); });
    Touch(chain, chain.slots.size());
    Release(chain);
  }
  void Evict(size_t blocks) {
    SlotIndex victim = one_call().Victim();
    for (; blocks > 0 && victim != kNoSlot; --blocks) {
      const auto found = chains_.find(chain_of_.at(victim.value()));
      Chain& chain = found->second;
      ASSERT_EQ(chain.slots.back(), victim.value());
      const BlockFacts leaves = FactsOf(chain, chain.slots.size() - 1);
      const bool has_parent = chain.slots.size() > 1;
      const BlockFacts parent = has_parent ? FactsOf(chain, chain.slots.size() - 2) : BlockFacts{};
      victim = one_call().Evicted(leaves, has_parent ? &parent : nullptr);
      four_calls().Withdrawn(leaves);
      four_calls().Removed(leaves);
      if (has_parent) four_calls().Unparked(parent);
      ASSERT_EQ(victim, four_calls().Victim());
      in_chains_ += has_parent && victim == parent.slot;
      free_.push_back(leaves.slot.value());
      chain.slots.pop_back();
      if (!has_parent) chains_.erase(found);
    }
  }

  std::mt19937_64 random_;
  TierPolicies one_call_ = MakeLearnedPolicies({PolicyTier{kSlots}}, 1);
  TierPolicies four_calls_ = MakeLearnedPolicies({PolicyTier{kSlots}}, 1);
  std::map<uint64_t, Chain> chains_;       // By content.
  std::map<uint32_t, uint64_t> chain_of_;  // By slot.
  std::vector<uint32_t> free_;
  uint64_t in_chains_ = 0;
};

TEST(LearnedChainsTest, OneCallIsAsGoodAsFour) {
  uint64_t in_chains = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Twins twins(seed);
    for (int step = 0; step < 2'000; ++step) {
      twins.Step();
      ASSERT_FALSE(HasFatalFailure()) << "seed " << seed << " step " << step;
    }
    in_chains += twins.in_chains();
  }
  EXPECT_GT(in_chains, 10'000u) << "most blocks leave right after their child";
}

}  // namespace
}  // namespace pagoda
