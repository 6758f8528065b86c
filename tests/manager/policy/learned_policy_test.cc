#include "manager/policy/learned_policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "manager/policy/learned_window.h"
#include "tests/manager/policy/policy_cache.h"

namespace pagoda {
namespace {

constexpr PolicyTiers kOneTier = {PolicyTier{64}};

BlockFacts Content(uint32_t slot, uint64_t content, ContentOrigin origin = ContentOrigin::kPrompt) {
  BlockFacts facts = Facts(slot, kDefaultPriority, content);
  facts.content = ContentFacts(1, 0, origin);
  return facts;
}

uint64_t Hash(uint64_t number) { return (number + 1) * 0x9E37'79B9'7F4A'7C15u; }

// --- What a window knows of a block ---

TEST(LearnedWindowTest, ContentThatComesBackKeepsItsUses) {
  LearnedWindow window(kOneTier);
  const auto come_and_go = [&](uint32_t matches) {
    window.Came(0, Content(3, 77));
    for (uint32_t i = 0; i < matches; ++i) window.Matched(0, Content(3, 77));
    window.Released(0, Content(3, 77));
    const uint32_t of_class = window.ClassOf(0, SlotIndex{3});
    window.Left(0, Content(3, 77));
    return of_class;
  };
  EXPECT_EQ(come_and_go(0), ReuseClass::Of(0, ContentKind::kLast));
  EXPECT_EQ(come_and_go(0), ReuseClass::Of(1, ContentKind::kLast)) << "it came back";
  EXPECT_EQ(come_and_go(1), ReuseClass::Of(3, ContentKind::kPrompt)) << "and was matched";
  EXPECT_EQ(come_and_go(9), ReuseClass::Of(3, ContentKind::kPrompt));
}

TEST(LearnedWindowTest, TheLastBlockOfARequestIsToldByItsRelease) {
  LearnedWindow window(kOneTier);
  window.Came(0, Content(1, 11, ContentOrigin::kReply));
  window.Came(0, Content(2, 12, ContentOrigin::kReply));
  window.Released(0, Content(2, 12, ContentOrigin::kReply));
  EXPECT_EQ(window.ClassOf(0, SlotIndex{1}), ReuseClass::Of(0, ContentKind::kReply));
  EXPECT_EQ(window.ClassOf(0, SlotIndex{2}), ReuseClass::Of(0, ContentKind::kLast));
  // The conversation goes on behind it after all.
  window.Matched(0, Content(2, 12, ContentOrigin::kReply));
  window.Released(0, Content(2, 12, ContentOrigin::kReply));
  EXPECT_EQ(window.ClassOf(0, SlotIndex{2}), ReuseClass::Of(1, ContentKind::kReply));
}

TEST(LearnedWindowTest, ABlockWhoseChildLeftIsNotTheEndOfARequest) {
  LearnedWindow window(kOneTier);
  window.Came(0, Content(1, 11));
  window.Came(0, Content(2, 12));
  window.Released(0, Content(2, 12));
  window.Unparked(0, Content(1, 11).slot);
  window.Released(0, Content(1, 11));  // Its priority changed.
  EXPECT_EQ(window.ClassOf(0, SlotIndex{1}), ReuseClass::Of(0, ContentKind::kPrompt));
}

// A prompt that is a little larger than its place evicts blocks of itself and brings them back.
TEST(LearnedWindowTest, ContentThatLeftJustBeforeIsKnown) {
  LearnedWindow window(kOneTier);
  constexpr uint32_t kBlocks = 40;
  for (uint32_t i = 0; i < kBlocks; ++i) window.Came(0, Content(i, Hash(i)));
  for (uint32_t i = 0; i < kBlocks; ++i) window.Left(0, Content(i, Hash(i)));
  for (uint32_t i = kBlocks; i-- > 0;) window.Came(0, Content(i, Hash(i)));
  window.Released(0, Content(0, Hash(0)));
  for (uint32_t i = 1; i < kBlocks; ++i) {
    EXPECT_EQ(window.ClassOf(0, SlotIndex{i}), ReuseClass::Of(1, ContentKind::kPrompt)) << i;
  }
}

TEST(LearnedWindowTest, ABlockThatMovesKeepsItsClassAndItsAge) {
  LearnedWindow window({PolicyTier{64}, PolicyTier{64}});
  window.Came(0, Content(5, 99));
  window.Matched(0, Content(5, 99));
  window.Released(0, Content(5, 99));
  for (uint32_t i = 0; i < 20; ++i) window.Came(0, Content(20 + i, 1'000 + i));
  window.Released(0, Content(39, 1'019));
  EXPECT_EQ(window.AgeOf(0, SlotIndex{5}), 20u);
  window.Left(0, Content(5, 99));
  BlockFacts below = Content(7, 99);
  below.block = Content(5, 99).block;
  window.Came(1, below);
  window.Released(1, below);
  EXPECT_EQ(window.ClassOf(1, SlotIndex{7}), ReuseClass::Of(1, ContentKind::kPrompt));
  EXPECT_EQ(window.AgeOf(1, SlotIndex{7}), 20u);
  // A release by a holder is a use.
  window.Released(1, below);
  EXPECT_EQ(window.AgeOf(1, SlotIndex{7}), 0u);
}

TEST(LearnedWindowTest, TheSameBlockIdWithOtherContentIsNoMove) {
  LearnedWindow window({PolicyTier{64}, PolicyTier{64}});
  window.Came(0, Content(5, 99));
  window.Matched(0, Content(5, 99));
  window.Left(0, Content(5, 99));
  BlockFacts other = Content(7, 100);
  other.block = Content(5, 99).block;
  window.Came(1, other);
  window.Matched(1, other);
  EXPECT_EQ(window.ClassOf(1, SlotIndex{7}), ReuseClass::Of(1, ContentKind::kPrompt));
}

TEST(LearnedWindowTest, ARecoveredBlockTeachesNothingUntilItIsUsed) {
  LearnedWindow window({PolicyTier{64}, PolicyTier{64}});
  window.Recovered(0, Content(5, Hash(1)));
  window.Recovered(1, Content(6, Hash(2)));
  window.Released(1, Content(6, Hash(2)));
  const auto seen = [&] {
    float sum = 0;
    const ReuseTable table = window.Learned().back();
    for (const auto& of_class : table.counts) {
      for (const ReuseIndex::Counts& counts : of_class) sum += counts.reached + counts.reused;
    }
    return sum;
  };
  EXPECT_EQ(seen(), 0);
  EXPECT_EQ(window.ClassOf(0, SlotIndex{5}), ReuseClass::Of(0, ContentKind::kPrompt));
  EXPECT_EQ(window.ClassOf(1, SlotIndex{6}), ReuseClass::Of(0, ContentKind::kLast))
      << "nothing was below it";
  EXPECT_EQ(window.AgeOf(0, SlotIndex{5}), 0u);
  window.Matched(0, Content(5, Hash(1)));
  EXPECT_EQ(window.ClassOf(0, SlotIndex{5}), ReuseClass::Of(1, ContentKind::kPrompt));
  EXPECT_GT(seen(), 0);
}

TEST(LearnedWindowTest, ABlockThatIsNotUsedForLongStaysOld) {
  LearnedWindow window(kOneTier);
  window.Came(0, Content(0, 1));
  window.Released(0, Content(0, 1));
  uint64_t oldest = 0;
  for (uint32_t i = 0; i < 200'000; ++i) {
    window.Came(0, Content(1, 2 + i));
    window.Released(0, Content(1, 2 + i));
    window.Left(0, Content(1, 2 + i));
    if (i < 30'000) continue;
    ASSERT_GE(window.AgeOf(0, SlotIndex{0}), 29'000u) << "after " << i;
    oldest = std::max(oldest, window.AgeOf(0, SlotIndex{0}));
  }
  EXPECT_LE(oldest, 49'152u);
}

// The next victim is in hand when time passes. It stays one, though it is the last of its class.
TEST(LearnedPolicyTest, TheOnlyCandidateStaysTheVictimWhenTimePasses) {
  const TierPolicies policies = MakeLearnedPolicies(kOneTier, 1);
  EvictionPolicy& policy = *policies[0][0];
  for (const uint32_t slot : {0u, 1u}) {
    policy.Inserted(Content(slot, Hash(slot)));
    policy.Released(Content(slot, Hash(slot)));
  }
  const SlotIndex victim = policy.Victim();
  const SlotIndex other{1 - victim.value()};
  EXPECT_EQ(policy.Evicted(Content(victim.value(), Hash(victim.value())), nullptr), other);
  // So many that the last ones end the wait of the first.
  for (uint32_t slot = 2; slot < 60; ++slot) policy.Inserted(Content(slot, Hash(slot)));
  EXPECT_EQ(policy.Victim(), other);
}

// --- The next run of the daemon ---

TEST(LearnedWindowTest, EachTierTakesItsTableOver) {
  const PolicyTiers tiers = {PolicyTier{64}, PolicyTier{64}, PolicyTier{64}};
  ReuseTable first{.lead = 9, .variance = 4, .trusts_index = true};
  ReuseTable second{.lead = -3, .variance = 2};
  first.counts[0][0].reached = 100;
  second.counts[1][2].reached = 200;
  for (const size_t tables : {size_t{1}, size_t{2}}) {
    LearnedWindow window(tiers);
    window.Restore(absl::Span<const ReuseTable>({first, second}).subspan(0, tables));
    const std::vector<ReuseTable> learned = window.Learned();
    ASSERT_EQ(learned.size(), 3u);
    EXPECT_NEAR(learned[0].counts[0][0].reached, 100, 2);  // They fade a little.
    EXPECT_TRUE(window.trusts_index(0));
    const ReuseTable& last = tables == 1 ? first : second;
    for (const size_t tier : {1u, 2u}) {
      EXPECT_NEAR(learned[tier].counts[1][2].reached, last.counts[1][2].reached, 4);
      EXPECT_FALSE(window.trusts_index(tier)) << "it was not seen to be ahead there";
    }
    EXPECT_EQ(learned[1].lead, tables == 1 ? 0 : -3);
    EXPECT_EQ(learned[2].lead, 0);
  }
}

// Calls for a cache of one tier without prefixes. Each content is used and released at once.
class Driver {
 public:
  explicit Driver(uint32_t capacity)
      : policies_(MakeLearnedPolicies({PolicyTier{capacity}}, 1)), contents_(capacity) {}

  EvictionPolicy& policy() { return *policies_[0][0]; }
  // All contents, in the order in which they are evicted.
  std::vector<uint64_t> EvictAll() {
    std::vector<uint64_t> order;
    for (SlotIndex slot = policy().Victim(); slot != kNoSlot; slot = policy().Victim()) {
      order.push_back(contents_[slot.value()]);
      policy().Evicted(Content(slot.value(), order.back()), nullptr);
    }
    slots_.clear();
    return order;
  }
  // Returns whether it was there.
  bool Use(uint64_t content, ContentOrigin origin) {
    const auto found = slots_.find(content);
    if (found != slots_.end()) {
      const BlockFacts facts = Content(found->second, content, origin);
      policy().Withdrawn(facts);
      policy().Touched(facts);
      policy().Released(facts);
      return true;
    }
    auto slot = static_cast<uint32_t>(slots_.size());
    if (slot == contents_.size()) {
      slot = policy().Victim().value();
      policy().Evicted(Content(slot, contents_[slot], origin), nullptr);
      slots_.erase(contents_[slot]);
    }
    contents_[slot] = content;
    slots_[content] = slot;
    policy().Inserted(Content(slot, content, origin));
    // Its child leaves before it: it is no last block.
    policy().Unparked(Content(slot, content, origin));
    return false;
  }

 private:
  TierPolicies policies_;
  std::unordered_map<uint64_t, uint32_t> slots_;
  std::vector<uint64_t> contents_;
};

// Replies come back, later than LRU keeps them. Prompts do not.
void Teach(Driver& driver, uint64_t from, uint64_t count) {
  for (uint64_t i = from; i < from + count; ++i) {
    driver.Use(Hash(i), ContentOrigin::kPrompt);
    driver.Use(Hash(500'000 + i % 50), ContentOrigin::kReply);
  }
}

// The index is computed anew every 64 accesses or more. `first` has just done so, and all three use
// fewer afterwards.
TEST(LearnedPolicyTest, AnotherRunDecidesAsTheOneThatItLearnedFrom) {
  Driver first(64), next(64), fresh(64);
  Teach(first, 0, 20'000);
  const auto seen = [&] {
    const absl::StatusOr<ReuseTable> table = DecodeReuseTable(first.policy().Learned());
    float sum = 0;
    for (const auto& of_class : table->counts) {
      for (const ReuseIndex::Counts& counts : of_class) sum += counts.reached;
    }
    return sum;
  };
  for (float before = 0, now = seen(); now >= before; now = seen()) {
    before = now;
    first.Use(Hash(1), ContentOrigin::kPrompt);
  }
  first.EvictAll();
  const std::vector<std::byte> learned = first.policy().Learned();
  for (Driver* driver : {&first, &next}) {
    ASSERT_TRUE(driver->policy().RestoreLearned(learned).ok());
  }
  std::vector<std::vector<uint64_t>> orders;
  for (Driver* driver : {&first, &next, &fresh}) {
    for (uint64_t i = 0; i < 60; ++i) {
      driver->Use(Hash(700'000 + i), i % 3 == 0 ? ContentOrigin::kReply : ContentOrigin::kPrompt);
    }
    orders.push_back(driver->EvictAll());
    EXPECT_EQ(orders.back().size(), 60u);
  }
  EXPECT_EQ(orders[0], orders[1]);
  EXPECT_NE(orders[1], orders[2]) << "what was learned matters";
}

TEST(LearnedPolicyTest, BytesThatAreNoTableLeaveItAsItIs) {
  Driver taught(64), fresh(64);
  Teach(taught, 0, 5'000);
  std::vector<std::byte> learned = taught.policy().Learned();
  learned[4] ^= std::byte{1};  // The number of classes.
  const std::vector<std::byte> before = fresh.policy().Learned();
  EXPECT_FALSE(fresh.policy().RestoreLearned(learned).ok());
  EXPECT_EQ(fresh.policy().Learned(), before);
  learned[4] ^= std::byte{1};
  EXPECT_TRUE(fresh.policy().RestoreLearned(learned).ok());
  EXPECT_NE(fresh.policy().Learned(), before);
}

TEST(LearnedPolicyTest, OtherPoliciesHaveNothingToKeep) {
  Driver taught(64);
  for (const std::string_view name : EvictionPolicyNames()) {
    if (name == "learned") continue;
    const TierPolicies policies = *MakeEvictionPolicies(name, kOneTier, 1);
    EXPECT_TRUE(policies[0][0]->Learned().empty()) << name;
    EXPECT_FALSE(policies[0][0]->RestoreLearned(taught.policy().Learned()).ok()) << name;
  }
}

// --- What it is for ---

// Blocks of a cache with one tier, without prefixes. Returns the share of hits.
double HitRate(std::string_view name, uint32_t capacity, const std::vector<uint64_t>& accesses) {
  const TierPolicies policies = *MakeEvictionPolicies(name, {PolicyTier{capacity}}, 1);
  EvictionPolicy& policy = *policies[0][0];
  std::unordered_map<uint64_t, uint32_t> slots;
  std::vector<uint64_t> contents(capacity);
  uint64_t hits = 0;
  for (const uint64_t content : accesses) {
    const auto found = slots.find(content);
    if (found != slots.end()) {
      ++hits;
      const BlockFacts facts = Facts(found->second, kDefaultPriority, content);
      policy.Withdrawn(facts);
      policy.Touched(facts);
      policy.Released(facts);
      continue;
    }
    auto slot = static_cast<uint32_t>(slots.size());
    if (slot == capacity) {
      slot = policy.Victim().value();
      policy.Evicted(Facts(slot, kDefaultPriority, contents[slot]), nullptr);
      slots.erase(contents[slot]);
    }
    contents[slot] = content;
    slots[content] = slot;
    policy.Inserted(Facts(slot, kDefaultPriority, content));
    policy.Released(Facts(slot, kDefaultPriority, content));
  }
  return static_cast<double>(hits) / static_cast<double>(accesses.size());
}

// A third of the accesses go round a set of 300 contents, the others are never repeated: LRU of 400
// blocks has forgotten a content before it comes again.
std::vector<uint64_t> LoopInAScan(uint64_t count) {
  std::vector<uint64_t> accesses;
  for (uint64_t i = 0; i < count; ++i) {
    accesses.push_back(i % 3 == 0 ? Hash(i / 3 % 300) : Hash(1'000 + i));
  }
  return accesses;
}

TEST(LearnedPolicyTest, AScanPassesByWhatComesBack) {
  const std::vector<uint64_t> accesses = LoopInAScan(60'000);
  EXPECT_LT(HitRate("lru", 400, accesses), 0.01);
  EXPECT_GT(HitRate("learned", 400, accesses), 0.25) << "of 0.33 that are repeated";
}

// What LRU does best: recent content comes back, whatever happened to it before.
TEST(LearnedPolicyTest, IsNoWorseThanLruWhereRecencyIsAllThereIs) {
  std::mt19937_64 random(1);
  std::vector<uint64_t> accesses;
  std::vector<uint64_t> recent;
  for (uint64_t i = 0; i < 100'000; ++i) {
    if (i % 2 == 0 || recent.size() < 350) {
      recent.push_back(Hash(i));
      accesses.push_back(recent.back());
    } else {
      accesses.push_back(recent[recent.size() - 1 - random() % 350]);
    }
  }
  const double lru = HitRate("lru", 400, accesses);
  EXPECT_GT(lru, 0.4);
  EXPECT_GT(HitRate("learned", 400, accesses), lru - 0.005);
}

TEST(LearnedPolicyTest, AChangeOfTheRequestsCostsLittle) {
  std::vector<uint64_t> accesses = LoopInAScan(60'000);
  // From now on only recent content comes back, once.
  for (uint64_t i = 0; i < 60'000; ++i) {
    accesses.push_back(i % 2 == 0 ? Hash(1'000'000 + i) : Hash(1'000'000 + i - 401));
  }
  const std::vector<uint64_t> first(accesses.begin(), accesses.begin() + 60'000);
  const auto second_half = [&](std::string_view name) {
    return 2 * HitRate(name, 420, accesses) - HitRate(name, 420, first);
  };
  EXPECT_GT(second_half("lru"), 0.45);
  EXPECT_GT(second_half("learned"), second_half("lru") - 0.02);
}

TEST(LearnedPolicyTest, ABlockWorthLessThanAllBelowDoesNotDisplaceOne) {
  const PolicyTiers tiers = {PolicyTier{8}, PolicyTier{64}};
  const TierPolicies policies = MakeLearnedPolicies(tiers, 1);
  EvictionPolicy& above = *policies[0][0];
  EvictionPolicy& below = *policies[1][0];
  // Prompts are used again and again, later than LRU keeps them. Replies never are.
  uint64_t replies = 0;
  for (uint32_t round = 0; round < 400; ++round) {
    for (uint32_t slot = 0; slot < 4; ++slot) {
      const BlockFacts prompt = Content(slot, Hash(slot));
      if (round == 0) {
        above.Inserted(prompt);
      } else {
        above.Withdrawn(prompt);
        above.Touched(prompt);
      }
      above.Released(prompt);
      for (int i = 0; i < 24; ++i) {
        const BlockFacts reply = Content(4, Hash(100 + ++replies), ContentOrigin::kReply);
        above.Inserted(reply);
        above.Released(reply);
        above.Withdrawn(reply);
        above.Removed(reply);
      }
    }
  }
  const auto move_down = [&](uint32_t from, const BlockFacts& block, uint32_t to) {
    above.Withdrawn(block);
    above.Removed(block);
    BlockFacts moved = block;
    moved.slot = SlotIndex{to};
    below.Inserted(moved);
    below.Released(moved);
    EXPECT_EQ(block.slot.value(), from);
    return moved;
  };
  const BlockFacts prompt = move_down(0, Content(0, Hash(0)), 0);
  const BlockFacts reply = Content(4, Hash(1'000'000), ContentOrigin::kReply);
  above.Inserted(reply);
  above.Released(reply);
  EXPECT_TRUE(below.Keeps(prompt, reply, kPrimaryTier));
  EXPECT_FALSE(below.Keeps(move_down(4, reply, 1), Content(1, Hash(1)), kPrimaryTier));
}

}  // namespace
}  // namespace pagoda
