#include "manager/tiers/slot_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <random>

namespace pagoda {
namespace {

TEST(SlotQueueTest, AgreesWithANaiveModel) {
  constexpr uint32_t kSlots = 7;
  for (uint32_t seed = 0; seed < 8; ++seed) {
    std::mt19937_64 random(seed);
    SlotQueue queue(kSlots);
    std::deque<SlotIndex> naive;
    for (int i = 0; i < 3000; ++i) {
      const SlotIndex slot{static_cast<uint32_t>(random() % kSlots)};
      const auto it = std::find(naive.begin(), naive.end(), slot);
      ASSERT_EQ(queue.contains(slot), it != naive.end());
      if (it == naive.end()) {
        queue.PushBack(slot);
        naive.push_back(slot);
      } else {
        queue.Remove(slot);
        naive.erase(it);
      }
      ASSERT_EQ(queue.size(), naive.size());
      if (!naive.empty()) {
        ASSERT_EQ(queue.front(), naive.front());
      }
    }
  }
}

TEST(SlotQueueDeathTest, RefusesWhatItsContractForbids) {
  SlotQueue queue(1);
  EXPECT_DEATH(queue.Remove(SlotIndex{0}), "was in it");
  queue.PushBack(SlotIndex{0});
  EXPECT_DEATH(queue.PushBack(SlotIndex{0}), "queued once");
}

}  // namespace
}  // namespace pagoda
