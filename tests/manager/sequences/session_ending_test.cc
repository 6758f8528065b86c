// A session that is over is freed in chunks: the invariants between them, and the cost of a chunk.
#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <vector>

#include "base/error.h"
#include "manager/accounts/sequence_accounts.h"
#include "manager/accounts/session_table.h"
#include "manager/block_manager.h"
#include "manager/cache_lists.h"
#include "manager/sequences/raw_blocks.h"
#include "manager/sequences/session_endings.h"
#include "tests/manager/fixtures/host_tiers.h"
#include "tests/manager/fixtures/testing.h"

namespace pagoda {
namespace {

constexpr uint32_t kTokensPerBlock = 4;
constexpr absl::Duration kLease = absl::Seconds(1);

// The processor time of the thread, without other work on the machine.
absl::Time ThreadTime() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return absl::TimeFromTimespec(time);
}

class SessionEndingTest : public ::testing::Test {
 protected:
  void Make(uint32_t blocks, SequenceAccounts::Limits limits = {}) {
    core_ = *BlockManager::Create({.layout = TinyLayout(kTokensPerBlock),
                                   .tiers = HostTiers({blocks}),
                                   .epoch = Epoch{1},
                                   .sequence_limits = limits});
  }
  SessionRef Open(uint64_t token = 7) {
    return core_->OpenSession("test", kLease, now_, kDefaultTenant, SessionToken{token, token})
        ->ref;
  }
  SessionRef OpenWriter() {
    const SessionRef ref = Open();
    EXPECT_TRUE(core_->NoteWriter(ref).ok());
    return ref;
  }
  void Take(SessionId session, uint32_t blocks) {
    std::vector<BlockHandle> handles(blocks);
    ASSERT_TRUE(core_->raw_blocks()
                    .AllocateBlocks(session, kFullAttention, absl::MakeSpan(handles), now_)
                    .ok());
  }
  // A computed sequence of this many whole blocks, whose tokens begin with `first`.
  void Add(SessionId session, SequenceId name, uint32_t blocks, TokenId first) {
    std::vector<TokenId> tokens(blocks * kTokensPerBlock);
    std::iota(tokens.begin(), tokens.end(), first);
    const auto count = static_cast<uint32_t>(tokens.size());
    ASSERT_TRUE(
        core_->Execute(session, AddSequence{.sequence = name, .tokens = std::move(tokens)}, now_)
            .ok());
    ASSERT_TRUE(
        core_->Execute(session, CommitTokens{.sequence = name, .computed_tokens = count}, now_)
            .ok());
  }
  void Expire() {
    now_ += kLease;
    ASSERT_EQ(core_->endings().ExpireSessions(now_, EndIn::kChunks), 1u);
  }
  // Three computed sequences share 11 blocks and have one more each. The third is freed in a step
  // that does not complete. Then the session's lease expires.
  void LeaveOneOfThreeDeferred(SessionId session) {
    std::vector<TokenId> tokens(12 * kTokensPerBlock);
    std::iota(tokens.begin(), tokens.end(), 0);
    const auto count = static_cast<uint32_t>(tokens.size());
    for (uint32_t i = 1; i <= 3; ++i) {
      tokens[tokens.size() - kTokensPerBlock] = 2000 + i;
      const SequenceId name{i};
      ASSERT_TRUE(
          core_->Execute(session, AddSequence{.sequence = name, .tokens = tokens}, now_).ok());
      ASSERT_TRUE(
          core_->Execute(session, CommitTokens{.sequence = name, .computed_tokens = count}, now_)
              .ok());
    }
    ASSERT_TRUE(core_->BeginBatch(session, {.step = 1}, now_).ok());
    ASSERT_TRUE(core_->Execute(session, FreeSequence{SequenceId{3}}, now_).ok());
    Expire();
  }
  // Finishes the endings, with this many blocks in a chunk. Returns the number of chunks.
  int FinishIn(uint32_t max_blocks) {
    int chunks = 0;
    bool more = true;
    while (more) {
      const uint64_t held = Held();
      more = core_->endings().ContinueEndings(now_, max_blocks);
      EXPECT_LE(held - Held(), max_blocks);
      core_->CheckInvariants();
      ++chunks;
    }
    return chunks;
  }
  TierOccupancy Primary() const { return core_->Stats().windows[0].tiers[0]; }
  uint64_t Held() const { return Primary().active + Primary().in_flight; }
  Reason ReasonFor(SessionRef ref) const { return ReasonOf(core_->CheckSession(ref)); }

