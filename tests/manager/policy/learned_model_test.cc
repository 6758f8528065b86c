// The policy "learned" beside its definition, on random calls.
#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "manager/policy/learned_policy.h"
#include "tests/manager/policy/naive_learned.h"
#include "tests/manager/policy/policy_cache.h"

namespace pagoda {
namespace {

constexpr uint32_t kSlots = 64;

// A cache of one or two tiers in memory, without a tree: any block can have children or lose them.
class Pair {
 public:
  Pair(uint64_t seed, uint32_t tiers)
      : random_(seed), policies_(MakeLearnedPolicies(TiersOf(tiers), 1)), naive_(tiers, kSlots) {
    for (uint32_t t = 0; t < tiers; ++t) tiers_.emplace_back();
  }

  void Step() {
    const uint32_t t = Below(static_cast<uint32_t>(tiers_.size()));
    const uint32_t slot = Below(kSlots);
    const auto found = tiers_[t].find(slot);
    if (found == tiers_[t].end()) {
      if (t == 0) Insert(slot);
    } else if (found->second.is_candidate) {
      Change(t, slot);
    } else if (Below(4) == 0) {
      Touch(t, found->second);
    } else {
      Release(t, slot);
    }
    while (tiers_[t].size() > 50 && Evict(t)) {
    }
    for (uint32_t tier = 0; tier < tiers_.size(); ++tier) {
      const std::optional<SlotIndex> expected = naive_.Victim(tier);
      ASSERT_EQ(policy(tier).Victim(), expected.value_or(kNoSlot)) << "tier " << tier;
    }
    by_index_ += naive_.trusts_index(0);
  }

  uint64_t by_index() const { return by_index_; }
  uint64_t unparked() const { return unparked_; }
  uint64_t moved() const { return moved_; }
  uint64_t kept() const { return kept_; }
  void ExpectSameTable() { EXPECT_EQ(policy(0).Learned(), Encode(naive_.learned())); }

 private:
  struct Block {
    BlockFacts facts;
    bool is_candidate = false;
  };

  static PolicyTiers TiersOf(uint32_t tiers) {
    PolicyTiers of = {};
    for (uint32_t t = 0; t < tiers; ++t) of[t].num_slots = kSlots;
    return of;
  }
  uint32_t Below(uint32_t end) { return static_cast<uint32_t>(random_() % end); }
  EvictionPolicy& policy(uint32_t tier) { return *policies_[tier][0]; }

