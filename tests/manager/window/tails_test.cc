// Tails: how they are retained when a sequence continues in them, and when a longer block begins
// with them.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <numeric>
#include <vector>

#include "manager/block_manager.h"
#include "manager/sequences/cached_prefixes.h"
#include "manager/sequences/running_sequences.h"
#include "tests/manager/fixtures/prompt_of.h"
#include "tests/manager/fixtures/testing.h"

namespace pagoda {
namespace {

using Tokens = std::vector<TokenId>;

class TailsTest : public ::testing::Test {
 protected:
  TailsTest() { core_->TakeEvents(); }

  // 1, 2, 3, ...
  static Tokens Count(uint32_t count) {
    Tokens tokens(count);
    std::iota(tokens.begin(), tokens.end(), 1);
    return tokens;
  }
  static SequenceRetention Keep(uint8_t priority,
                                absl::Duration duration = absl::InfiniteDuration()) {
    return {.ranges = {{.token_start = 0,
                        .retention = {.priority = Priority{priority}, .duration = duration}}}};
  }
  void Begin(uint64_t id, const Tokens& tokens, const SequenceRetention& retention = {}) {
    const absl::StatusOr<OperationResult> added = core_->Execute(
        session_, AddSequence{.sequence = SequenceId{id}, .tokens = tokens, .retention = retention},
        now_);
    ASSERT_TRUE(added.ok()) << added.status();
    for (const Order& copy : core_->TakeOrders()) {
      core_->Complete(copy.lane, copy.ticket, absl::OkStatus(), now_);
    }
    ASSERT_TRUE(
        core_->sequences()
            .CommitTokens(session_, SequenceId{id}, {}, static_cast<uint32_t>(tokens.size()), now_)
            .ok());
  }
  void End(uint64_t id) {
    ASSERT_TRUE(core_->sequences().FreeSequence(session_, SequenceId{id}, now_).ok());
    core_->CheckInvariants();
  }
  void Store(const Tokens& tokens, const SequenceRetention& retention = {}) {
    Begin(1, tokens, retention);
    End(1);
  }
  // The priorities of cached blocks, by their last token, which identifies a block here.
  std::map<TokenId, int> Priorities() const {
    std::map<TokenId, int> priorities;
    for (const TreeEntry& entry : core_->DumpTree(kFullAttention)) {
      priorities[entry.tokens.back()] = entry.priority.value();
    }
    return priorities;
  }
  uint32_t cached() const { return core_->Stats().windows[0].tiers[0].cached; }

  using Expected = std::map<TokenId, int>;

