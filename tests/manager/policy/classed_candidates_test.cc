#include "manager/policy/classed_candidates.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <utility>
#include <vector>

namespace pagoda {
namespace {

constexpr uint32_t kSlots = 60;
constexpr uint64_t kKeys = ClassedCandidates::kKeys;

TEST(ClassedCandidatesTest, EmptyAtFirst) {
  CandidateArena arena(4, 0);
  const ClassedCandidates candidates(&arena);
  EXPECT_EQ(candidates.LowestPriority(), ClassedCandidates::kNoPriority);
}

TEST(ClassedCandidatesTest, WhoIsACandidateIsTheCallersToSay) {
  CandidateArena arena(4, 0);
  ClassedCandidates candidates(&arena);
  candidates.PushBack(SlotIndex{1}, Priority{3}, 0, 0, 0);
  EXPECT_DEATH(candidates.PushBack(SlotIndex{1}, Priority{3}, 1, 0, 0), "candidate once");
  EXPECT_DEATH(candidates.Remove(SlotIndex{2}), "only a candidate");
  EXPECT_DEATH(candidates.PushBack(SlotIndex{2}, Priority{101}, 0, 0, 0), "at most 100");
}

// Lists that are sorted by key, with old keys raised to the floor.
class Naive {
 public:
  using Row = std::pair<uint32_t, uint32_t>;  // Priority and class.

  void Push(uint32_t slot, Row row, uint64_t key, uint64_t present, bool front) {
    auto& list = rows_[row];
    const uint64_t floor = present < kKeys ? 0 : present - (kKeys - 1);
    for (auto& [of, slot_there] : list) of = std::max(of, floor);
    key = std::max(key, floor);
    const auto at = front ? std::find_if(list.begin(), list.end(),
                                         [&](const auto& entry) { return entry.first >= key; })
                          : std::find_if(list.begin(), list.end(),
                                         [&](const auto& entry) { return entry.first > key; });
    list.insert(at, {key, slot});
  }
  void Remove(uint32_t slot, Row row) {
    std::erase_if(rows_[row], [slot](const auto& entry) { return entry.second == slot; });
  }
  std::optional<uint32_t> Oldest(Row row) {
    return rows_[row].empty() ? std::nullopt : std::optional(rows_[row].front().second);
  }
  uint32_t LowestPriority() const {
    for (const auto& [row, list] : rows_) {
      if (!list.empty()) return row.first;
    }
    return ClassedCandidates::kNoPriority;
  }

 private:
  std::map<Row, std::vector<std::pair<uint64_t, uint32_t>>> rows_;
};

TEST(ClassedCandidatesTest, EqualsSortedListsOnRandomCalls) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    std::mt19937_64 random(seed);
    CandidateArena arena(kSlots, 0);
    ClassedCandidates candidates(&arena);
    Naive naive;
    std::vector<std::optional<Naive::Row>> rows(kSlots);
    uint64_t present = 0;
    for (int step = 0; step < 5'000; ++step) {
      if (random() % 4 == 0) present += random() % (seed % 3 == 0 ? 3 * kKeys : 4);
      const auto slot = static_cast<uint32_t>(random() % kSlots);
      std::optional<Naive::Row>& row = rows[slot];
      if (row.has_value()) {
        candidates.Remove(SlotIndex{slot});
        naive.Remove(slot, *row);
        row.reset();
      } else {
        row = {static_cast<uint32_t>(random() % 3 * 50),
               static_cast<uint32_t>(random() % ClassedCandidates::kClasses)};
        const uint64_t key = present - std::min(present, random() % (2 * kKeys));
        const bool front = random() % 2 == 0;
        const Priority priority{static_cast<uint8_t>(row->first)};
        if (front) {
          candidates.PushFront(SlotIndex{slot}, priority, row->second, key, present);
        } else {
          candidates.PushBack(SlotIndex{slot}, priority, row->second, key, present);
        }
        naive.Push(slot, *row, key, present, front);
      }
      const uint32_t lowest = candidates.LowestPriority();
      ASSERT_EQ(lowest, naive.LowestPriority()) << "seed " << seed << " step " << step;
      if (lowest == ClassedCandidates::kNoPriority) continue;
      for (uint32_t c = 0; c < ClassedCandidates::kClasses; ++c) {
        const std::optional<uint32_t> expected = naive.Oldest({lowest, c});
        ASSERT_EQ((candidates.Classes(lowest) >> c & 1) != 0, expected.has_value());
        ASSERT_EQ(candidates.Oldest(lowest, c), expected ? SlotIndex{*expected} : kNoSlot)
            << "seed " << seed << " step " << step << " class " << c;
      }
    }
  }
}

}  // namespace
}  // namespace pagoda