  void Insert(uint32_t slot) {
    uint64_t hash = ++next_ * 0x9E37'79B9'7F4A'7C15u;
    if (!gone_.empty() && Below(3) == 0) {
      const size_t which = Below(static_cast<uint32_t>(gone_.size()));
      hash = gone_[which];
      gone_.erase(gone_.begin() + static_cast<ptrdiff_t>(which));
    }
    BlockFacts facts = Facts(slot, kDefaultPriority, hash);
    facts.block = BlockId{++ids_};
    facts.content =
        ContentFacts(1, 0, hash % 3 == 0 ? ContentOrigin::kReply : ContentOrigin::kPrompt);
    policy(0).Inserted(facts);
    naive_.Inserted(0, facts);
    tiers_[0][slot] = {.facts = facts};
  }
  // Something happens to a candidate. A prompt seldom comes back, so that there is something to
  // learn.
  void Change(uint32_t t, uint32_t slot) {
    const bool is_reply = tiers_[t][slot].facts.content.origin() == ContentOrigin::kReply;
    if (!is_reply && Below(4) != 0) return;
    if (Below(8) == 0) {  // Its priority changes.
      Withdraw(t, tiers_[t][slot]);
      Release(t, slot);
    } else if (t == 1) {
      MoveUp(slot);
    } else if (tiers_.size() > 1 && Below(4) == 0) {
      MoveDown(slot);
    } else {
      Withdraw(t, tiers_[t][slot]);
      Touch(t, tiers_[t][slot]);
    }
  }
  // A request matches it.
  void Touch(uint32_t t, const Block& block) {
    policy(t).Touched(block.facts);
    naive_.Touched(t, block.facts);
  }
  void Withdraw(uint32_t t, Block& block) {
    policy(t).Withdrawn(block.facts);
    naive_.Withdrawn(t, block.facts.slot);
    block.is_candidate = false;
  }
  // Its last holder released it, or did so before, and its last child leaves now.
  void Release(uint32_t t, uint32_t slot) {
    Block& block = tiers_[t][slot];
    if (Below(10) == 0) block.facts.priority = Priority{static_cast<uint8_t>(20 + Below(3))};
    if (Below(3) == 0) {
      policy(t).Unparked(block.facts);
      naive_.Unparked(t, block.facts);
      ++unparked_;
    } else {
      policy(t).Released(block.facts);
      naive_.Released(t, block.facts);
    }
    block.is_candidate = true;
  }
  bool Evict(uint32_t t) {
    const SlotIndex victim = policy(t).Victim();
    if (victim == kNoSlot) return false;
    const BlockFacts facts = tiers_[t][victim.value()].facts;
    // Sometimes its parent has no other child, and becomes a candidate.
    Block* parent = nullptr;
    for (auto& [slot, block] : tiers_[t]) {
      if (!block.is_candidate && Below(8) == 0) parent = &block;
    }
    policy(t).Evicted(facts, parent == nullptr ? nullptr : &parent->facts);
    naive_.Withdrawn(t, victim);
    naive_.Removed(t, facts);
    if (parent != nullptr) {
      naive_.Unparked(t, parent->facts);
      parent->is_candidate = true;
      ++unparked_;
    }
    tiers_[t].erase(victim.value());
    if (facts.content.origin() == ContentOrigin::kReply) gone_.push_back(facts.hash.value());
    if (gone_.size() > 150) gone_.pop_front();
    return true;
  }
  // Unless the victim below is worth more.
  void MoveDown(uint32_t slot) {
    const BlockFacts facts = tiers_[0][slot].facts;
    const SlotIndex below = policy(1).Victim();
    if (below != kNoSlot && naive_.settled()) {
      const BlockFacts& displaced = tiers_[1][below.value()].facts;
      const bool keeps = policy(1).Keeps(displaced, facts, kPrimaryTier);
      ASSERT_EQ(keeps, naive_.Keeps(1, below, 0, facts.slot));
      kept_ += keeps;
      if (keeps) return;
    }
    Block& moved = Move(0, slot, 1);
    policy(1).Released(moved.facts);
    naive_.Released(1, moved.facts);
    moved.is_candidate = true;
  }
  // A request matches a block below.
  void MoveUp(uint32_t slot) {
    if (tiers_[0].size() == kSlots) return;
    const Block& moved = Move(1, slot, 0);
    if (Below(4) != 0) Touch(0, moved);
  }
  Block& Move(uint32_t from, uint32_t slot, uint32_t to) {
    const BlockFacts facts = tiers_[from][slot].facts;
    Withdraw(from, tiers_[from][slot]);
    policy(from).Removed(facts);
    naive_.Removed(from, facts);
    tiers_[from].erase(slot);
    uint32_t free = 0;
    while (tiers_[to].contains(free)) ++free;
    Block& moved = tiers_[to][free] = {.facts = facts};
    moved.facts.slot = SlotIndex{free};
    policy(to).Inserted(moved.facts);
    naive_.Inserted(to, moved.facts);
    ++moved_;
    return moved;
  }

  std::mt19937_64 random_;
  TierPolicies policies_;
  NaiveLearned naive_;
  std::vector<std::map<uint32_t, Block>> tiers_;  // By slot.
  std::deque<uint64_t> gone_;                     // Replies that were evicted last.
  uint64_t next_ = 1;
  uint32_t ids_ = 0;
  uint64_t by_index_ = 0, unparked_ = 0, moved_ = 0, kept_ = 0;
};

TEST(LearnedModelTest, OneTierEqualsItsDefinition) {
  uint64_t by_index = 0, unparked = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Pair pair(seed, 1);
    for (int step = 0; step < 8'000; ++step) {
      pair.Step();
      ASSERT_FALSE(HasFailure()) << "seed " << seed << " step " << step;
    }
    pair.ExpectSameTable();
    by_index += pair.by_index();
    unparked += pair.unparked();
  }
  EXPECT_GT(by_index, 5'000u);
  EXPECT_GT(unparked, 1'000u);
}

TEST(LearnedModelTest, TwoTiersEqualTheirDefinition) {
  uint64_t by_index = 0, moved = 0, kept = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Pair pair(seed, 2);
    for (int step = 0; step < 8'000; ++step) {
      pair.Step();
      ASSERT_FALSE(HasFailure()) << "seed " << seed << " step " << step;
    }
    pair.ExpectSameTable();
    by_index += pair.by_index();
    moved += pair.moved();
    kept += pair.kept();
  }
  EXPECT_GT(by_index, 5'000u);
  EXPECT_GT(moved, 1'000u);
  EXPECT_GT(kept, 100u);
}

}  // namespace
}  // namespace pagoda
