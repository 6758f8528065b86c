#include "manager/policy/candidate_lists.h"

#include <gtest/gtest.h>

#include "manager/policy/candidate_arena.h"

namespace pagoda {
namespace {

constexpr uint32_t kNumLists = 3;

// The order of the lists has a model: see priority_lru_policy_test.cc.
TEST(CandidateListsTest, OneThatTakesTheLastSlotOutOfAnothersListIsStopped) {
  CandidateArena arena(10, 2 * kNumLists);
  CandidateLists<kNumLists> one(&arena), other(&arena);
  one.PushBack(0, SlotIndex{1});
  EXPECT_DEATH(other.Remove(SlotIndex{1}), "removed from the lists that hold it");
}

TEST(CandidateArenaTest, ItHoldsAsManyListsAsItWasMadeFor) {
  CandidateArena arena(10, kNumLists);
  const CandidateLists<kNumLists> lists(&arena);
  EXPECT_DEATH(CandidateLists<kNumLists>{&arena}, "space for all its lists");
}

}  // namespace
}  // namespace pagoda
