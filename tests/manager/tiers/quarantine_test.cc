// Blocks that a session could write when it ended without its client stay quarantined until its
// processes are known to write no more.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "absl/time/clock.h"
#include "base/error.h"
#include "manager/block_manager.h"
#include "manager/sequences/raw_blocks.h"
#include "manager/sequences/running_sequences.h"
#include "manager/sequences/session_endings.h"
#include "tests/manager/fixtures/prompt_of.h"
#include "tests/manager/fixtures/testing.h"

namespace pagoda {
namespace {

constexpr absl::Duration kLease = absl::Seconds(10);
constexpr uint32_t kBlocks = 8;

class QuarantineTest : public ::testing::Test {
 protected:
  SessionRef Open() { return core_->OpenSession("engine", kLease, now_)->ref; }
  SessionRef OpenWriter() {
    const SessionRef ref = Open();
    EXPECT_TRUE(core_->NoteWriter(ref).ok());
    return ref;
  }
  // A sequence of ten tokens: one block published, one full but not computed, a tail; and a raw
  // block.
  void TakeSome(SessionId session) {
    const std::vector<TokenId> prompt = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
    ASSERT_TRUE(
        core_->sequences().AddSequence(session, SequenceId{1}, PromptOf({}, prompt), now_).ok());
    ASSERT_TRUE(core_->sequences().CommitTokens(session, SequenceId{1}, {}, 4, now_).ok());
    BlockHandle block;
    ASSERT_TRUE(
        core_->raw_blocks().AllocateBlocks(session, kFullAttention, {&block, 1}, now_).ok());
    ASSERT_EQ(Primary().active, 4u);
  }
  void Expire() {
    now_ += kLease;
    ASSERT_EQ(core_->endings().ExpireSessions(now_), 1u);
    core_->CheckInvariants();
  }
  TierOccupancy Primary() const { return core_->Stats().windows[0].tiers[0]; }

