// Sessions: what each one owns, and what happens when it ends.
#include <gtest/gtest.h>

#include "base/error.h"
#include "manager/block_manager.h"
#include "manager/sequences/raw_blocks.h"
#include "manager/sequences/running_sequences.h"
#include "manager/sequences/session_endings.h"
#include "tests/manager/fixtures/host_tiers.h"
#include "tests/manager/fixtures/prompt_of.h"
#include "tests/manager/fixtures/testing.h"

namespace pagoda {
namespace {

constexpr absl::Duration kLease = absl::Seconds(10);

class SessionTest : public ::testing::Test {
 protected:
  SessionRef Open() { return core_->OpenSession("test", kLease, now_)->ref; }
  // A sequence with a computed block, and a raw block.
  void TakeSome(SessionId session) {
    const std::vector<TokenId> prompt = {1, 2, 3, 4, 5};
    ASSERT_TRUE(
        core_->sequences().AddSequence(session, SequenceId{1}, PromptOf({}, prompt), now_).ok());
    ASSERT_TRUE(core_->sequences().CommitTokens(session, SequenceId{1}, {}, 4, now_).ok());
    BlockHandle block;
    ASSERT_TRUE(
        core_->raw_blocks().AllocateBlocks(session, kFullAttention, {&block, 1}, now_).ok());
    ASSERT_EQ(Primary().active, 3u);
  }
  TierOccupancy Primary() const { return core_->Stats().windows[0].tiers[0]; }

