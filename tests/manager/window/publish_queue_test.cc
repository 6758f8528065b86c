// Which prefixes the core lists as worth publishing to a store.
#include "manager/window/publish_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "base/error.h"
#include "events/event_log.h"
#include "manager/block_manager.h"
#include "manager/cache_lists.h"
#include "manager/sequences/cached_prefixes.h"
#include "manager/sequences/running_sequences.h"
#include "manager/shared_manager.h"
#include "tests/manager/fixtures/host_tiers.h"
#include "tests/manager/fixtures/prompt_of.h"
#include "tests/manager/fixtures/testing.h"

namespace pagoda {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

using Tokens = std::vector<TokenId>;

constexpr uint32_t kBlockTokens = 4;
constexpr uint32_t kAll = 1 << 20;

// `count` tokens from `first` on.
Tokens Count(TokenId first, uint32_t count) {
  Tokens tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

Tokens operator+(Tokens a, const Tokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// --- The queue ---

TEST(PublishQueueTest, TheNewestComesFirst) {
  PublishQueue queue(1, 8);
  for (const uint32_t id : {3, 1, 5}) queue.Push(BlockId{id});
  queue.Push(BlockId{3});
  EXPECT_EQ(queue.size(), 3u) << "an id is there once";
  queue.Remove(BlockId{5});
  queue.Remove(BlockId{7});
  EXPECT_EQ(queue.PopNewest(), BlockId{3});
  EXPECT_EQ(queue.PopNewest(), BlockId{1});
  EXPECT_EQ(queue.size(), 0u);
  EXPECT_EQ(queue.forgotten(), 0u);
}

TEST(PublishQueueTest, AFullQueueForgetsTheOldest) {
  PublishQueue queue(0, PublishQueue::kMaxBlocks + 3);
  for (uint32_t id = 0; id < PublishQueue::kMaxBlocks; ++id) queue.Push(BlockId{id});
  queue.Push(BlockId{0});
  EXPECT_EQ(queue.forgotten(), 0u) << "it was there already";
  for (uint32_t i = 0; i < 3; ++i) queue.Push(BlockId{PublishQueue::kMaxBlocks + i});
  EXPECT_EQ(queue.forgotten(), 3u);
  EXPECT_EQ(queue.size(), PublishQueue::kMaxBlocks);
  BlockId last;
  bool any_forgotten = false;
  while (queue.size() > 0) {
    last = queue.PopNewest();
    any_forgotten = any_forgotten || (last.value() >= 1 && last.value() <= 3);
  }
  EXPECT_FALSE(any_forgotten);
  EXPECT_EQ(last, BlockId{4});
}

// --- The core ---

class PublishableTest : public testing::Test {
 protected:
  void Make(std::optional<uint8_t> min_uses, uint32_t blocks = 32,
            std::vector<TenantOptions> tenants = {}, std::vector<TierSpec> below = {}) {
    std::vector<TierSpec> tiers = HostTiers({blocks});
    tiers.insert(tiers.end(), below.begin(), below.end());
    core_ = *BlockManager::Create({.layout = TinyLayout(kBlockTokens),
                                   .tiers = tiers,
                                   .epoch = Epoch{1},
                                   .tenants = std::move(tenants),
                                   .publish_min_uses = min_uses});
    session_ = core_->OpenSession("test", absl::InfiniteDuration(), now_)->ref.id;
  }
  void EndCopies() {
    for (const Order& copy : core_->TakeOrders()) {
      core_->Complete(copy.lane, copy.ticket, absl::OkStatus(), now_);
    }
  }
  // Begins a sequence and computes all of it.
  SequenceId Begin(AddSequence prompt) {
    prompt.sequence = SequenceId{++last_sequence_};
    const uint32_t size = static_cast<uint32_t>(
        prompt.keys.empty() ? prompt.tokens.size() : prompt.keys.size() * kBlockTokens);
    const auto added = core_->Execute(session_, prompt, now_);
    EXPECT_TRUE(added.ok()) << added.status();
    EndCopies();
    EXPECT_TRUE(core_->sequences().CommitTokens(session_, prompt.sequence, {}, size, now_).ok());
    return prompt.sequence;
  }
  SequenceId Begin(const Tokens& tokens, NamespaceKey name_space = {}) {
    return Begin(AddSequence{.name_space = std::move(name_space), .tokens = tokens});
  }
  void End(SequenceId sequence) {
    ASSERT_TRUE(core_->sequences().FreeSequence(session_, sequence, now_).ok());
    core_->CheckInvariants();
  }
  void Compute(const Tokens& tokens, NamespaceKey name_space = {}) {
    End(Begin(tokens, std::move(name_space)));
  }
  std::vector<PublishablePrefix> Take(uint32_t max_prefixes = kAll, uint32_t max_blocks = kAll) {
    std::vector<PublishablePrefix> prefixes;
    core_->lists().TakePublishable(max_prefixes, max_blocks, &prefixes);
    return prefixes;
  }
  std::vector<Tokens> TakeTokens(uint32_t max_prefixes = kAll, uint32_t max_blocks = kAll) {
    std::vector<Tokens> all;
    for (PublishablePrefix& prefix : Take(max_prefixes, max_blocks)) {
      all.push_back(std::move(prefix.tokens));
    }
    return all;
  }

  const absl::Time now_ = absl::UnixEpoch();
  uint64_t last_sequence_ = 0;
  std::unique_ptr<BlockManager> core_;
  SessionId session_;
};

TEST_F(PublishableTest, WithoutTheOptionNothingIsListed) {
  Make(std::nullopt);
  for (int i = 0; i < 5; ++i) Compute(Count(1, 9));
  EXPECT_THAT(Take(), IsEmpty());
  EXPECT_EQ(core_->lists().publishable().queued, 0u);
}

// For example the sequence with which a request goes on after a preemption.
TEST_F(PublishableTest, AMatchThatDoesNotCountIsNoUse) {
  Make(1);
  Compute(Count(1, 9));
  End(Begin(AddSequence{.tokens = Count(1, 9), .uncounted = true}));
  EXPECT_THAT(Take(), IsEmpty());
  Compute(Count(1, 9));
  EXPECT_THAT(TakeTokens(), ElementsAre(Count(1, 8)));
}

TEST_F(PublishableTest, AThresholdAboveTheCountersIsRefused) {
  const auto core = BlockManager::Create({.layout = TinyLayout(kBlockTokens),
                                          .tiers = HostTiers({4}),
                                          .publish_min_uses = BlockFacts::kMaxUses + 1});
  EXPECT_EQ(ReasonOf(core.status()), Reason::kInvalidArgument);
  EXPECT_THAT(core.status().message(), testing::HasSubstr("publish_min_uses is 4"));
}

TEST_F(PublishableTest, APathIsListedOnceAtItsThreshold) {
  for (uint8_t min_uses = 0; min_uses <= BlockFacts::kMaxUses; ++min_uses) {
    SCOPED_TRACE(static_cast<int>(min_uses));
    Make(min_uses);
    for (int uses = 0; uses < 6; ++uses) {
      Compute(Count(1, 13));
      if (uses == min_uses) {
        EXPECT_EQ(core_->lists().publishable().queued, 3u);
        EXPECT_THAT(TakeTokens(), ElementsAre(Count(1, 12))) << "the tail is left out";
      }
      EXPECT_THAT(TakeTokens(), IsEmpty()) << uses;
    }
  }
}

TEST_F(PublishableTest, ATailIsListedOnceItIsWhole) {
  Make(0);
  Compute(Count(1, 6));
  EXPECT_THAT(TakeTokens(), ElementsAre(Count(1, 4)));
  Compute(Count(1, 8));
  EXPECT_THAT(TakeTokens(), ElementsAre(Count(1, 8)));
}

TEST_F(PublishableTest, ForksShareTheirBeginning) {
  Make(0);
  const Tokens shared = Count(1, 8);
  const Tokens left = shared + Count(100, 4), right = shared + Count(200, 8);
  Compute(left);
  Compute(right);
  EXPECT_EQ(core_->lists().publishable().queued, 5u);
  EXPECT_THAT(TakeTokens(), ElementsAre(right, left));
}

TEST_F(PublishableTest, OnlyTheUsedPartIsListed) {
  Make(1);
  Compute(Count(1, 17));
  Compute(Count(1, 8) + Count(100, 5));
  EXPECT_THAT(TakeTokens(), ElementsAre(Count(1, 8)));
  // Three tokens of the third block are copied: that uses it too.
  Compute(Count(1, 11) + Count(300, 2));
  EXPECT_THAT(TakeTokens(), ElementsAre(Count(1, 12)));
}

TEST_F(PublishableTest, AGrowingPromptIsJoined) {
  Make(0);
  const SequenceId sequence = Begin(Count(1, 5));
  for (TokenId token = 6; token <= 21; ++token) {
    ASSERT_TRUE(core_->sequences()
                    .AppendTokens(session_, sequence, std::vector<TokenId>{token}, token, now_)
                    .ok());
  }
  EXPECT_THAT(TakeTokens(), ElementsAre(Count(1, 20)));
  End(sequence);
  EXPECT_THAT(TakeTokens(), IsEmpty());
}

TEST_F(PublishableTest, APrefixIsTakenWholeWithinItsLimits) {
  Make(0);
  for (TokenId first = 0; first < 4; ++first) Compute(Count(1000 * first, 16));
  EXPECT_THAT(TakeTokens(2), ElementsAre(Count(3000, 16), Count(2000, 16)));
  EXPECT_EQ(core_->lists().publishable().queued, 8u);
  EXPECT_THAT(TakeTokens(kAll, 1), ElementsAre(Count(1000, 16)));
  EXPECT_THAT(TakeTokens(0), IsEmpty());
  EXPECT_THAT(TakeTokens(kAll, 0), IsEmpty());
  EXPECT_THAT(TakeTokens(), ElementsAre(Count(0, 16)));
}

TEST_F(PublishableTest, WhatHasLeftIsSkipped) {
  Make(0, 8);
  Compute(Count(1, 16));
  Compute(Count(100, 16));
  Compute(Count(200, 12));  // It evicts the last blocks of the first prompt.
  const std::vector<Tokens> taken = TakeTokens();
  EXPECT_THAT(taken, ElementsAre(Count(200, 12), Count(100, 16), Count(1, 4)));
  EXPECT_EQ(core_->lists().publishable().queued, 0u);
}

TEST_F(PublishableTest, AResetEmptiesTheList) {
  Make(0);
  Compute(Count(1, 16));
  core_->ResetPrefixCache(now_);
  EXPECT_THAT(TakeTokens(), IsEmpty());
  Compute(Count(1, 16));
  EXPECT_THAT(TakeTokens(), ElementsAre(Count(1, 16))) << "its next life";
}

TEST_F(PublishableTest, WhatAResetHasCutOffIsNotListed) {
  Make(0);
  const SequenceId holder = Begin(Count(1, 16));
  while (!core_->StepReset(1, now_).done && !core_->resetting()) continue;
  ASSERT_TRUE(core_->resetting());
  EXPECT_THAT(TakeTokens(), IsEmpty());
  while (!core_->StepReset(1, now_).done) continue;
  End(holder);
}

TEST_F(PublishableTest, AnInvalidatedPrefixIsNotListed) {
  Make(0);
  Compute(Count(1, 16));
  Compute(Count(100, 8));
  ASSERT_TRUE(core_->prefixes().Invalidate(PromptOf({}, Count(1, 8)), now_).ok());
  EXPECT_THAT(TakeTokens(), ElementsAre(Count(100, 8), Count(1, 4)));
}

// Truncation can give a block a second life under the same id and generation.
TEST_F(PublishableTest, ATruncatedBlockStartsAgain) {
  Make(1);
  const SequenceId sequence = Begin(Count(1, 12));
  Compute(Count(1, 12));  // It uses three tokens of the last block.
  EXPECT_EQ(core_->lists().publishable().queued, 3u);
  ASSERT_TRUE(core_->sequences().TruncateSequence(session_, sequence, 10, now_).ok());
  ASSERT_TRUE(core_->sequences().AppendTokens(session_, sequence, Count(500, 2), 12, now_).ok());
  EXPECT_THAT(TakeTokens(), ElementsAre(Count(1, 8)));
  Compute(Count(1, 10) + Count(500, 3));
  EXPECT_THAT(TakeTokens(), ElementsAre(Count(1, 10) + Count(500, 2)));
}

TEST_F(PublishableTest, ExtrasAndItemsAreRebuilt) {
  Make(0);
  AddSequence prompt{.tokens = Count(1, 24)};
  prompt.extra_token_ids.assign(24, 0);
  prompt.extra_token_ids[6] = 77;
  prompt.multimodal_items = {
      {.digest = {1, 2, 3, 4}, .token_start = 9, .token_count = 9, .item_offset = 3},
      {.digest = {5}, .token_start = 18, .token_count = 2}};
  End(Begin(prompt));
  const std::vector<PublishablePrefix> taken = Take();
  ASSERT_THAT(taken, SizeIs(1));
  EXPECT_EQ(taken[0].tokens, prompt.tokens);
  EXPECT_EQ(taken[0].extra_token_ids, prompt.extra_token_ids);
  EXPECT_EQ(taken[0].multimodal_items, prompt.multimodal_items) << "an item of three blocks is one";
  // It finds the same blocks.
  const SequencePrompt again{.name_space = taken[0].name_space,
                             .tokens = taken[0].tokens,
                             .extra_token_ids = taken[0].extra_token_ids,
                             .multimodal_items = taken[0].multimodal_items};
  EXPECT_EQ(core_->prefixes().Match(again, nullptr), 23u);
}

TEST_F(PublishableTest, KeyedPrefixesHaveKeys) {
  Make(1);
  AddSequence prompt{.name_space = {.cache_salt = "salt", .keyed = true}};
  for (const char* name : {"a", "b", "c"}) prompt.keys.push_back(*ClientKey::Make(name));
  End(Begin(prompt));
  EXPECT_THAT(Take(), IsEmpty());
  End(Begin(prompt));
  const std::vector<PublishablePrefix> taken = Take();
  ASSERT_THAT(taken, SizeIs(1));
  EXPECT_EQ(taken[0].keys, prompt.keys);
  EXPECT_EQ(taken[0].name_space, prompt.name_space);
  EXPECT_THAT(taken[0].tokens, IsEmpty());
}

TEST_F(PublishableTest, NamespacesAndOwners) {
  Make(0, 32, {{.name = "red"}, {.name = "open", .shares = true}});
  Compute(Count(1, 4));
  Compute(Count(1, 4), {.lora_id = 5, .cache_salt = "salt", .tenant = "red"});
  const std::vector<PublishablePrefix> taken = Take();
  ASSERT_THAT(taken, SizeIs(2));
  EXPECT_EQ(taken[0].owner, TenantId{1});
  EXPECT_EQ(taken[0].name_space,
            (NamespaceKey{.lora_id = 5, .cache_salt = "salt", .tenant = "red"}));
  EXPECT_EQ(taken[1].owner, kDefaultTenant);
  EXPECT_EQ(taken[1].name_space, NamespaceKey());
}

TEST_F(PublishableTest, LowerTiersInMemoryCount) {
  Make(0, 4, {}, {{.name = "second", .blocks = {8}}});
  Compute(Count(1, 16));
  Compute(Count(100, 16));
  EndCopies();
  EXPECT_THAT(TakeTokens(), ElementsAre(Count(100, 16), Count(1, 16)));
}

// Through the lock, while others use the cache.
TEST_F(PublishableTest, ASharedManagerTakesInChunks) {
  Make(0, 4096);
  for (TokenId first = 0; first < 30; ++first) Compute(Count(10'000 * first, 400));
  EventLog log(EventLog::Limits{});
  SharedManager manager(std::move(core_), &log);
  EXPECT_EQ(
      manager.Read([](const BlockManager& core) { return core.lists().publishable(); }).queued,
      3000u);
  EXPECT_THAT(manager.TakePublishable(4), SizeIs(4));
  EXPECT_EQ(
      manager.Read([](const BlockManager& core) { return core.lists().publishable(); }).queued,
      2600u);
  EXPECT_THAT(manager.TakePublishable(kAll), SizeIs(26));
  EXPECT_THAT(manager.TakePublishable(kAll), IsEmpty());
}

// Dead entries do not keep it from what is behind them.
TEST_F(PublishableTest, ASharedManagerPassesWhatHasLeft) {
  Make(0, 8192);
  Compute(Count(1, 16));
  for (TokenId first = 1; first < 70; ++first) Compute(Count(10'000 * first, 400));
  for (TokenId first = 1; first < 70; ++first) {
    ASSERT_TRUE(core_->prefixes().Invalidate(PromptOf({}, Count(10'000 * first, 1)), now_).ok());
  }
  EventLog log(EventLog::Limits{});
  SharedManager manager(std::move(core_), &log);
  EXPECT_GT(
      manager.Read([](const BlockManager& core) { return core.lists().publishable(); }).queued,
      6 * SharedManager::kPublishPiece);
  EXPECT_THAT(manager.TakePublishable(1), SizeIs(1));
}

}  // namespace
}  // namespace pagoda
