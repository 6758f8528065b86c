#include "server/callers/stream_slots.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

namespace pagoda::server {
namespace {

TEST(StreamSlotsTest, ATenantThatTakesAllLeavesTheOthersTheirPart) {
  StreamSlots slots(/*most=*/20, /*num_tenants=*/2);
  std::vector<StreamSlots::Slot> greedy;
  absl::Status refusal;
  while (refusal.ok()) {
    absl::StatusOr<StreamSlots::Slot> slot = slots.Take(TenantId{1});
    refusal = slot.status();
    if (slot.ok()) greedy.push_back(*std::move(slot));
  }
  EXPECT_EQ(greedy.size(), 15u);
  EXPECT_EQ(ReasonOf(refusal), Reason::kTooManyCalls);
  EXPECT_TRUE(slots.Take(kDefaultTenant).ok());
}

TEST(StreamSlotsTest, ASlotComesBackOnceWithItsStream) {
  StreamSlots slots(/*most=*/1, /*num_tenants=*/1);
  {
    absl::StatusOr<StreamSlots::Slot> slot = slots.Take(kDefaultTenant);
    ASSERT_TRUE(slot.ok());
    const std::optional<StreamSlots::Slot> moved(*std::move(slot));
    EXPECT_FALSE(slots.Take(kDefaultTenant).ok());
  }
  EXPECT_TRUE(slots.Take(kDefaultTenant).ok());
}

}  // namespace
}  // namespace pagoda::server