  absl::Time now_ = absl::UnixEpoch();
  std::unique_ptr<BlockManager> core_;
};

TEST_F(SessionEndingTest, RawBlocksAreFreedInChunks) {
  Make(1000);
  const SessionRef ref = Open();
  Take(ref.id, 1000);
  ASSERT_TRUE(core_->endings().CloseSession(ref, now_, EndIn::kChunks).ok());
  EXPECT_EQ(Primary().active, 1000u);
  EXPECT_TRUE(core_->endings().IsEnding(ref.id));
  EXPECT_EQ(FinishIn(100), 10);
  EXPECT_EQ(Primary().free, 1000u);
  EXPECT_FALSE(core_->endings().IsEnding(ref.id));
  EXPECT_EQ(core_->Stats().sessions, 0u);
  EXPECT_EQ(core_->Stats().session_counters.reclaimed_blocks[0], 1000u);
}

TEST_F(SessionEndingTest, ASessionIsOverAtOnce) {
  Make(100);
  const SessionRef ref = Open();
  Take(ref.id, 10);
  ASSERT_TRUE(core_->endings().CloseSession(ref, now_, EndIn::kChunks).ok());
  EXPECT_EQ(ReasonFor(ref), Reason::kStaleSession);
  EXPECT_EQ(ReasonOf(core_->KeepAlive(ref, now_).status()), Reason::kStaleSession);
  EXPECT_EQ(ReasonOf(core_->endings().CloseSession(ref, now_, EndIn::kChunks)),
            Reason::kStaleSession);
  EXPECT_EQ(ReasonOf(core_->endings().EndSession(ref.id, now_, EndIn::kChunks)),
            Reason::kUnknownSession);
  EXPECT_EQ(core_->endings().ExpireSessions(now_ + kLease, EndIn::kChunks), 0u);
}

TEST_F(SessionEndingTest, OthersGoOnBetweenChunks) {
  Make(100);
  const SessionRef ending = Open(), other = Open();
  Take(ending.id, 100);
  ASSERT_TRUE(core_->endings().CloseSession(ending, now_, EndIn::kChunks).ok());
  for (uint32_t freed = 10; freed <= 100; freed += 10) {
    core_->endings().ContinueEndings(now_, 10);
    Take(other.id, 10);
    EXPECT_EQ(Primary().free, 0u);
    core_->CheckInvariants();
  }
  EXPECT_FALSE(core_->endings().IsEnding(ending.id));
}

TEST_F(SessionEndingTest, SequencesAreFreedOneByOneAndStayCached) {
  Make(100);
  const SessionRef ref = Open();
  for (uint32_t i = 0; i < 10; ++i) Add(ref.id, SequenceId{i + 1}, 5, 1000 * i);
  ASSERT_TRUE(core_->endings().CloseSession(ref, now_, EndIn::kChunks).ok());
  int chunks = 1;
  while (core_->endings().ContinueEndings(now_, 1)) {
    EXPECT_EQ(core_->Stats().sequences, 10u - chunks);
    EXPECT_EQ(Primary().cached, 5u * chunks);
    core_->CheckInvariants();
    ++chunks;
  }
  EXPECT_EQ(chunks, 10);
}

TEST_F(SessionEndingTest, TheOldestEndsFirst) {
  Make(100);
  const SessionRef first = Open(), second = Open();
  Take(first.id, 20);
  Take(second.id, 20);
  ASSERT_TRUE(core_->endings().CloseSession(second, now_, EndIn::kChunks).ok());
  ASSERT_TRUE(core_->endings().CloseSession(first, now_, EndIn::kChunks).ok());
  core_->endings().ContinueEndings(now_, 20);
  EXPECT_FALSE(core_->endings().IsEnding(second.id));
  EXPECT_TRUE(core_->endings().IsEnding(first.id));
}

TEST_F(SessionEndingTest, WhatItCouldWriteIsQuarantinedAtItsEnd) {
  Make(100);
  const SessionRef ref = OpenWriter();
  Take(ref.id, 30);
  Expire();
  EXPECT_FALSE(core_->endings().IsQuarantined(ref.id));
  FinishIn(10);
  EXPECT_EQ(core_->Stats().quarantined_blocks, 30u);
  EXPECT_EQ(Primary().in_flight, 30u);
  ASSERT_TRUE(core_->endings().CloseSession(ref, now_, EndIn::kChunks).ok());
  EXPECT_FALSE(core_->endings().IsQuarantined(ref.id));
  EXPECT_EQ(Primary().in_flight, 30u) << "the release goes in chunks, too";
  EXPECT_EQ(FinishIn(10), 3);
  EXPECT_EQ(Primary().free, 100u);
  EXPECT_EQ(core_->Stats().session_counters.reclaimed_from_quarantine, 30u);
}

TEST_F(SessionEndingTest, AnAcknowledgementInTheMiddleLeavesNoQuarantine) {
  Make(100);
  const SessionRef ref = OpenWriter();
  Take(ref.id, 30);
  Expire();
  core_->endings().ContinueEndings(now_, 10);
  EXPECT_EQ(Primary().in_flight, 10u);
  SessionRef guess = ref;
  guess.token = SessionToken{1, 2};
  EXPECT_EQ(ReasonOf(core_->endings().CloseSession(guess, now_, EndIn::kChunks)),
            Reason::kStaleSession);
  ASSERT_TRUE(core_->endings().CloseSession(ref, now_, EndIn::kChunks).ok());
  FinishIn(10);
  EXPECT_EQ(Primary().free, 100u);
  EXPECT_EQ(core_->Stats().quarantines, 0u);
}

TEST_F(SessionEndingTest, AWriterThatDiesInTheMiddleLeavesNoQuarantine) {
  Make(100);
  const SessionRef ref = OpenWriter();
  Take(ref.id, 30);
  Expire();
  core_->endings().ContinueEndings(now_, 10);
  core_->NoteWriterGone(ref.id);
  FinishIn(10);
  EXPECT_EQ(Primary().free, 100u);
  EXPECT_EQ(core_->Stats().quarantines, 0u);
}

// Forks that share a long prefix and end without their client leave one deferred release for each
// block.
TEST_F(SessionEndingTest, AQuarantineKeepsEachBlockAtMostTwice) {
  constexpr uint32_t kBlocks = 64, kForks = 200;
  Make(4 * kBlocks);
  const SessionRef ref = OpenWriter();
  Add(ref.id, SequenceId{1}, kBlocks, 0);
  for (uint32_t i = 0; i < kForks; ++i) {
    ASSERT_TRUE(core_->Execute(ref.id, ForkSequence{SequenceId{1}, SequenceId{i + 2}}, now_).ok());
  }
  // After one deferred release, all further releases are deferred.
  ASSERT_TRUE(core_->BeginBatch(ref.id, {.step = 1}, now_).ok());
  ASSERT_TRUE(core_->Execute(ref.id, FreeSequence{SequenceId{2}}, now_).ok());
  Expire();
  while (core_->endings().ContinueEndings(now_, 1)) {
  }
  core_->CheckInvariants();
  EXPECT_EQ(core_->Stats().quarantined_blocks, kBlocks);
  EXPECT_LE(core_->lists().TenantUses()[0].sequence_bytes,
            (Session::kFewDeferred + 2 * kBlocks) * sizeof(DeferredRelease));
}

// Two sequences share a prefix. A block above one with a deferred release must be deferred, too.
TEST_F(SessionEndingTest, WhatSharedAPrefixIsReleasedFromBelow) {
  Make(64);
  const SessionRef ref = OpenWriter();
  LeaveOneOfThreeDeferred(ref.id);
  for (const bool acknowledges : {false, true}) {
    core_->endings().ContinueEndings(now_, 1);  // One sequence.
    core_->CheckInvariants();
    if (acknowledges) core_->NoteWriterGone(ref.id);
  }
  FinishIn(1);
  EXPECT_EQ(Primary().in_flight, 0u);
  EXPECT_EQ(Primary().cached, 14u);
}

TEST_F(SessionEndingTest, AQuarantineIsReleasedFromBelow) {
  Make(64);
  const SessionRef ref = OpenWriter();
  LeaveOneOfThreeDeferred(ref.id);
  FinishIn(1);
  EXPECT_EQ(core_->Stats().quarantined_blocks, 14u);
  ASSERT_TRUE(core_->endings().CloseSession(ref, now_, EndIn::kChunks).ok());
  FinishIn(1);
  EXPECT_EQ(Primary().cached, 14u);
}

// A tenant that frees forks in a step that never completes pays for the list of deferred releases.
TEST_F(SessionEndingTest, DeferredReleasesAreChargedAndRefuseNewSequences) {
  constexpr uint32_t kBlocks = 512;
  Make(4 * kBlocks, {.max_sequences = 64, .max_bytes = 256 << 10});
  const SessionRef keeper = Open();
  Add(keeper.id, SequenceId{1}, kBlocks, 0);
  std::vector<TokenId> prompt(kBlocks * kTokensPerBlock);
  std::iota(prompt.begin(), prompt.end(), 0);
  absl::Status refused;
  std::vector<SessionRef> sessions;
  for (int i = 0; i < 1000 && refused.ok(); ++i) {
    const SessionRef ref = sessions.emplace_back(Open());
    ASSERT_TRUE(core_->BeginBatch(ref.id, {.step = 1}, now_).ok());
    refused = core_->Execute(ref.id, AddSequence{.sequence = SequenceId{1}, .tokens = prompt}, now_)
                  .status();
    if (!refused.ok()) break;
    ASSERT_TRUE(core_->Execute(ref.id, FreeSequence{SequenceId{1}}, now_).ok());
  }
  EXPECT_EQ(ReasonOf(refused), Reason::kSequenceBytesExhausted);
  EXPECT_LE(core_->lists().TenantUses()[0].sequence_bytes, 320u << 10);
  core_->CheckInvariants();
  // A step that completes returns the bytes.
  ASSERT_TRUE(core_->BeginBatch(sessions.front().id, {.step = 1, .completed_step = 1}, now_).ok());
  ASSERT_TRUE(core_->BeginBatch(sessions[1].id, {.step = 1, .completed_step = 1}, now_).ok());
  EXPECT_TRUE(core_
                  ->Execute(sessions.back().id,
                            AddSequence{.sequence = SequenceId{1}, .tokens = prompt}, now_)
                  .ok());
}

// The chunks of SharedManager: see kEndPiece. Every round does the same work. So the shortest time
// of a chunk over the rounds excludes other work on the machine.
class ChunkTimes {
 public:
  explicit ChunkTimes(const char* what) : what_(what) {}

