#include "manager/policy/aging_candidates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <random>
#include <vector>

#include "manager/policy/candidate_arena.h"

namespace pagoda {
namespace {

using ::testing::ElementsAre;

constexpr Priority kLow{10};
constexpr Priority kHigh{90};

std::vector<uint32_t> TakeAll(AgingCandidates& candidates) {
  std::vector<uint32_t> slots;
  for (SlotIndex slot = candidates.First(); slot != kNoSlot; slot = candidates.First()) {
    slots.push_back(slot.value());
    candidates.Remove(slot);
  }
  return slots;
}

TEST(AgingCandidatesTest, PriorityComesBeforeKeyAndKeyBeforePlace) {
  CandidateArena arena(10, AgingCandidates::kNumLists);
  AgingCandidates candidates(&arena);
  candidates.PushBack(SlotIndex{1}, kHigh, 0, 0);
  candidates.PushBack(SlotIndex{2}, kLow, 5, 0);
  candidates.PushBack(SlotIndex{3}, kLow, 4, 0);
  candidates.PushBack(SlotIndex{4}, kLow, 4, 0);
  candidates.PushFront(SlotIndex{5}, kLow, 4, 0);
  candidates.PushBack(SlotIndex{6}, Priority{0}, 31, 0);
  candidates.PushBack(SlotIndex{7}, Priority{100}, 0, 0);
  EXPECT_THAT(TakeAll(candidates), ElementsAre(6, 5, 3, 4, 2, 1, 7));
}

TEST(AgingCandidatesTest, KeysBelowTheFloorKeepTheirOrderAndShareIt) {
  CandidateArena arena(10, AgingCandidates::kNumLists);
  AgingCandidates candidates(&arena);
  candidates.PushBack(SlotIndex{1}, kLow, 3, 0);
  candidates.PushBack(SlotIndex{2}, kLow, 1, 0);
  candidates.PushBack(SlotIndex{3}, kLow, 10, 0);
  candidates.PushBack(SlotIndex{4}, kLow, 0, 10);
  candidates.PushBack(SlotIndex{5}, kLow, 11, 10);
  EXPECT_THAT(TakeAll(candidates), ElementsAre(2, 1, 3, 4, 5));
}

TEST(AgingCandidatesTest, AKeyOutOfReachIsTheHighest) {
  CandidateArena arena(10, AgingCandidates::kNumLists);
  AgingCandidates candidates(&arena);
  candidates.PushBack(SlotIndex{1}, kLow, 1'000'000, 0);
  candidates.PushBack(SlotIndex{2}, kLow, AgingCandidates::kKeys - 1, 0);
  candidates.PushBack(SlotIndex{3}, kLow, AgingCandidates::kKeys - 2, 0);
  EXPECT_THAT(TakeAll(candidates), ElementsAre(3, 1, 2));
}

TEST(AgingCandidatesTest, AFloorThatJumpsOverTheRingKeepsTheOrder) {
  // The floors go from one key beyond the ring to several rings, so that the old keys meet the new
  // floor's list in every way.
  for (uint64_t floor = 1; floor < 4 * AgingCandidates::kKeys; ++floor) {
    CandidateArena arena(AgingCandidates::kKeys + 1, AgingCandidates::kNumLists);
    AgingCandidates candidates(&arena);
    std::vector<uint32_t> expected;
    for (uint32_t key = 0; key < AgingCandidates::kKeys; ++key) {
      candidates.PushBack(SlotIndex{key}, kLow, key, 0);
      expected.push_back(key);
    }
    candidates.PushFront(SlotIndex{AgingCandidates::kKeys}, kLow, 0, floor);
    expected.insert(expected.begin(), AgingCandidates::kKeys);
    ASSERT_EQ(TakeAll(candidates), expected) << floor;
  }
}

// The contract, by sorting alone.
class NaiveCandidates {
 public:
  void Push(SlotIndex slot, Priority priority, uint64_t key, uint64_t floor, bool front) {
    std::vector<Entry>& entries = entries_[priority];
    uint64_t& lowest = floors_[priority];
    lowest = std::max(lowest, floor);
    for (Entry& entry : entries) entry.key = std::max(entry.key, lowest);
    const Entry entry = {std::clamp(key, lowest, lowest + AgingCandidates::kKeys - 1), slot};
    const auto before = [](const Entry& a, const Entry& b) { return a.key < b.key; };
    entries.insert(front ? std::lower_bound(entries.begin(), entries.end(), entry, before)
                         : std::upper_bound(entries.begin(), entries.end(), entry, before),
                   entry);
  }
  void Remove(SlotIndex slot) {
    for (auto& [priority, entries] : entries_) {
      std::erase_if(entries, [slot](const Entry& entry) { return entry.slot == slot; });
    }
  }
  SlotIndex First() const {
    for (const auto& [priority, entries] : entries_) {
      if (!entries.empty()) return entries.front().slot;
    }
    return kNoSlot;
  }

