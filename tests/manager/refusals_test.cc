// Each reason for which an operation fails. A failed operation leaves no trace.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "base/error.h"
#include "manager/block_manager.h"
#include "manager/policy/eviction_policy.h"
#include "manager/sequences/running_sequences.h"
#include "tests/manager/fixtures/host_tiers.h"
#include "tests/manager/fixtures/picture.h"
#include "tests/manager/fixtures/testing.h"

namespace pagoda {
namespace {

using Tokens = std::vector<TokenId>;

constexpr WindowSize kSliding{8};

Tokens Range(TokenId first, TokenId last) {
  Tokens tokens(last - first + 1);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

// A busy cache of two windows and two tiers, with 4 tokens in a block.
class RefusalTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto layout =
        CacheLayout::Create({.tokens_per_block = 4,
                             .layers = {{.window = kSliding, .num_kv_heads = 1, .head_dim = 1},
                                        {.num_kv_heads = 1, .head_dim = 1}}});
    core_ = *BlockManager::Create({.layout = *layout,
                                   .tiers = HostTiers({8, 12}, {4, 4}),
                                   .pin_budget_permille = 250,  // 3 and 4 blocks.
                                   .epoch = Epoch{1}});
    session_ = core_->OpenSession("test", absl::InfiniteDuration(), now_)->ref.id;
    Serve(8, Range(100, 107));
    Run(OffloadPrefix{.tokens = Range(100, 107)});
    Serve(9, Range(200, 203));
    // Sequence 1 runs. All of its ten tokens are computed.
    Run(AddSequence{.sequence = SequenceId{1}, .tokens = Range(0, 9)});
    Run(CommitTokens{.sequence = SequenceId{1}, .computed_tokens = 10});
    raw_ = std::get<AllocatedBlocks>(Run(AllocateBlocks{.window = kSliding, .count = 2})).blocks;
    core_->TakeEvents();
  }
  // Checks that the refused operations left nothing behind that would fail later.
  void TearDown() override {
    EndCopies();
    core_->CheckInvariants();
    if (core_->Stats().sequences != 0) Run(FreeSequence{.sequence = SequenceId{1}});
    core_->CheckInvariants();
  }

  OperationResult Run(const Operation& operation) {
    auto result = core_->Execute(session_, operation, now_);
    EXPECT_TRUE(result.ok()) << result.status();
    EndCopies();
    return *std::move(result);
  }
  void EndCopies() {
    for (const Order& order : core_->TakeOrders()) {
      core_->Complete(order.lane, order.ticket, absl::OkStatus(), now_);
    }
  }
  void Serve(uint64_t id, const Tokens& prompt) {
    Run(AddSequence{.sequence = SequenceId{id}, .tokens = prompt});
    Run(CommitTokens{.sequence = SequenceId{id},
                     .computed_tokens = static_cast<uint32_t>(prompt.size())});
    Run(FreeSequence{.sequence = SequenceId{id}});
  }
  TierOccupancy Primary(WindowSize window) const {
    for (const WindowStats& stats : core_->Stats().windows) {
      if (stats.window == window) return stats.tiers[0];
    }
    return {};
  }

  void Expect(Reason reason, const Operation& operation) { ExpectOf(session_, reason, operation); }
  void ExpectOf(SessionId session, Reason reason, const Operation& operation) {
    const std::string before = Picture();
    const auto result = core_->Execute(session, operation, now_);
    EXPECT_EQ(ReasonName(ReasonOf(result.status())), ReasonName(reason)) << result.status();
    EXPECT_EQ(Picture(), before);
    EXPECT_TRUE(core_->TakeEvents().empty());
    EXPECT_TRUE(core_->TakeOrders().empty());
    core_->CheckInvariants();
  }
  std::string Picture() {
    std::string text = PictureOf(*core_);
    const auto found = core_->Execute(session_, DescribeSequence{.sequence = SequenceId{1}}, now_);
    if (!found.ok()) return text;
    const auto& sequence = std::get<DescribedSequence>(*found);
    absl::StrAppend(&text, "sequence 1: ", sequence.token_count, " tokens, ",
                    sequence.computed_tokens, " computed, room for ", sequence.reserved_tokens,
                    "\n");
    for (const BlockTable& table : sequence.tables) {
      for (const BlockHandle& block : table.blocks) {
        absl::StrAppend(&text, "  ", block.id.value(), "/", block.generation.value(), " in ",
                        block.slot.value(), "\n");
      }
    }
    return text;
  }

