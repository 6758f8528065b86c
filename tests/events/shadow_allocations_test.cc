#include "tests/events/shadow_allocations.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace pagoda {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr WindowSize kSliding{4};
constexpr BlockId kA{3}, kB{5};

class ShadowAllocationsTest : public ::testing::Test {
 protected:
  template <class T>
  absl::Status Apply(T what, WindowSize window = kFullAttention) {
    return allocations_.Apply({.window = window, .what = std::move(what)});
  }
  template <class T>
  std::string Refusal(T what) {
    return std::string(Apply(std::move(what)).message());
  }
  static StoredEvent Stored(BlockId id) {
    return {.blocks = {StoredBlock{.id = id, .hash = BlockHash{id.value()}}}};
  }
  static RemovedEvent Removed(RemovalReason reason, BlockId id) {
    RemovedEvent removed{.reason = reason, .blocks = {id}};
    if (reason != RemovalReason::kReleased) removed.hashes = {BlockHash{id.value()}};
    return removed;
  }

  ShadowAllocations allocations_;
};

TEST_F(ShadowAllocationsTest, ABlockIsTakenUntilItIsStoredOrReleased) {
  ASSERT_TRUE(Apply(CreatedEvent{.blocks_per_tier = {8}}).ok());
  ASSERT_TRUE(Apply(CreatedEvent{.blocks = {kB, kA}}).ok());
  EXPECT_THAT(allocations_.Dump(kFullAttention), ElementsAre(kA, kB));
  EXPECT_THAT(allocations_.Dump(kSliding), IsEmpty()) << "block ids are a window's own";
  ASSERT_TRUE(Apply(Stored(kA)).ok());
  EXPECT_THAT(allocations_.Dump(kFullAttention), ElementsAre(kB));
  ASSERT_TRUE(Apply(Removed(RemovalReason::kReleased, kB)).ok());
  EXPECT_THAT(allocations_.Dump(kFullAttention), IsEmpty());
}

TEST_F(ShadowAllocationsTest, ABlockThatLeavesTheTreeIsTakenWhereItIsCreatedAgain) {
  ASSERT_TRUE(Apply(Stored(kA)).ok()) << "of an earlier run, it was never taken";
  ASSERT_TRUE(Apply(Stored(kB)).ok());
  ASSERT_TRUE(Apply(Removed(RemovalReason::kEvicted, kA)).ok());
  ASSERT_TRUE(Apply(Removed(RemovalReason::kTruncated, kB)).ok());
  EXPECT_THAT(allocations_.Dump(kFullAttention), IsEmpty());
  ASSERT_TRUE(Apply(CreatedEvent{.blocks = {kB}}).ok());
  EXPECT_THAT(allocations_.Dump(kFullAttention), ElementsAre(kB));
}

TEST_F(ShadowAllocationsTest, AResetLeavesWhatIsTakenAndThePoolsTakeIt) {
  ASSERT_TRUE(Apply(CreatedEvent{.blocks = {kA}}).ok());
  ASSERT_TRUE(Apply(Stored(kB)).ok());
  ASSERT_TRUE(
      Apply(RemovedEvent{.reason = RemovalReason::kCleared, .scope = RemovedEvent::Scope::kWindow})
          .ok());
  EXPECT_THAT(allocations_.Dump(kFullAttention), ElementsAre(kA));
  ASSERT_TRUE(Apply(CreatedEvent{.blocks = {kB}}).ok()) << "it is not cached any more";
  ASSERT_TRUE(
      Apply(RemovedEvent{.reason = RemovalReason::kReleased, .scope = RemovedEvent::Scope::kPools})
          .ok());
  EXPECT_THAT(allocations_.Dump(kFullAttention), IsEmpty());
}

TEST_F(ShadowAllocationsTest, WhatDoesNotFitIsRefused) {
  ASSERT_TRUE(Apply(CreatedEvent{.blocks = {kA}}).ok());
  ASSERT_TRUE(Apply(Stored(kB)).ok());
  EXPECT_THAT(Refusal(CreatedEvent{.blocks = {kA}}), HasSubstr("taken twice: block 3"));
  EXPECT_THAT(Refusal(CreatedEvent{.blocks = {kB}}), HasSubstr("taken while it is cached"));
  EXPECT_THAT(Refusal(Stored(kB)), HasSubstr("stored twice"));
  EXPECT_THAT(Refusal(Removed(RemovalReason::kReleased, kB)), HasSubstr("not taken"));
  EXPECT_THAT(Refusal(Removed(RemovalReason::kLost, kA)), HasSubstr("not cached"));
}

TEST_F(ShadowAllocationsTest, ASnapshotBeginsWithNothing) {
  ASSERT_TRUE(Apply(CreatedEvent{.blocks = {kA}}).ok());
  allocations_.BeginSnapshot();
  ASSERT_TRUE(Apply(CreatedEvent{.blocks = {kA}}).ok());
  EXPECT_THAT(allocations_.Dump(kFullAttention), ElementsAre(kA));
}

}  // namespace
}  // namespace pagoda