  absl::Time now_ = absl::UnixEpoch();
  std::unique_ptr<BlockManager> core_ = MakeCore(16, 4);
  SessionId session_ = core_->OpenSession("test", absl::InfiniteDuration(), now_)->ref.id;
};

TEST_F(TailsTest, ATailThatIsTakenOverKeepsItsRetention) {
  Store(Count(6), Keep(90));
  EXPECT_EQ(Priorities(), (Expected{{4, 90}, {6, 90}}));
  Store(Count(7));
  EXPECT_EQ(Priorities(), (Expected{{4, 90}, {7, 90}}));
  Store(Count(8));
  EXPECT_EQ(Priorities(), (Expected{{4, 90}, {8, 90}})) << "also once it is a whole block";
  EXPECT_EQ(core_->Stats().windows[0].counters.taken_over_blocks, 2u);
}

TEST_F(TailsTest, ATailThatIsTakenOverIsKeptAsTheRequestSays) {
  Store(Count(6), Keep(90));
  Store(Count(7), Keep(20));
  EXPECT_EQ(Priorities(), (Expected{{4, 20}, {7, 20}}));
  Store(Count(8));
  EXPECT_EQ(Priorities(), (Expected{{4, 20}, {8, 20}})) << "a low priority is kept, too";
}

TEST_F(TailsTest, ATailThatIsTakenOverKeepsItsDuration) {
  Store(Count(6), Keep(90, absl::Seconds(10)));
  Store(Count(7));
  now_ += absl::Seconds(9);
  core_->Maintain(now_, 0);
  EXPECT_EQ(Priorities().at(7), 90);
  now_ += absl::Seconds(2);
  core_->Maintain(now_, 0);
  EXPECT_EQ(Priorities().at(7), 35);
}

TEST_F(TailsTest, ACutBehindATailThatWasTakenOverForgetsItsRetention) {
  Store(Count(6), Keep(90));
  Begin(1, Count(7));
  ASSERT_TRUE(core_->sequences().TruncateSequence(session_, SequenceId{1}, 4, now_).ok());
  const Tokens other = {50, 51};
  ASSERT_TRUE(core_->sequences().AppendTokens(session_, SequenceId{1}, other, 6, now_).ok());
  End(1);
  EXPECT_EQ(Priorities(), (Expected{{4, 90}, {51, 35}}));
}

TEST_F(TailsTest, TailsThatALongerBlockBeginsWithAreNotCached) {
  for (const uint32_t count : {8, 7, 6}) Begin(count, Count(count));
  for (const uint32_t count : {8, 7, 6}) End(count);
  EXPECT_EQ(cached(), 2u);
  EXPECT_EQ(Priorities(), (Expected{{4, 35}, {8, 35}}));
  EXPECT_EQ(core_->prefixes().Match(PromptOf({}, Count(8))), 7u);
}

TEST_F(TailsTest, ATailGoesWhenALongerBlockBeginsWithIt) {
  for (const uint32_t count : {6, 7, 8}) Begin(count, Count(count));
  core_->TakeEvents();
  for (const uint32_t count : {6, 7, 8}) End(count);
  EXPECT_EQ(cached(), 2u) << "8 was whole before the others ended";
  ASSERT_EQ(core_->ResetPrefixCache(now_), 2u);
  for (const uint32_t count : {6, 7}) Begin(count, Count(count));
  core_->TakeEvents();
  End(6);
  End(7);
  EXPECT_EQ(Priorities(), (Expected{{4, 35}, {7, 35}}));
  uint32_t removed = 0;
  for (const Event& event : core_->TakeEvents()) {
    const auto* what = std::get_if<RemovedEvent>(&event.what);
    if (what == nullptr) continue;
    EXPECT_EQ(what->reason, RemovalReason::kTakenOver);
    removed += what->blocks.size();
  }
  EXPECT_EQ(removed, 1u);
}

TEST_F(TailsTest, TheLongerBlockIsKeptAsTheHigherOfTheTwo) {
  Begin(6, Count(6), Keep(90));
  Begin(7, Count(7));
  Begin(8, Count(8), Keep(10));
  ASSERT_EQ(Priorities(), (Expected{{4, 10}, {8, 10}}));
  End(6);
  EXPECT_EQ(Priorities(), (Expected{{4, 10}, {8, 90}})) << "the tail wishes for more";
  End(7);
  EXPECT_EQ(Priorities(), (Expected{{4, 10}, {8, 90}}));
  End(8);
  ASSERT_EQ(core_->ResetPrefixCache(now_), 2u);

  Begin(6, Count(6), Keep(90));
  Begin(7, Count(7));
  End(6);
  End(7);
  EXPECT_EQ(Priorities(), (Expected{{4, 90}, {7, 90}})) << "7 says nothing";
  ASSERT_EQ(core_->ResetPrefixCache(now_), 2u);

  Begin(6, Count(6), Keep(90));
  Begin(7, Count(7), Keep(20));
  End(6);
  EXPECT_EQ(Priorities().at(6), 90);
  End(7);
  EXPECT_EQ(Priorities().at(7), 20) << "7 says how it wants to be kept";
}

TEST_F(TailsTest, APinnedTailStaysBesideALongerBlock) {
  Begin(6, Count(6));
  Begin(7, Count(7));
  End(6);
  const auto pinned =
      core_->prefixes().Pin(session_, PromptOf({}, Count(6)), absl::InfiniteDuration(), now_);
  ASSERT_TRUE(pinned.ok());
  ASSERT_EQ(pinned->pinned_tokens, 6u);
  End(7);
  EXPECT_EQ(Priorities(), (Expected{{4, 35}, {6, 35}, {7, 35}}));
  ASSERT_TRUE(core_->prefixes().Unpin(pinned->pin, now_).ok());
}

}  // namespace
}  // namespace pagoda
