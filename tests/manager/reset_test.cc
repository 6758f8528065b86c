// A reset goes on in steps, with other calls between them. From the beginning its blocks are not
// found, and they are released block by block.
#include <gtest/gtest.h>

#include <algorithm>
#include <variant>
#include <vector>

#include "base/error.h"
#include "manager/block_manager.h"
#include "manager/sequences/cached_prefixes.h"
#include "manager/sequences/raw_blocks.h"
#include "manager/sequences/running_sequences.h"
#include "tests/events/shadow_tree.h"
#include "tests/manager/fixtures/host_tiers.h"
#include "tests/manager/fixtures/prompt_of.h"
#include "tests/manager/fixtures/testing.h"

namespace pagoda {
namespace {

constexpr uint32_t kBlockTokens = 4;
constexpr NamespaceKey kBase{};

class ResetTest : public ::testing::Test {
 protected:
  void Make(uint32_t primary, uint32_t lower = 0) {
    core_ = *BlockManager::Create({.layout = TinyLayout(kBlockTokens),
                                   .tiers = HostTiers({primary}, {lower}),
                                   .pin_budget_permille = 1000,
                                   .epoch = Epoch{1},
                                   .journal_slots = true});
    session_ = core_->OpenSession("test", absl::InfiniteDuration(), now_)->ref.id;
    Settle();
  }
  // Checks after every call: the invariants, and the events' law.
  void Settle() {
    core_->CheckInvariants();
    for (const Event& event : core_->TakeEvents()) {
      if (const auto* removed = std::get_if<RemovedEvent>(&event.what)) {
        removed_events_ += removed->reason != RemovalReason::kReleased ? 1 : 0;
      }
      ASSERT_TRUE(shadow_.Apply(event).ok());
    }
    ASSERT_EQ(shadow_.Dump(kFullAttention), core_->DumpTree(kFullAttention));
    for (const Order& copy : core_->TakeOrders()) {
      ++copies_;
      core_->Complete(copy.lane, copy.ticket, absl::OkStatus(), now_);
    }
  }
  std::vector<TokenId> Prompt(TokenId first, uint32_t blocks) {
    std::vector<TokenId> tokens(blocks * kBlockTokens);
    for (uint32_t i = 0; i < tokens.size(); ++i) tokens[i] = first + i;
    return tokens;
  }
  // A sequence whose blocks are all published, and held.
  SequenceId Add(const std::vector<TokenId>& tokens) {
    const SequenceId id{++last_sequence_};
    EXPECT_TRUE(core_->sequences().AddSequence(session_, id, PromptOf(kBase, tokens), now_).ok());
    EXPECT_TRUE(core_->sequences()
                    .CommitTokens(session_, id, {}, static_cast<uint32_t>(tokens.size()), now_)
                    .ok());
    Settle();
    return id;
  }
  void Free(SequenceId id) {
    EXPECT_TRUE(core_->sequences().FreeSequence(session_, id, now_).ok());
    Settle();
  }
  void Cache(const std::vector<TokenId>& tokens) { Free(Add(tokens)); }
  uint32_t Matched(std::vector<TokenId> tokens) {
    tokens.push_back(0);
    return core_->prefixes().Match(PromptOf(kBase, tokens));
  }
  BlockManager::ResetStep Step(uint32_t max_blocks) {
    const BlockManager::ResetStep step = core_->StepReset(max_blocks, now_);
    Settle();
    return step;
  }
  void FinishReset() {
    while (core_->resetting()) Step(1);
  }
  TierOccupancy Of(Tier tier) const { return core_->Stats().windows[0].tiers[tier.value()]; }