 private:
  struct Entry {
    uint64_t key;
    SlotIndex slot;
  };
  std::map<Priority, std::vector<Entry>> entries_;
  std::map<Priority, uint64_t> floors_;
};

// One or several objects in an arena, each with its own floor.
TEST(AgingCandidatesTest, EqualsASortedListOnRandomOperations) {
  constexpr uint32_t kSlots = 60;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    std::mt19937_64 random(seed);
    const auto num_tenants = static_cast<uint32_t>(seed % 4 + 1);
    CandidateArena arena(kSlots, num_tenants * AgingCandidates::kNumLists);
    std::deque<AgingCandidates> candidates;
    for (uint32_t i = 0; i < num_tenants; ++i) candidates.emplace_back(&arena);
    std::vector<NaiveCandidates> naive(num_tenants);
    std::vector<uint64_t> floors(num_tenants, 0);
    std::vector<std::optional<size_t>> listed(kSlots);  // The object that lists the slot.
    for (int step = 0; step < 3'000; ++step) {
      size_t tenant = random() % num_tenants;
      uint64_t& floor = floors[tenant];
      if (random() % 20 == 0) floor += random() % (random() % 8 == 0 ? 100 : 5);
      const SlotIndex slot{static_cast<uint32_t>(random() % kSlots)};
      std::optional<size_t>& owner = listed[slot.value()];
      if (owner.has_value()) {
        tenant = *owner;
        candidates[tenant].Remove(slot);
        naive[tenant].Remove(slot);
        owner.reset();
      } else {
        const Priority priority{static_cast<uint8_t>(random() % 3 * 50)};
        const uint64_t key = floor + random() % 50 - std::min<uint64_t>(floor, 8);
        const bool front = random() % 2 == 0;
        if (front) {
          candidates[tenant].PushFront(slot, priority, key, floor);
        } else {
          candidates[tenant].PushBack(slot, priority, key, floor);
        }
        naive[tenant].Push(slot, priority, key, floor, front);
        owner = tenant;
      }
      for (uint32_t i = 0; i < num_tenants; ++i) {
        ASSERT_EQ(candidates[i].First(), naive[i].First()) << "seed " << seed << " step " << step;
      }
    }
  }
}

TEST(AgingCandidatesTest, WhoeverTakesTheLastSlotOutOfAnothersListIsStopped) {
  CandidateArena arena(10, 2 * AgingCandidates::kNumLists);
  AgingCandidates one(&arena), other(&arena);
  one.PushBack(SlotIndex{1}, kLow, 0, 0);
  EXPECT_DEATH(other.Remove(SlotIndex{1}), "removed from the lists that hold it");
}

TEST(CandidateArenaTest, ItHoldsAsManyListsAsItWasMadeFor) {
  CandidateArena arena(10, AgingCandidates::kNumLists);
  const AgingCandidates candidates(&arena);
  EXPECT_DEATH(AgingCandidates{&arena}, "space for all its lists");
}

}  // namespace
}  // namespace pagoda
