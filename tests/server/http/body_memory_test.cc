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

}  // namespace
}  // namespace pagoda::server