  // Runs one round: chunks until `next` returns false. The time of `after` does not count.
  template <class Next, class After>
  void Measure(Next next, After after) {
    bool more = true;
    for (size_t chunk = 0; more; ++chunk) {
      const absl::Time start = ThreadTime();
      more = next();
      const absl::Duration took = ThreadTime() - start;
      after();
      if (chunk == shortest_.size()) shortest_.push_back(took);
      shortest_[chunk] = std::min(shortest_[chunk], took);
    }
  }
  void ExpectShort(uint32_t blocks) const {
    const absl::Duration longest = *std::max_element(shortest_.begin(), shortest_.end());
    const absl::Duration whole =
        std::accumulate(shortest_.begin(), shortest_.end(), absl::ZeroDuration());
    std::printf("%s, %u blocks: %s in all, the longest chunk %s\n", what_, blocks,
                absl::FormatDuration(whole).c_str(), absl::FormatDuration(longest).c_str());
    EXPECT_LT(longest, whole / 100) << what_;
  }

 private:
  const char* what_;
  std::vector<absl::Duration> shortest_;
};

TEST_F(SessionEndingTest, AChunkOfALargeSessionIsShort) {
  constexpr uint32_t kBlocks = 1'000'000, kPiece = 512;
  Make(kBlocks);
  ChunkTimes raw_times("a session with raw blocks");
  ChunkTimes writer_times("a session whose raw blocks are quarantined");
  ChunkTimes release_times("the quarantine");
  const auto next_chunk = [&] { return core_->endings().ContinueEndings(now_, kPiece); };
  const auto take_events = [&] { static_cast<void>(core_->TakeEvents()); };
  for (int round = 0; round < 4; ++round) {
    const SessionRef raw = Open();
    Take(raw.id, kBlocks);
    ASSERT_TRUE(core_->endings().CloseSession(raw, now_, EndIn::kChunks).ok());
    raw_times.Measure(next_chunk, take_events);
    const SessionRef writer = OpenWriter();
    Take(writer.id, kBlocks);
    Expire();
    writer_times.Measure(next_chunk, take_events);
    ASSERT_TRUE(core_->endings().CloseSession(writer, now_, EndIn::kChunks).ok());
    release_times.Measure(next_chunk, take_events);
    EXPECT_EQ(Primary().free, kBlocks);
  }
  raw_times.ExpectShort(kBlocks);
  writer_times.ExpectShort(kBlocks);
  release_times.ExpectShort(kBlocks);
}

}  // namespace
}  // namespace pagoda
