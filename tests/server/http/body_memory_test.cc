#include "server/http/body_memory.h"

#include <gtest/gtest.h>

#include <optional>

#include "base/error.h"

namespace pagoda::server {
namespace {

TEST(BodyMemoryTest, ARequestHasALimitAndATenantItsShare) {
  BodyMemory memory(/*most=*/1000, /*most_of_one=*/600, /*num_tenants=*/2);
  std::optional<BodyMemory::Share> a(std::in_place, &memory, TenantId(0));
  EXPECT_TRUE(a->Add(600).ok());
  EXPECT_EQ(ReasonOf(a->Add(1)), Reason::kMessageTooLarge);
  BodyMemory::Share more_of_a(&memory, TenantId(0));
  EXPECT_TRUE(more_of_a.Add(150).ok());
  EXPECT_EQ(ReasonOf(more_of_a.Add(1)), Reason::kTooManyCalls) << "a quarter is reserved for b";
  BodyMemory::Share b(&memory, TenantId(1));
  EXPECT_TRUE(b.Add(250).ok());
  EXPECT_EQ(ReasonOf(b.Add(1)), Reason::kTooManyCalls);
  a.reset();
  EXPECT_TRUE(b.Add(350).ok());
}

TEST(BodyMemoryTest, MemoryGoesBackOnceInASecondAtMost) {
  constexpr size_t kLarge = 16 << 20;
  BodyMemory memory(/*most=*/64 << 20, /*most_of_one=*/32 << 20, /*num_tenants=*/1);
  const auto request = [&](size_t bytes) {
    BodyMemory::Share share(&memory, TenantId(0));
    EXPECT_TRUE(share.Add(bytes).ok());
  };
  absl::Time now = absl::UnixEpoch();
  request(1000);
  EXPECT_FALSE(memory.Trim(now)) << "small requests leave little";
  {
    BodyMemory::Share running(&memory, TenantId(0));
    ASSERT_TRUE(running.Add(kLarge).ok());
    request(kLarge);
    EXPECT_FALSE(memory.Trim(now)) << "a large request runs";
  }
  EXPECT_TRUE(memory.Trim(now));
  EXPECT_FALSE(memory.Trim(now + BodyMemory::kTrimInterval)) << "no request came";
  int trims = 0;
  for (int i = 0; i < 100; ++i) {
    request(kLarge);
    now += BodyMemory::kTrimInterval / 10;
    trims += memory.Trim(now) ? 1 : 0;
  }
  EXPECT_EQ(trims, 10);
}

}  // namespace
}  // namespace pagoda::server
