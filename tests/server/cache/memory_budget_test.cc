#include "server/cache/memory_budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "server/config/tenant_options.h"

namespace pagoda::server {
namespace {

using ::testing::HasSubstr;

MemoryBytes Bytes(uint64_t host, uint64_t disk = 0) {
  MemoryBytes bytes;
  bytes[Medium::kHost] = host;
  bytes[Medium::kDisk] = disk;
  return bytes;
}

class MemoryBudgetTest : public ::testing::Test {
 protected:
  static Config TestConfig() {
    Config config;
    config.memory.host = 100;
    config.memory.disk = {.size = 1000, .path = "/nowhere"};
    config.tenants.resize(2);
    config.tenants[0].name = "limited";
    config.tenants[0].cache_memory.host = 30;
    config.tenants[1].name = "free";
    return config;
  }

  const Config config_ = TestConfig();
  const TenantTable tenants_ = *TenantTable::Create(TenantsOf(config_), 1);
  const TenantId limited_ = *tenants_.Find("limited");
  const TenantId free_ = *tenants_.Find("free");
  MemoryBudget budget_{config_, tenants_};
};

TEST_F(MemoryBudgetTest, WhatIsTakenIsNotFreeUntilItComesBack) {
  ASSERT_TRUE(budget_.Take(free_, Bytes(60, 400)).ok());
  EXPECT_EQ(budget_.free(Medium::kHost), 40u);
  EXPECT_EQ(budget_.free(Medium::kDisk), 600u);
  budget_.GiveBack(free_, Bytes(20, 400));
  EXPECT_EQ(budget_.free(Medium::kHost), 60u);
  EXPECT_EQ(budget_.free(Medium::kDisk), 1000u);
}

TEST_F(MemoryBudgetTest, AllOrNothing) {
  const absl::Status refused = budget_.Take(free_, Bytes(10, 1001));
  EXPECT_EQ(ReasonOf(refused), Reason::kOutOfMemory);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("disk"));
  EXPECT_EQ(budget_.free(Medium::kHost), 100u);
}

TEST_F(MemoryBudgetTest, AMediumWithoutABudgetIsNamed) {
  MemoryBytes gpu;
  gpu[Medium::kGpu] = 1;
  const absl::Status refused = budget_.Take(kDefaultTenant, gpu);
  EXPECT_EQ(ReasonOf(refused), Reason::kOutOfMemory);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("memory.gpu"));
}

TEST_F(MemoryBudgetTest, ATenantHasALimitOfItsOwn) {
  EXPECT_EQ(budget_.FreeFor(limited_, Medium::kHost), 30u);
  EXPECT_EQ(budget_.FreeFor(limited_, Medium::kDisk), 1000u) << "no limit";
  EXPECT_EQ(budget_.FreeFor(kDefaultTenant, Medium::kHost), 100u);
  ASSERT_TRUE(budget_.Take(limited_, Bytes(25)).ok());
  const absl::Status refused = budget_.Take(limited_, Bytes(6));
  EXPECT_EQ(ReasonOf(refused), Reason::kOutOfMemory);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("limit"));
  ASSERT_TRUE(budget_.Take(free_, Bytes(73)).ok());
  EXPECT_EQ(budget_.FreeFor(limited_, Medium::kHost), 2u) << "others have the rest";
  budget_.GiveBack(limited_, Bytes(25));
  EXPECT_EQ(budget_.FreeFor(limited_, Medium::kHost), 27u);
}

}  // namespace
}  // namespace pagoda::server