  absl::Time now_ = absl::UnixEpoch();
  std::unique_ptr<BlockManager> core_;
  SessionId session_;
  ShadowTree shadow_;
  uint64_t last_sequence_ = 0;
  size_t removed_events_ = 0;
  size_t copies_ = 0;
};

TEST_F(ResetTest, NothingIsFoundFromTheFirstStepOn) {
  Make(16);
  Cache(Prompt(100, 5));
  const BlockManager::ResetStep first = Step(1);
  EXPECT_EQ(first.removed_blocks, 5u);
  EXPECT_FALSE(first.done);
  EXPECT_TRUE(core_->DumpTree(kFullAttention).empty());
  EXPECT_EQ(Matched(Prompt(100, 5)), 0u);
  EXPECT_EQ(removed_events_, 1u) << "one event for all";
  FinishReset();
  EXPECT_EQ(Of(kPrimaryTier).free, 16u);
  EXPECT_EQ(removed_events_, 1u) << "what is let go has left already";
}

TEST_F(ResetTest, AStepLooksAtAsManyBlocksAsItMay) {
  Make(64);
  Cache(Prompt(100, 40));
  for (uint32_t free = 64 - 40; core_->resetting() || free == 64 - 40;) {
    Step(8);
    const uint32_t now_free = Of(kPrimaryTier).free;
    EXPECT_LE(now_free, free + 8);
    EXPECT_EQ(now_free + Of(kPrimaryTier).cached, 64u);
    free = now_free;
  }
  EXPECT_EQ(Of(kPrimaryTier).free, 64u);
}

TEST_F(ResetTest, WhatIsPublishedMeanwhileStays) {
  Make(16);
  Cache(Prompt(100, 5));
  Step(2);
  Cache(Prompt(100, 3));  // The same content, as other blocks.
  EXPECT_EQ(Matched(Prompt(100, 5)), 3 * kBlockTokens);
  FinishReset();
  EXPECT_EQ(Matched(Prompt(100, 5)), 3 * kBlockTokens);
  EXPECT_EQ(Of(kPrimaryTier).cached, 3u);
  core_->ResetPrefixCache(now_);
  Settle();
  EXPECT_EQ(Of(kPrimaryTier).free, 16u);
}

TEST_F(ResetTest, AResetOfAllEndsTheOneThatWasBegunFirst) {
  Make(16);
  Cache(Prompt(100, 5));
  Step(1);
  Cache(Prompt(200, 2));
  EXPECT_EQ(core_->ResetPrefixCache(now_), 2u);
  EXPECT_FALSE(core_->resetting());
  Settle();
  EXPECT_EQ(Of(kPrimaryTier).free, 16u);
}

TEST_F(ResetTest, AnEmptyCacheHasNothingToReset) {
  Make(4);
  const SequenceId running{1};
  ASSERT_TRUE(
      core_->sequences().AddSequence(session_, running, PromptOf(kBase, Prompt(1, 2)), now_).ok());
  EXPECT_EQ(core_->ResetPrefixCache(now_), 0u);
  Settle();
  EXPECT_EQ(removed_events_, 0u);
  ASSERT_TRUE(core_->sequences().CommitTokens(session_, running, {}, 8, now_).ok());
  Settle();
  EXPECT_EQ(Matched(Prompt(1, 2)), 8u) << "what was published after it is cached";
}

TEST_F(ResetTest, ASequenceKeepsItsBlocksAndPublishesNothingAnyMore) {
  Make(16);
  const SequenceId running = Add(Prompt(100, 3));
  Step(1);
  ASSERT_TRUE(core_->sequences().AppendTokens(session_, running, Prompt(112, 2), 20, now_).ok());
  Settle();
  EXPECT_EQ(Matched(Prompt(100, 5)), 0u);
  FinishReset();
  EXPECT_EQ(Of(kPrimaryTier).active, 5u);
  Free(running);
  EXPECT_EQ(Of(kPrimaryTier).free, 16u);
}

TEST_F(ResetTest, ASequenceMayEndBeforeTheResetComesToItsBlocks) {
  Make(16);
  const SequenceId running = Add(Prompt(100, 3));
  const SequenceId fork{77};
  ASSERT_TRUE(core_->sequences().ForkSequence(session_, running, fork, now_).ok());
  Step(1);
  Free(running);
  ASSERT_TRUE(core_->sequences().TruncateSequence(session_, fork, 6, now_).ok());
  Settle();
  Free(fork);
  EXPECT_EQ(Of(kPrimaryTier).free + Of(kPrimaryTier).cached, 16u);
  FinishReset();
  EXPECT_EQ(Of(kPrimaryTier).free, 16u);
}

TEST_F(ResetTest, SlotsOfLeavingBlocksAreTakenWithoutACopyOrAnEvent) {
  Make(6, 4);
  Cache(Prompt(100, 6));
  ASSERT_TRUE(core_->prefixes().Offload(PromptOf(kBase, Prompt(100, 6)), now_).ok());
  Settle();
  ASSERT_TRUE(core_->prefixes().Prefetch(PromptOf(kBase, Prompt(100, 2)), now_).ok());
  Settle();
  Cache(Prompt(200, 4));
  ASSERT_EQ(Of(kPrimaryTier).free, 0u);
  ASSERT_EQ(Of(Tier(1)).cached - Of(Tier(1)).duplicates, 2u);
  const size_t copies = copies_, events = removed_events_;
  Step(1);
  // Fills the primary tier at once: two blocks of the first path lie in it, with two below.
  std::vector<BlockHandle> blocks(6);
  ASSERT_TRUE(core_->raw_blocks()
                  .AllocateBlocks(session_, kFullAttention, absl::MakeSpan(blocks), now_)
                  .ok());
  Settle();
  EXPECT_EQ(copies_, copies) << "nobody reads these bytes again";
  EXPECT_EQ(removed_events_, events + 1) << "the reset's own";
  FinishReset();
  EXPECT_EQ(Of(kPrimaryTier).active, 6u);
  EXPECT_EQ(Of(Tier(1)).free, 4u);
}

TEST_F(ResetTest, MaintenanceMovesNothingThatLeaves) {
  Make(8, 8);
  std::vector<TierSpec> tiers = HostTiers({8}, {8});
  tiers.front().watermark_permille = 500;
  core_ = *BlockManager::Create(
      {.layout = TinyLayout(kBlockTokens), .tiers = std::move(tiers), .epoch = Epoch{1}});
  shadow_ = {};
  session_ = core_->OpenSession("test", absl::InfiniteDuration(), now_)->ref.id;
  Cache(Prompt(100, 8));
  Step(1);
  EXPECT_EQ(core_->Maintain(now_, 8), 0u);
  Settle();
  FinishReset();
}

TEST_F(ResetTest, PinsEndFirstAndInSteps) {
  Make(16);
  Cache(Prompt(100, 2));
  Cache(Prompt(200, 2));
  const auto pin = [&](TokenId first) {
    return core_->prefixes()
        .Pin(session_, PromptOf(kBase, Prompt(first, 2)), absl::InfiniteDuration(), now_)
        ->pin;
  };
  const PinId one = pin(100), two = pin(200);
  Settle();
  EXPECT_EQ(Step(2).removed_blocks, 0u) << "it has not taken effect";
  EXPECT_EQ(core_->prefixes().ListPins().pins.size(), 1u);
  EXPECT_EQ(Matched(Prompt(100, 2)), 8u);
  EXPECT_EQ(ReasonOf(core_->prefixes().Unpin(one, now_)), Reason::kUnknownPin);
  pin(100);  // Ends with the cut.
  Settle();
  EXPECT_EQ(Step(3).removed_blocks, 4u);
  EXPECT_TRUE(core_->prefixes().ListPins().pins.empty());
  EXPECT_EQ(ReasonOf(core_->prefixes().Unpin(two, now_)), Reason::kUnknownPin);
  FinishReset();
  EXPECT_EQ(Of(kPrimaryTier).free, 16u);
}

TEST_F(ResetTest, APriorityThatEndsMeanwhileIsNoEvent) {
  Make(8);
  Cache(Prompt(100, 3));
  const SequenceRetention retention{
      .ranges = {{.token_start = 0,
                  .token_end = 12,
                  .retention = {.priority = Priority{90}, .duration = absl::Seconds(1)}}}};
  ASSERT_TRUE(
      core_->prefixes().SetRetention(PromptOf(kBase, Prompt(100, 3)), retention, now_).ok());
  Settle();
  Step(1);
  now_ += absl::Seconds(2);
  core_->Maintain(now_, 0);
  Settle();  // An event about a block that has left would break the law.
  FinishReset();
  EXPECT_EQ(Of(kPrimaryTier).free, 8u);
}

// A long path is not walked again and again, even if other operations evict its end meanwhile.
TEST_F(ResetTest, EvictionsDoNotHoldTheResetUp) {
  constexpr uint32_t kBlocks = 512;
  Make(kBlocks);
  Cache(Prompt(1000, kBlocks));
  uint32_t steps = 0;
  for (Step(16); core_->resetting(); Step(16)) {
    ++steps;
    BlockHandle block;
    ASSERT_TRUE(
        core_->raw_blocks().AllocateBlocks(session_, kFullAttention, {&block, 1}, now_).ok());
  }
  // Down the path, up again, and over all ids.
  EXPECT_LE(steps, 3 * kBlocks / 16 + 1);
}

}  // namespace
}  // namespace pagoda