  absl::Time now_ = absl::UnixEpoch();
  std::unique_ptr<BlockManager> core_;
  SessionId session_;
  std::vector<BlockHandle> raw_;  // Raw blocks of the sliding window.
};

TEST_F(RefusalTest, AllocateBlocksNamesItsReasons) {
  Expect(Reason::kUnknownWindow, AllocateBlocks{.window = WindowSize{7}, .count = 1});
  Expect(Reason::kInvalidCount, AllocateBlocks{.window = kSliding, .count = 0});
  Expect(Reason::kInvalidCount, AllocateBlocks{.window = kSliding, .count = 9});
  Expect(Reason::kInvalidCount, AllocateBlocks{.window = kSliding, .count = 4'294'967'295});
  Expect(Reason::kBlocksExhausted, AllocateBlocks{.window = kSliding, .count = 4});
  Run(AllocateBlocks{.window = kSliding, .count = 3});
}

TEST_F(RefusalTest, FreeBlocksNamesItsReasons) {
  const auto freed = [](std::vector<BlockRef> blocks) {
    return FreeBlocks{.window = kSliding, .blocks = std::move(blocks)};
  };
  const BlockRef first = raw_[0].ref(), second = raw_[1].ref();
  const auto described =
      std::get<DescribedSequence>(Run(DescribeSequence{.sequence = SequenceId{1}}));
  const std::vector<BlockHandle>& table = described.tables[0].blocks;
  Expect(Reason::kUnknownWindow, FreeBlocks{.window = WindowSize{7}, .blocks = {first}});
  Expect(Reason::kInvalidCount, freed({}));
  Expect(Reason::kUnknownBlock, freed({first, {BlockId{999}, Generation{1}}}));
  Expect(Reason::kUnknownBlock, freed({first, {kNoBlock, Generation{1}}}));
  Expect(Reason::kDoubleFree, freed({first, second, first}));
  Expect(Reason::kForeignBlock, freed({first, table[0].ref()}));  // It is the cache's.
  Expect(Reason::kForeignBlock, freed({first, table[2].ref()}));  // It is the sequence's.
  Expect(Reason::kStaleHandle,
         freed({first, {second.id, Generation{second.generation.value() + 1}}}));
  const SessionId other = core_->OpenSession("other", absl::InfiniteDuration(), now_)->ref.id;
  ExpectOf(other, Reason::kForeignBlock, freed({first}));
  Run(freed({second}));
  core_->TakeEvents();
  Expect(Reason::kDoubleFree, freed({first, second}));
  const auto again = std::get<AllocatedBlocks>(Run(AllocateBlocks{.window = kSliding, .count = 1}));
  ASSERT_EQ(again.blocks[0].id, second.id);
  core_->TakeEvents();
  Expect(Reason::kStaleHandle, freed({first, second}));
}

TEST_F(RefusalTest, AddSequenceNamesItsReasons) {
  const SequenceId id{2};
  const Tokens prompt = Range(0, 9);
  Expect(Reason::kSequenceExists, AddSequence{.sequence = SequenceId{1}, .tokens = prompt});
  Expect(Reason::kInvalidCount, AddSequence{.sequence = id});
  // The smaller window has 8 blocks, the larger one 12: first a prompt that fits in neither, then a
  // chunk of it that the smaller one cannot hold.
  Expect(Reason::kInvalidCount, AddSequence{.sequence = id, .tokens = Range(300, 348)});
  Expect(Reason::kInvalidCount, AddSequence{.sequence = id, .tokens = Range(300, 332)});
  Expect(Reason::kInvalidCount,
         AddSequence{.sequence = id, .tokens = prompt, .reserved_tokens = 4'294'967'295});
  // In the smaller window sequence 1 uses 3 blocks, and 2 are raw.
  Expect(Reason::kBlocksExhausted, AddSequence{.sequence = id, .tokens = Range(300, 312)});
  // Two of the four match below, but they need slots all the same.
  Expect(Reason::kBlocksExhausted, AddSequence{.sequence = id, .tokens = Range(100, 115)});
  Expect(Reason::kInvalidArgument,
         AddSequence{.sequence = id,
                     .name_space = {.cache_salt = std::string(kMaxCacheSaltBytes + 1, 's')},
                     .tokens = prompt});
  Expect(Reason::kInvalidArgument,
         AddSequence{.sequence = id,
                     .name_space = {.tenant = std::string(kMaxTenantBytes + 1, 't')},
                     .tokens = prompt});
  Expect(Reason::kInvalidArgument,
         AddSequence{.sequence = id, .tokens = prompt, .extra_token_ids = {1, 2, 3}});
  Expect(Reason::kInvalidArgument,
         AddSequence{.sequence = id,
                     .tokens = prompt,
                     .multimodal_items = {{.token_start = 8, .token_count = 3}}});
  Expect(Reason::kInvalidArgument,
         AddSequence{.sequence = id,
                     .tokens = prompt,
                     .retention = {.ranges = {{0, 8, {.priority = Priority{101}}}}}});
  SequenceRetention long_list;
  for (uint32_t i = 0; i < 65'536; ++i) long_list.ranges.push_back({i, i + 1, {}});
  Run(SetRetention{.tokens = prompt, .retention = long_list});
  long_list.ranges.push_back({65'536, 65'537, {}});
  Expect(Reason::kInvalidArgument,
         AddSequence{.sequence = id, .tokens = prompt, .retention = long_list});
}

TEST_F(RefusalTest, ReserveTokensNamesItsReasons) {
  Expect(Reason::kUnknownSequence, ReserveTokens{.sequence = SequenceId{2}, .count = 1});
  Expect(Reason::kInvalidCount, ReserveTokens{.sequence = SequenceId{1}, .count = 0});
  Expect(Reason::kInvalidCount, ReserveTokens{.sequence = SequenceId{1}, .count = 23});
  Expect(Reason::kInvalidCount, ReserveTokens{.sequence = SequenceId{1}, .count = 4'294'967'295});
  Expect(Reason::kBlocksExhausted, ReserveTokens{.sequence = SequenceId{1}, .count = 15});
  Run(ReserveTokens{.sequence = SequenceId{1}, .count = 14});
}

TEST_F(RefusalTest, CommitTokensNamesItsReasons) {
  Expect(Reason::kUnknownSequence, CommitTokens{.sequence = SequenceId{2}, .tokens = {1}});
  Expect(Reason::kReservationExceeded, CommitTokens{.sequence = SequenceId{1}, .tokens = {10}});
  Expect(Reason::kComputedBackwards, CommitTokens{.sequence = SequenceId{1}, .computed_tokens = 9});
  Expect(Reason::kComputedBeyondTokens,
         CommitTokens{.sequence = SequenceId{1}, .computed_tokens = 11});
}

TEST_F(RefusalTest, AppendTokensNamesItsReasons) {
  Expect(Reason::kUnknownSequence, AppendTokens{.sequence = SequenceId{2}, .tokens = {1}});
  Expect(Reason::kInvalidCount, AppendTokens{.sequence = SequenceId{1}, .tokens = Range(10, 32)});
  Expect(Reason::kBlocksExhausted,
         AppendTokens{.sequence = SequenceId{1}, .tokens = Range(10, 24), .computed_tokens = 10});
  Expect(Reason::kComputedBackwards,
         AppendTokens{.sequence = SequenceId{1}, .tokens = Range(10, 13), .computed_tokens = 9});
  Expect(Reason::kComputedBeyondTokens,
         AppendTokens{.sequence = SequenceId{1}, .tokens = Range(10, 13), .computed_tokens = 15});
}

TEST_F(RefusalTest, WhatLostItsKvIsNotCommitted) {
  Run(FreeSequence{.sequence = SequenceId{1}});
  ASSERT_TRUE(core_
                  ->Execute(session_,
                            AddSequence{.sequence = SequenceId{1}, .tokens = Range(100, 108)}, now_)
                  .ok());
  const std::vector<Order> copies = core_->TakeOrders();
  ASSERT_FALSE(copies.empty());
  for (const Order& copy : copies) {
    core_->Complete(copy.lane, copy.ticket, absl::DataLossError("planted"), now_);
  }
  core_->TakeEvents();
  Expect(Reason::kKvLost, CommitTokens{.sequence = SequenceId{1}, .computed_tokens = 9});
  Expect(Reason::kKvLost,
         AppendTokens{.sequence = SequenceId{1}, .tokens = {109}, .computed_tokens = 9});
  EXPECT_THAT(core_->sequences().Shortened(session_),
              ::testing::ElementsAre(ShortenedSequence{SequenceId{1}, 0, 1}));
  Expect(Reason::kInvalidArgument,
         CommitTokens{.sequence = SequenceId{1}, .computed_tokens = 9, .known_losses = 2});
  Run(CommitTokens{.sequence = SequenceId{1}, .computed_tokens = 9, .known_losses = 1});
}

TEST_F(RefusalTest, ForkSequenceNamesItsReasons) {
  Run(ForkSequence{.sequence = SequenceId{1}, .new_sequence = SequenceId{2}});
  Expect(Reason::kUnknownSequence,
         ForkSequence{.sequence = SequenceId{3}, .new_sequence = SequenceId{4}});
  Expect(Reason::kSequenceExists,
         ForkSequence{.sequence = SequenceId{1}, .new_sequence = SequenceId{2}});
  Expect(Reason::kSequenceExists,
         ForkSequence{.sequence = SequenceId{1}, .new_sequence = SequenceId{1}});
  Run(FreeSequence{.sequence = SequenceId{2}});
}

TEST_F(RefusalTest, TruncateSequenceNamesItsReasons) {
  Expect(Reason::kUnknownSequence, TruncateSequence{.sequence = SequenceId{2}, .token_count = 1});
  Expect(Reason::kInvalidCount, TruncateSequence{.sequence = SequenceId{1}, .token_count = 0});
  Expect(Reason::kInvalidCount, TruncateSequence{.sequence = SequenceId{1}, .token_count = 11});
  // A second user of the blocks: a cut needs a copy, and there is no space for one.
  Run(AddSequence{.sequence = SequenceId{2}, .tokens = Range(0, 8)});
  Run(AllocateBlocks{.window = kSliding, .count = 2});
  ASSERT_EQ(Primary(kSliding).free + Primary(kSliding).cached, 0u);
  core_->TakeEvents();
  Expect(Reason::kBlocksExhausted, TruncateSequence{.sequence = SequenceId{1}, .token_count = 6});
  Run(TruncateSequence{.sequence = SequenceId{1}, .token_count = 8});
  Run(FreeSequence{.sequence = SequenceId{2}});
}

TEST_F(RefusalTest, WhatTheWindowHasPassedIsNotCutInto) {
  Run(AppendTokens{.sequence = SequenceId{1}, .tokens = Range(10, 15)});
  Run(CommitTokens{.sequence = SequenceId{1}, .computed_tokens = 16});
  core_->TakeEvents();
  Expect(Reason::kWindowPassed, TruncateSequence{.sequence = SequenceId{1}, .token_count = 14});
  Run(TruncateSequence{.sequence = SequenceId{1}, .token_count = 15});
}

TEST_F(RefusalTest, FreeAndDescribeSequenceNamesItsReasons) {
  Expect(Reason::kUnknownSequence, FreeSequence{.sequence = SequenceId{2}});
  Expect(Reason::kUnknownSequence, DescribeSequence{.sequence = SequenceId{2}});
  const SessionId other = core_->OpenSession("other", absl::InfiniteDuration(), now_)->ref.id;
  ExpectOf(other, Reason::kUnknownSequence, FreeSequence{.sequence = SequenceId{1}});
  ExpectOf(other, Reason::kUnknownSequence, DescribeSequence{.sequence = SequenceId{1}});
}

TEST_F(RefusalTest, QueryCapacityNamesItsReasons) {
  Expect(Reason::kInvalidCount, QueryCapacity{.max_new_tokens = 5});
  Expect(Reason::kUnknownSequence, QueryCapacity{.sequence = SequenceId{2}});
}

TEST_F(RefusalTest, OffloadAndPrefetchPrefixNamesItsReasons) {
  Expect(Reason::kInvalidCount, OffloadPrefix{});
  Expect(Reason::kInvalidCount, PrefetchPrefix{});
}

TEST_F(RefusalTest, PromptsAndPrefixesAreCheckedWhereverTheyAreNamed) {
  const NamespaceKey bad = {.cache_salt = std::string(kMaxCacheSaltBytes + 1, 's')};
  const Tokens tokens = Range(0, 7);
  Expect(Reason::kInvalidArgument, MatchPrefix{.name_space = bad, .tokens = tokens});
  Expect(Reason::kInvalidArgument, MatchPrefix{.tokens = tokens, .extra_token_ids = {1}});
  Expect(Reason::kInvalidArgument, QueryCapacity{.name_space = bad, .tokens = tokens});
  Expect(Reason::kInvalidArgument, OffloadPrefix{.name_space = bad, .tokens = tokens});
  Expect(Reason::kInvalidArgument, PrefetchPrefix{.name_space = bad, .tokens = tokens});
  Expect(Reason::kInvalidArgument, PinPrefix{.name_space = bad, .tokens = tokens});
  Expect(Reason::kInvalidArgument, InvalidatePrefix{.name_space = bad, .tokens = tokens});
  Expect(Reason::kInvalidArgument, SetRetention{.name_space = bad, .tokens = tokens});
}

TEST_F(RefusalTest, PinAndUnpinPrefixNamesItsReasons) {
  Expect(Reason::kInvalidCount, PinPrefix{});
  Expect(Reason::kInvalidArgument, PinPrefix{.tokens = Range(0, 7), .lease = absl::ZeroDuration()});
  Expect(Reason::kInvalidArgument, PinPrefix{.tokens = Range(0, 7), .lease = -absl::Seconds(1)});
  Run(PinPrefix{.tokens = Range(0, 7)});
  Expect(Reason::kPinBudgetExceeded, PinPrefix{.tokens = Range(100, 107)});
  const auto pin = std::get<PinnedPrefix>(Run(PinPrefix{.tokens = Range(200, 203)})).pin;
  Expect(Reason::kUnknownPin, UnpinPrefix{.pin = PinId{pin.value() + 1}});
  Run(UnpinPrefix{.pin = pin});
  core_->TakeEvents();  // The pin's end.
  Expect(Reason::kUnknownPin, UnpinPrefix{.pin = pin});
}

TEST_F(RefusalTest, SetRetentionNamesItsReasons) {
  const SequenceRetention good = {.ranges = {{0, 8, {.priority = Priority{50}}}}};
  SequenceRetention bad = good;
  bad.ranges.push_back({4, std::nullopt, {}});
  Expect(Reason::kInvalidCount, SetRetention{.retention = good});
  Expect(Reason::kInvalidArgument, SetRetention{.tokens = Range(0, 7), .retention = bad});
}

TEST_F(RefusalTest, WaitForTicketNamesItsReasons) {
  const Ticket last = core_->last_ticket();
  Run(WaitForTicket{.ticket = last});
  Expect(Reason::kUnknownTicket, WaitForTicket{.ticket = Ticket{last.value() + 1}});
  ASSERT_TRUE(core_->Execute(session_, PrefetchPrefix{.tokens = Range(100, 107)}, now_).ok());
  core_->TakeEvents();
  const std::vector<Order> copies = core_->TakeOrders();
  ASSERT_FALSE(copies.empty());
  Expect(Reason::kWaitTimeout, WaitForTicket{.ticket = copies.front().ticket});
  for (const Order& copy : copies) {
    core_->Complete(copy.lane, copy.ticket, absl::OkStatus(), now_);
  }
  Run(WaitForTicket{.ticket = copies.back().ticket});
}

TEST_F(RefusalTest, BeginBatchNamesItsReasons) {
  ASSERT_TRUE(core_->BeginBatch(session_, {.step = 5, .completed_step = 3}, now_).ok());
  Run(ForkSequence{.sequence = SequenceId{1}, .new_sequence = SequenceId{2}});
  Run(FreeSequence{.sequence = SequenceId{2}});
  const StepRange backwards[] = {{.step = 4, .completed_step = 3},
                                 {.step = 5, .completed_step = 2},
                                 {.step = 5, .completed_step = 6}};
  for (const StepRange& steps : backwards) {
    const std::string before = Picture();
    EXPECT_EQ(ReasonOf(core_->BeginBatch(session_, steps, now_)), Reason::kStepBackwards);
    EXPECT_EQ(Picture(), before);
  }
  EXPECT_TRUE(core_->BeginBatch(session_, {.step = 5, .completed_step = 5}, now_).ok());
}

// An operation that is refused still applies expiries, and does nothing else.
TEST_F(RefusalTest, TimeGoesOnWithARefusal) {
  Run(SetRetention{.tokens = Range(200, 203),
                   .retention = {.ranges = {{0, 8, {Priority{80}, absl::Milliseconds(10)}}}}});
  core_->TakeEvents();
  now_ += absl::Milliseconds(10);
  EXPECT_FALSE(core_->Execute(session_, OffloadPrefix{}, now_).ok());
  for (const Event& event : core_->TakeEvents()) {
    EXPECT_EQ(std::get<UpdatedEvent>(event.what).priority,
              (Change<Priority>{Priority{80}, kDefaultPriority}));
  }
  EXPECT_EQ(core_->Stats().windows[0].counters.expired_priorities, 1u);
  EXPECT_EQ(core_->Stats().windows[1].counters.expired_priorities, 1u);
}

TEST(BlockManagerOptionsTest, WhatCannotBeServedIsRefused) {
  const auto refused = [](BlockManager::Options options) {
    return ReasonOf(BlockManager::Create(std::move(options)).status()) == Reason::kInvalidArgument;
  };
  const CacheLayout layout = TinyLayout(4);
  EXPECT_TRUE(refused({.layout = layout, .tiers = HostTiers({0})}));
  EXPECT_TRUE(refused({.layout = layout, .tiers = HostTiers({(1u << 28) + 1})}));
  EXPECT_TRUE(refused({.layout = layout, .tiers = HostTiers({1}, {(1u << 28) + 1})}));
  EXPECT_TRUE(refused({.layout = layout, .tiers = HostTiers({1}), .eviction_policy = "none"}));
  EXPECT_TRUE(refused({.layout = layout, .tiers = HostTiers({1}), .pin_budget_permille = 1001}));
  for (const std::string_view policy : EvictionPolicyNames()) {
    EXPECT_FALSE(refused(
        {.layout = layout, .tiers = HostTiers({1}), .eviction_policy = std::string(policy)}));
  }
}

}  // namespace
}  // namespace pagoda