  absl::Time now_ = absl::UnixEpoch();
  std::unique_ptr<BlockManager> core_ = MakeCore(kBlocks, 4);
};

TEST_F(QuarantineTest, WhatAnExpiredWriterHadNotPublishedIsKept) {
  const SessionRef ref = OpenWriter();
  TakeSome(ref.id);
  Expire();
  EXPECT_EQ(Primary().cached, 1u) << "what was committed stays cached";
  EXPECT_EQ(Primary().in_flight, 3u) << "two blocks of the sequence, and the raw one";
  EXPECT_EQ(Primary().free, kBlocks - 4);
  ASSERT_EQ(core_->endings().Quarantines().size(), 1u);
  const QuarantineInfo info = core_->endings().Quarantines().front();
  EXPECT_EQ(info.session, ref.id);
  EXPECT_EQ(info.client_name, "engine");
  EXPECT_EQ(info.blocks, 3u);
  EXPECT_EQ(core_->Stats().quarantined_blocks, 3u);
  const SessionRef other = Open();
  std::vector<BlockHandle> blocks(kBlocks - 3);
  EXPECT_TRUE(core_->raw_blocks()
                  .AllocateBlocks(other.id, kFullAttention, absl::MakeSpan(blocks), now_)
                  .ok())
      << "the rest can be had";
  EXPECT_EQ(
      ReasonOf(core_->raw_blocks()
                   .AllocateBlocks(other.id, kFullAttention, absl::MakeSpan(blocks).first(1), now_)
                   .status()),
      Reason::kBlocksExhausted);
}

TEST_F(QuarantineTest, ReleasingItGivesTheBlocksBack) {
  const SessionRef ref = OpenWriter();
  TakeSome(ref.id);
  Expire();
  EXPECT_EQ(*core_->endings().ReleaseQuarantine(ref.id, now_), 3u);
  EXPECT_EQ(Primary().free, kBlocks - 1);
  EXPECT_EQ(Primary().in_flight, 0u);
  EXPECT_TRUE(core_->endings().Quarantines().empty());
  EXPECT_EQ(ReasonOf(core_->endings().ReleaseQuarantine(ref.id, now_).status()),
            Reason::kUnknownQuarantine);
  core_->CheckInvariants();
}

TEST_F(QuarantineTest, TheClientsOwnCloseIsTheAcknowledgement) {
  const SessionRef ref = OpenWriter();
  TakeSome(ref.id);
  Expire();
  SessionRef forged = ref;
  forged.token = SessionToken{ref.token.low() + 1};
  EXPECT_EQ(ReasonOf(core_->endings().CloseSession(forged, now_)), Reason::kStaleSession);
  EXPECT_EQ(Primary().in_flight, 3u);
  EXPECT_EQ(ReasonOf(core_->KeepAlive(ref, now_).status()), Reason::kStaleSession);
  EXPECT_TRUE(core_->endings().CloseSession(ref, now_).ok());
  EXPECT_EQ(Primary().in_flight, 0u);
}

// Its token would equal that of a message without one.
TEST_F(QuarantineTest, NobodyAcknowledgesTheQuarantineOfAnEarlierRun) {
  core_->endings().QuarantineFree(now_);
  ASSERT_EQ(Primary().in_flight, kBlocks);
  EXPECT_EQ(ReasonOf(core_->endings().CloseSession({SessionId{}, SessionToken{}}, now_)),
            Reason::kUnknownSession);
  EXPECT_EQ(Primary().in_flight, kBlocks);
  EXPECT_EQ(*core_->endings().ReleaseQuarantine(SessionId{}, now_), kBlocks)
      << "who knows better does";
}

TEST_F(QuarantineTest, SessionsInQuarantineAreListedInPieces) {
  std::vector<SessionId> sessions;
  for (int i = 0; i < 3; ++i) {
    const SessionRef ref = OpenWriter();
    BlockHandle block;
    ASSERT_TRUE(core_->raw_blocks().AllocateBlocks(ref.id, kFullAttention, {&block, 1}, now_).ok());
    sessions.push_back(ref.id);
  }
  now_ += kLease;
  ASSERT_EQ(core_->endings().ExpireSessions(now_), 3u);
  EXPECT_EQ(core_->endings().QuarantinedSessions(SessionId{}, 2),
            std::vector(sessions.begin(), sessions.begin() + 2));
  EXPECT_EQ(core_->endings().QuarantinedSessions(sessions[1], 2),
            std::vector(sessions.begin() + 1, sessions.end()));
  EXPECT_TRUE(core_->endings().IsQuarantined(sessions[2]));
  EXPECT_TRUE(core_->endings().ReleaseQuarantine(sessions[2], now_).ok());
  EXPECT_FALSE(core_->endings().IsQuarantined(sessions[2]));
  EXPECT_TRUE(core_->endings().QuarantinedSessions(sessions[2], 2).empty());
  EXPECT_EQ(core_->Stats().quarantined_blocks, 2u);
}

// The daemon asks this ten times a second under the core's lock, and so does a scrape.
TEST(LargeQuarantineTest, CostsNoMoreToLookAtThanASmallOne) {
  const auto quarantined = [](uint32_t blocks) {
    std::unique_ptr<BlockManager> core = MakeCore(blocks + 1, 1);
    absl::Time now = absl::UnixEpoch();
    const SessionRef ref = core->OpenSession("engine", kLease, now)->ref;
    EXPECT_TRUE(core->NoteWriter(ref).ok());
    std::vector<BlockHandle> handles(blocks);
    EXPECT_TRUE(core->raw_blocks()
                    .AllocateBlocks(ref.id, kFullAttention, absl::MakeSpan(handles), now)
                    .ok());
    EXPECT_EQ(core->endings().ExpireSessions(now + kLease), 1u);
    EXPECT_EQ(core->Stats().quarantined_blocks, blocks);
    EXPECT_EQ(core->Stats().windows[0].tiers[0].in_flight, blocks);
    return core;
  };
  const auto cost = [](const BlockManager& core) {
    std::vector<absl::Duration> times;
    for (int i = 0; i < 21; ++i) {
      const absl::Time start = absl::Now();
      EXPECT_EQ(core.endings().QuarantinedSessions(SessionId{}, 1024).size(), 1u);
      EXPECT_EQ(core.endings().Quarantines().size(), 1u);
      EXPECT_EQ(core.Stats().quarantines, 1u);
      times.push_back(absl::Now() - start);
    }
    std::nth_element(times.begin(), times.begin() + 10, times.end());
    return times[10];
  };
  constexpr uint32_t kSmall = 10, kLarge = 300'000;
  const absl::Duration small = cost(*quarantined(kSmall)), large = cost(*quarantined(kLarge));
  std::printf("a quarantine of %u blocks: %s; of %u: %s\n", kSmall,
              absl::FormatDuration(small).c_str(), kLarge, absl::FormatDuration(large).c_str());
  EXPECT_LT(large, 100 * small) << "it was 1,000 times and more";
}

TEST_F(QuarantineTest, WhoCannotWriteLeavesNothingBehind) {
  const SessionRef ref = Open();
  TakeSome(ref.id);
  Expire();
  EXPECT_EQ(Primary().free, kBlocks - 1);
  EXPECT_TRUE(core_->endings().Quarantines().empty());
}

TEST_F(QuarantineTest, AClientThatClosesHasSaidThatItIsDone) {
  const SessionRef ref = OpenWriter();
  TakeSome(ref.id);
  ASSERT_TRUE(core_->endings().CloseSession(ref, now_).ok());
  EXPECT_EQ(Primary().free, kBlocks - 1);
  EXPECT_TRUE(core_->endings().Quarantines().empty());
}

TEST_F(QuarantineTest, AnOperatorEndsASessionAsItsLeaseWould) {
  const SessionRef ref = OpenWriter();
  TakeSome(ref.id);
  ASSERT_TRUE(core_->endings().EndSession(ref.id, now_).ok());
  EXPECT_EQ(Primary().in_flight, 3u);
  EXPECT_EQ(ReasonOf(core_->endings().EndSession(ref.id, now_)), Reason::kUnknownSession);
}

TEST_F(QuarantineTest, AnOperatorDoesNotEndASessionWithoutALease) {
  const auto own = core_->OpenSession("engine", absl::InfiniteDuration(), now_);
  ASSERT_TRUE(own.ok());
  EXPECT_EQ(ReasonOf(core_->endings().EndSession(own->ref.id, now_)), Reason::kPermissionDenied);
  EXPECT_TRUE(core_->CheckSession(own->ref).ok());
}

TEST_F(QuarantineTest, ATailIsNotCachedWhereItsClientMayStillWriteBehindIt) {
  const SessionRef ref = OpenWriter();
  ASSERT_TRUE(core_->sequences()
                  .AddSequence(ref.id, SequenceId{1}, PromptOf({}, {{1, 2, 3, 4, 5, 6}}), now_)
                  .ok());
  ASSERT_TRUE(core_->sequences().CommitTokens(ref.id, SequenceId{1}, {}, 6, now_).ok());
  Expire();
  EXPECT_EQ(core_->Stats().quarantined_blocks, 1u);
  EXPECT_EQ(Primary().cached, 1u);
}

TEST_F(QuarantineTest, AWriterThatIsKnownToBeGoneIsNone) {
  const SessionRef ref = OpenWriter();
  ASSERT_TRUE(core_->sequences()
                  .AddSequence(ref.id, SequenceId{1}, PromptOf({}, {{1, 2, 3, 4, 5, 6}}), now_)
                  .ok());
  ASSERT_TRUE(core_->sequences().CommitTokens(ref.id, SequenceId{1}, {}, 6, now_).ok());
  core_->NoteWriterGone(ref.id);
  Expire();
  EXPECT_TRUE(core_->endings().Quarantines().empty());
  EXPECT_EQ(Primary().cached, 2u) << "the tail, too";
}

TEST_F(QuarantineTest, DeferredReleasesOfAnEndedSessionAreKeptToo) {
  const SessionRef ref = OpenWriter();
  ASSERT_TRUE(core_->BeginBatch(ref.id, {.step = 1, .completed_step = 0}, now_).ok());
  BlockHandle block;
  ASSERT_TRUE(core_->raw_blocks().AllocateBlocks(ref.id, kFullAttention, {&block, 1}, now_).ok());
  const BlockRef freed = block.ref();
  ASSERT_TRUE(core_->raw_blocks().FreeBlocks(ref.id, kFullAttention, {&freed, 1}, now_).ok());
  ASSERT_EQ(Primary().in_flight, 1u);
  Expire();
  EXPECT_EQ(core_->Stats().quarantined_blocks, 1u);
  EXPECT_EQ(*core_->endings().ReleaseQuarantine(ref.id, now_), 1u);
  EXPECT_EQ(Primary().free, kBlocks);
}

TEST_F(QuarantineTest, BlocksThatForksShareAreCountedOnce) {
  const SessionRef ref = OpenWriter();
  ASSERT_TRUE(
      core_->sequences().AddSequence(ref.id, SequenceId{1}, PromptOf({}, {{1, 2, 3}}), now_).ok());
  ASSERT_TRUE(core_->sequences().CommitTokens(ref.id, SequenceId{1}, {}, 2, now_).ok());
  ASSERT_TRUE(core_->sequences().ForkSequence(ref.id, SequenceId{1}, SequenceId{2}, now_).ok());
  Expire();
  EXPECT_EQ(core_->endings().Quarantines().front().blocks, 1u);
  EXPECT_EQ(*core_->endings().ReleaseQuarantine(ref.id, now_), 1u);
  core_->CheckInvariants();
}

// The quarantine of an earlier run has no token, so a caller without a token must not be taken for
// its owner.
TEST_F(QuarantineTest, NoSessionEndsTheQuarantineOfAnEarlierRun) {
  core_->endings().QuarantineFree(now_);
  EXPECT_EQ(ReasonOf(core_->endings().CloseSession(SessionRef{}, now_)), Reason::kUnknownSession);
  EXPECT_EQ(Primary().in_flight, kBlocks);
  EXPECT_EQ(*core_->endings().ReleaseQuarantine(SessionId{}, now_), kBlocks) << "operators end it";
}

}  // namespace
}  // namespace pagoda
