#include "manager/policy/eviction_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "tests/manager/policy/policy_cache.h"

namespace pagoda {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

TEST(EvictionPolicyTest, LearnedIsTheDefault) {
  EXPECT_THAT(EvictionPolicyNames(), ElementsAre("learned", "lru"));
}

TEST(EvictionPolicyTest, AnUnknownPolicyIsRefusedWithTheNamesThereAre) {
  const auto policies = MakeEvictionPolicies("belady", {PolicyTier{10}}, 1);
  EXPECT_EQ(ReasonOf(policies.status()), Reason::kInvalidArgument);
  EXPECT_THAT(std::string(policies.status().message()), HasSubstr("'belady'"));
  EXPECT_THAT(std::string(policies.status().message()), HasSubstr("there are learned, lru"));
  EXPECT_FALSE(MakeEvictionPolicies("", {PolicyTier{10}}, 1).ok());
}

// --- What holds for every policy ---

class EveryPolicyTest : public ::testing::TestWithParam<std::string_view> {};

INSTANTIATE_TEST_SUITE_P(Policies, EveryPolicyTest, ::testing::ValuesIn(EvictionPolicyNames()),
                         [](const auto& param) { return std::string(param.param); });

TEST_P(EveryPolicyTest, WithoutCandidatesThereIsNoVictim) {
  Cache cache(GetParam(), 4);
  EXPECT_EQ(cache.policy().Victim(), kNoSlot);
  cache.policy().Inserted(Facts(1, kDefaultPriority, 5));
  cache.policy().Touched(Facts(1));
  EXPECT_EQ(cache.policy().Victim(), kNoSlot) << "it is held";
  cache.policy().Released(Facts(1));
  EXPECT_EQ(cache.policy().Victim(), SlotIndex{1});
  cache.policy().Withdrawn(Facts(1));
  EXPECT_EQ(cache.policy().Victim(), kNoSlot);
}

TEST_P(EveryPolicyTest, LowestPriorityFirstThenLeastRecentlyUsedWhereNothingWasMatched) {
  Cache cache(GetParam(), 300);
  std::vector<uint32_t> expected;
  for (uint32_t id = 0; id < 300; ++id) {
    cache.Add(id, 0, Priority{static_cast<uint8_t>(id % 3 * 50)});
  }
  for (uint32_t rest = 0; rest < 3; ++rest) {
    for (uint32_t id = rest; id < 300; id += 3) expected.push_back(id);
  }
  EXPECT_EQ(cache.EvictAll(), expected);
}

TEST_P(EveryPolicyTest, HoweverOftenABlockIsMatchedALowerPriorityGoesFirst) {
  Cache cache(GetParam(), 4);
  cache.Add(1, 0, Priority{10});
  cache.Add(2, 0, Priority{11});
  for (int i = 0; i < 50; ++i) cache.Match(1, Priority{10});
  EXPECT_EQ(cache.Victim(), 1u);
}

TEST_P(EveryPolicyTest, ABlockMayComeBackWithAnotherPriority) {
  Cache cache(GetParam(), 4);
  cache.Add(1, 0, Priority{10});
  cache.Add(2, 0, Priority{20});
  cache.policy().Withdrawn(Facts(1));
  cache.policy().Released(Facts(1, Priority{100}));
  EXPECT_THAT(cache.EvictAll(), ElementsAre(2, 1));
}

TEST_P(EveryPolicyTest, AParkedBlockFollowsTheChildThatLeft) {
  Cache cache(GetParam(), 10);
  cache.policy().Inserted(Facts(0));  // The parent: used with its child, and parked.
  cache.Add(1);
  for (uint32_t id = 2; id < 10; ++id) cache.Add(id);
  EXPECT_EQ(cache.Evict(), 1u);
  cache.policy().Unparked(Facts(0));
  EXPECT_EQ(cache.Victim(), 0u);
}

TEST_P(EveryPolicyTest, APassedBlockGoesBeforeTheOthersOfItsPriority) {
  Cache cache(GetParam(), 10);
  cache.Add(0, 0, Priority{10});
  for (uint32_t id = 1; id < 10; ++id) cache.Add(id);
  cache.policy().Passed(Facts(5));
  cache.policy().Passed(Facts(7));
  EXPECT_EQ(cache.Evict(), 0u);
  const uint32_t first = cache.Evict();
  EXPECT_THAT((std::vector{first, cache.Evict()}), UnorderedElementsAre(5, 7));
  EXPECT_EQ(cache.Victim(), 1u);
  cache.policy().Passed(Facts(9));
  cache.Match(9);
  EXPECT_EQ(cache.Victim(), 1u) << "a match makes it a block like others";
}

TEST_P(EveryPolicyTest, AMillionCandidatesGoOneByOne) {
  // A policy that looked at all candidates for each victim would not end.
  constexpr uint32_t kSlots = 1'000'000;
  Cache cache(GetParam(), kSlots);
  for (uint32_t id = 0; id < kSlots; ++id) cache.Add(id, id, kPriorities[id % 4]);
  uint64_t sum = 0;
  for (uint32_t i = 0; i < kSlots; ++i) sum += cache.Evict(i);
  EXPECT_EQ(cache.policy().Victim(), kNoSlot);
  EXPECT_EQ(sum, uint64_t{kSlots} * (kSlots - 1) / 2);
}

TEST_P(EveryPolicyTest, WhoIsACandidateIsTheManagersToSay) {
  Cache cache(GetParam(), 4);
  EXPECT_DEATH(cache.policy().Withdrawn(Facts(1)), "only a candidate is withdrawn");
  cache.Add(1);
  EXPECT_DEATH(cache.policy().Released(Facts(1)), "becomes a candidate once");
  EXPECT_DEATH(cache.policy().Unparked(Facts(1, Priority{0})), "becomes a candidate once");
  EXPECT_DEATH(cache.policy().Released(Facts(2, Priority{101})), "");
}

TEST_P(EveryPolicyTest, OneCallForAnEvictionEqualsTheCallsOneByOne) {
  constexpr uint32_t kSlots = 400;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    std::mt19937_64 random(seed);
    Cache batched(GetParam(), kSlots), single(GetParam(), kSlots);
    // Chains: the parent of slot s is s - 1, except at the heads. Only the ends are candidates.
    const auto is_head = [](uint32_t slot) { return slot % 8 == 0; };
    const auto priority = [&](uint32_t slot) { return kPriorities[slot / 8 % 4]; };
    const auto add_chain = [&](uint32_t head) {
      for (Cache* cache : {&batched, &single}) {
        for (uint32_t slot = head; slot < head + 8; ++slot) {
          cache->policy().Inserted(Facts(slot, priority(slot), slot));
          if (seed % 2 == 0 && slot % 3 == 0) cache->policy().Touched(Facts(slot, priority(slot)));
        }
        cache->policy().Released(Facts(head + 7, priority(head)));
      }
    };
    std::vector<uint32_t> absent;
    for (uint32_t head = 0; head < kSlots; head += 8) add_chain(head);
    for (int step = 0; step < 5'000; ++step) {
      ASSERT_EQ(batched.Victim(), single.Victim()) << "seed " << seed << " step " << step;
      if (batched.policy().Victim() == kNoSlot || (!absent.empty() && random() % 10 == 0)) {
        const size_t pick = random() % absent.size();
        std::swap(absent[pick], absent.back());
        add_chain(absent.back());
        absent.pop_back();
        continue;
      }
      const uint32_t victim = batched.Victim();
      const BlockFacts facts = Facts(victim, priority(victim), victim);
      const BlockFacts parent = Facts(victim - 1, priority(victim), victim - 1);
      const bool unparks = !is_head(victim);
      const SlotIndex next = batched.policy().Evicted(facts, unparks ? &parent : nullptr);
      single.policy().Withdrawn(facts);
      single.policy().Removed(facts);
      if (unparks) single.policy().Unparked(parent);
      ASSERT_EQ(next, single.policy().Victim()) << "seed " << seed << " step " << step;
      if (!unparks) absent.push_back(victim);
    }
  }
}

}  // namespace
}  // namespace pagoda
