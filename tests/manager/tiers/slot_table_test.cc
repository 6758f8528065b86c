#include "manager/tiers/slot_table.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <iterator>
#include <map>
#include <random>
#include <vector>

namespace pagoda {
namespace {

TEST(SlotTableTest, HandsOutFreshSlotsInAscendingOrder) {
  SlotTable table(3, SlotTable::LowerCopies::kNo);
  EXPECT_EQ(table.size(), 3);
  for (uint32_t i = 0; i < 3; ++i) EXPECT_EQ(table.Take(), SlotIndex{i});
  EXPECT_EQ(table.free(), 0);
}

TEST(SlotTableTest, LastReleasedGoesFirst) {
  SlotTable table(3, SlotTable::LowerCopies::kNo);
  for (int i = 0; i < 3; ++i) table.Take();
  for (const uint32_t i : {1, 2, 0}) table.Release(SlotIndex{i});
  for (const uint32_t i : {0, 2, 1}) EXPECT_EQ(table.Take(), SlotIndex{i});
}

TEST(SlotTableTest, SlotIsWhoseItWasGivenLast) {
  SlotTable table(2, SlotTable::LowerCopies::kNo);
  const SlotIndex slot = table.Take();
  EXPECT_EQ(table.owner(slot), kNoBlock) << "taken, and not given yet";
  table.Give(slot, BlockId{7});
  table.Give(slot, BlockId{9});
  EXPECT_EQ(table.owner(slot), BlockId{9});
  table.Release(slot);
  EXPECT_EQ(table.owner(slot), kNoBlock);
  EXPECT_EQ(table.owner(SlotIndex{1}), kNoBlock);
}

TEST(SlotTableTest, ClaimedSlotsAreTakenAndTheOthersAscend) {
  SlotTable table(5, SlotTable::LowerCopies::kNo);
  const std::vector<SlotIndex> claimed = {SlotIndex{3}, SlotIndex{0}};
  table.Claim(claimed);
  EXPECT_EQ(table.free(), 3);
  for (const uint32_t i : {1, 2, 4}) EXPECT_EQ(table.Take(), SlotIndex{i});
  table.Give(SlotIndex{3}, BlockId{1});
  EXPECT_EQ(table.owner(SlotIndex{3}), BlockId{1});
}

TEST(SlotTableTest, NamesTheNextCopyUntilTheSlotIsGivenAgain) {
  SlotTable table(2, SlotTable::LowerCopies::kYes);
  const SlotIndex slot = table.Take();
  table.Give(slot, BlockId{1});
  EXPECT_EQ(table.lower(slot).slot, kNoSlot);
  const SlotRef lower = {Tier{3}, SlotIndex{(1u << 30) - 1}};
  table.SetLower(slot, lower);
  EXPECT_EQ(table.lower(slot), lower);
  table.SetLower(slot, {Tier{1}, SlotIndex{0}});
  EXPECT_EQ(table.lower(slot), (SlotRef{Tier{1}, SlotIndex{0}}));
  table.Give(slot, BlockId{2});
  EXPECT_EQ(table.lower(slot).slot, kNoSlot);
  EXPECT_EQ(SlotTable(1, SlotTable::LowerCopies::kNo).lower(SlotIndex{0}).slot, kNoSlot);
}

TEST(SlotTableDeathTest, RefusesWhatItsContractForbids) {
  SlotTable table(1, SlotTable::LowerCopies::kNo);
  EXPECT_DEATH(table.Give(SlotIndex{0}, BlockId{0}), "taken before it is given");
  EXPECT_DEATH(table.Release(SlotIndex{0}), "released once");
  table.Take();
  EXPECT_DEATH(table.Take(), "a free slot");
  EXPECT_DEATH(table.Claim({}), "before any is taken");
}

// The same table in lists.
TEST(SlotTableTest, AgreesWithANaiveModel) {
  constexpr uint32_t kSlots = 6;
  for (uint32_t seed = 0; seed < 8; ++seed) {
    std::mt19937_64 random(seed);
    SlotTable table(kSlots, SlotTable::LowerCopies::kNo);
    std::vector<SlotIndex> free;  // The next one last.
    for (uint32_t i = kSlots; i-- > 0;) free.push_back(SlotIndex{i});
    std::map<SlotIndex, BlockId> owners;  // The owners of the taken slots.
    for (int i = 0; i < 3000; ++i) {
      const uint64_t what = random() % 3;
      if (what == 0 && !free.empty()) {
        ASSERT_EQ(table.Take(), free.back());
        owners[free.back()] = kNoBlock;
        free.pop_back();
      } else if (what != 0 && !owners.empty()) {
        const auto slot = std::next(owners.begin(), random() % owners.size());
        if (what == 1) {
          slot->second = BlockId{static_cast<uint32_t>(random() % 100)};
          table.Give(slot->first, slot->second);
        } else {
          table.Release(slot->first);
          free.push_back(slot->first);
          owners.erase(slot);
        }
      }
      ASSERT_EQ(table.free(), free.size());
      for (uint32_t slot = 0; slot < kSlots; ++slot) {
        const auto owner = owners.find(SlotIndex{slot});
        ASSERT_EQ(table.owner(SlotIndex{slot}), owner == owners.end() ? kNoBlock : owner->second);
      }
    }
  }
}

}  // namespace
}  // namespace pagoda