  absl::Time now_ = absl::UnixEpoch();
  std::unique_ptr<BlockManager> core_ = MakeCore(8, 4);
};

TEST_F(SessionTest, ClosingFreesWhatItOwnsAndKeepsWhatIsCommitted) {
  const SessionRef ref = Open();
  TakeSome(ref.id);
  ASSERT_TRUE(core_->endings().CloseSession(ref, now_).ok());
  EXPECT_EQ(Primary().active, 0u);
  EXPECT_EQ(Primary().cached, 1u);
  EXPECT_EQ(core_->Stats().sequences, 0u);
  EXPECT_EQ(ReasonOf(core_->endings().CloseSession(ref, now_)), Reason::kStaleSession);
  EXPECT_EQ(ReasonOf(core_->CheckSession({SessionId{7}, ref.token})), Reason::kUnknownSession);
  core_->CheckInvariants();
}

TEST_F(SessionTest, AnExpiredLeaseClosesTheSession) {
  const SessionRef ref = Open();
  TakeSome(ref.id);
  EXPECT_EQ(core_->endings().ExpireSessions(now_ + kLease - absl::Milliseconds(1)), 0u);
  EXPECT_EQ(core_->endings().ExpireSessions(now_ + kLease), 1u);
  EXPECT_EQ(Primary().active, 0u);
  EXPECT_EQ(ReasonOf(core_->CheckSession(ref)), Reason::kStaleSession);
}

TEST_F(SessionTest, ASignOfLifeStartsTheLeaseAgain) {
  const SessionRef ref = Open();
  now_ += absl::Seconds(9);
  EXPECT_EQ(*core_->KeepAlive(ref, now_), kLease);
  EXPECT_EQ(core_->endings().ExpireSessions(now_ + absl::Seconds(9)), 0u);
  EXPECT_EQ(core_->endings().ExpireSessions(now_ + kLease), 1u);
}

TEST_F(SessionTest, TheLeaseDoesNotRunWhileTheCallerStoodStill) {
  const SessionRef ref = Open();
  constexpr absl::Duration kPause = absl::Minutes(1);
  now_ += absl::Seconds(9) + kPause;
  EXPECT_EQ(core_->endings().ExpireSessions(now_, EndIn::kOneCall, kPause), 0u);
  // A session that was opened in the pause has no more than its lease.
  Open();
  EXPECT_EQ(
      core_->endings().ExpireSessions(now_ + absl::Milliseconds(999), EndIn::kOneCall, kPause), 0u);
  EXPECT_EQ(core_->endings().ExpireSessions(now_ + kLease + absl::Milliseconds(998)), 0u);
  EXPECT_EQ(core_->endings().ExpireSessions(now_ + kLease + absl::Milliseconds(999)), 2u);
  EXPECT_EQ(ReasonOf(core_->CheckSession(ref)), Reason::kStaleSession);
}

TEST_F(SessionTest, TheLeaseDoesNotRunWhileAStreamIsAttached) {
  const SessionRef ref = Open();
  ASSERT_TRUE(core_->AttachStream(ref).ok());
  ASSERT_TRUE(core_->AttachStream(ref).ok());
  core_->DetachStream(ref.id, now_);  // The other stream is still there.
  now_ += absl::Hours(1);
  EXPECT_EQ(core_->endings().ExpireSessions(now_), 0u);
  core_->DetachStream(ref.id, now_);
  EXPECT_EQ(core_->endings().ExpireSessions(now_ + absl::Seconds(9)), 0u);
  EXPECT_EQ(core_->endings().ExpireSessions(now_ + kLease), 1u);
}

TEST_F(SessionTest, AWrongTokenIsRefused) {
  SessionRef ref = Open();
  ref.token = SessionToken{ref.token.low() + 1};
  EXPECT_EQ(ReasonOf(core_->CheckSession(ref)), Reason::kStaleSession);
  EXPECT_EQ(ReasonOf(core_->KeepAlive(ref, now_).status()), Reason::kStaleSession);
  EXPECT_EQ(ReasonOf(core_->endings().CloseSession(ref, now_)), Reason::kStaleSession);
}

TEST_F(SessionTest, BothHalvesOfATokenHaveToBeRight) {
  const SessionToken token(11, 22);
  const SessionRef ref = core_->OpenSession("test", kLease, now_, kDefaultTenant, token)->ref;
  EXPECT_TRUE(ref.token == token) << "the core makes up none of its own";
  EXPECT_TRUE(core_->CheckSession({ref.id, token}).ok());
  for (const SessionToken forged : {SessionToken(11), SessionToken(11, 23), SessionToken(12, 22)}) {
    EXPECT_EQ(ReasonOf(core_->CheckSession({ref.id, forged})), Reason::kStaleSession);
  }
}

TEST_F(SessionTest, SessionsDoNotSeeEachOthersSequences) {
  const SessionRef mine = Open(), theirs = Open();
  TakeSome(mine.id);
  EXPECT_EQ(ReasonOf(core_->sequences().FreeSequence(theirs.id, SequenceId{1}, now_)),
            Reason::kUnknownSequence);
  EXPECT_TRUE(
      core_->sequences().AddSequence(theirs.id, SequenceId{1}, PromptOf({}, {{9}}), now_).ok())
      << "an id is unique in its session only";
}

TEST_F(SessionTest, ThereIsALimit) {
  auto core =
      *BlockManager::Create({.layout = TinyLayout(4), .tiers = HostTiers({8}), .max_sessions = 1});
  ASSERT_TRUE(core->OpenSession("one", kLease, now_).ok());
  EXPECT_EQ(ReasonOf(core->OpenSession("two", kLease, now_).status()), Reason::kTooManySessions);
}

TEST_F(SessionTest, WhatIsKeptForLongIsBounded) {
  const auto named = core_->OpenSession(std::string(129, 'x'), kLease, now_);
  EXPECT_EQ(ReasonOf(named.status()), Reason::kInvalidArgument);
  const NamespaceKey salted{.cache_salt = std::string(257, 'x')};
  const auto added = core_->sequences().AddSequence(
      Open().id, SequenceId{1}, PromptOf(salted, std::vector<TokenId>{1}), now_);
  EXPECT_EQ(ReasonOf(added.status()), Reason::kInvalidArgument);
}

}  // namespace
}  // namespace pagoda
