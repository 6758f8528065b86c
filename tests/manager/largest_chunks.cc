#include "tests/manager/largest_chunks.h"

#include "manager/sequences/raw_blocks.h"
#include "manager/sequences/running_sequences.h"
#include "manager/sequences/session_endings.h"
#include "tests/manager/fixtures/prompt_of.h"

#include <algorithm>
#include <memory>

namespace pagoda {
namespace {

constexpr absl::Time kStart = absl::UnixEpoch();
constexpr absl::Duration kLease = absl::Seconds(1);

SessionRef Open(BlockManager& core) { return core.OpenSession("client", kLease, kStart)->ref; }

// Both tiers are full: one path was offloaded, and another one is in the first tier.
void CacheBothTiers(BlockManager& core) {
  const SessionId session = Open(core).id;
  std::vector<TokenId> tokens = Tokens(kCacheTokens);
  for (const TokenId first : {1'000u, 2'000u}) {
    tokens[0] = first;
    ASSERT_TRUE(core.sequences().AddSequence(session, kFirst, PromptOf({}, tokens), kStart).ok());
    ASSERT_TRUE(core.sequences().CommitTokens(session, kFirst, {}, kCacheTokens, kStart).ok());
    ASSERT_TRUE(core.sequences().FreeSequence(session, kFirst, kStart).ok());
    for (const Order& copy : core.TakeOrders()) {
      core.Complete(copy.lane, copy.ticket, absl::OkStatus(), kStart);
    }
  }
  ASSERT_EQ(core.Stats().windows[0].tiers[0].cached, kBlocks);
  ASSERT_EQ(core.Stats().windows[0].tiers[1].cached, kBlocks);
}

SessionRef OpenWithAllRaw(BlockManager& core) {
  const SessionRef ref = Open(core);
  std::vector<BlockHandle> blocks(kBlocks);
  EXPECT_TRUE(core.raw_blocks()
                  .AllocateBlocks(ref.id, kFullAttention, absl::MakeSpan(blocks), kStart)
                  .ok());
  return ref;
}

void CloseWithAllRaw(BlockManager& core) {
  ASSERT_TRUE(core.endings().CloseSession(OpenWithAllRaw(core), kStart, EndIn::kChunks).ok());
}

// Sequences of 64 blocks that fill the cache.
void CloseWithSequences(BlockManager& core) {
  constexpr uint32_t kTokens = 64 * kTokensPerBlock;
  const SessionRef ref = Open(core);
  std::vector<TokenId> tokens = Tokens(kTokens);
  for (uint32_t i = 0; i < kCacheTokens / kTokens; ++i) {
    tokens[0] = 1'000 + i;
    ASSERT_TRUE(
        core.sequences().AddSequence(ref.id, SequenceId{i + 1}, PromptOf({}, tokens), kStart).ok());
    ASSERT_TRUE(core.sequences().CommitTokens(ref.id, SequenceId{i + 1}, {}, kTokens, kStart).ok());
  }
  ASSERT_TRUE(core.endings().CloseSession(ref, kStart, EndIn::kChunks).ok());
}

void ExpireWriter(BlockManager& core) {
  const SessionRef ref = OpenWithAllRaw(core);
  ASSERT_TRUE(core.NoteWriter(ref).ok());
  ASSERT_EQ(core.endings().ExpireSessions(kStart + kLease, EndIn::kChunks), 1u);
}

void ReleaseAll(BlockManager& core) {
  ExpireWriter(core);
  while (core.endings().ContinueEndings(kStart + kLease, kBlocks)) {
  }
  const std::vector<SessionId> quarantined = core.endings().QuarantinedSessions(SessionId{}, 1);
  ASSERT_EQ(quarantined.size(), 1u);
  ASSERT_TRUE(
      core.endings().ReleaseQuarantine(quarantined[0], kStart + kLease, EndIn::kChunks).ok());
}

bool ContinueEnding(BlockManager& core) {
  return core.endings().ContinueEndings(kStart + kLease, SharedManager::kEndPiece);
}

bool ContinueReset(BlockManager& core) {
  return !core.StepReset(SharedManager::kResetPiece, kStart).done;
}

}  // namespace

std::vector<ChunkedWork> AllChunkedWork() {
  return {{"ResetPrefixCache", "a chunk", CacheBothTiers, ContinueReset},
          {"CloseSession", "a chunk of raw blocks", CloseWithAllRaw, ContinueEnding},
          {"CloseSession", "a chunk of sequences", CloseWithSequences, ContinueEnding},
          {"a lease that ends", "a chunk to quarantine", ExpireWriter, ContinueEnding},
          {"ReleaseQuarantine", "a chunk", ReleaseAll, ContinueEnding}};
}

Cost MeasureLongestChunk(const ChunkedWork& work) {
  const std::unique_ptr<BlockManager> core = *BlockManager::Create(TwoTiers());
  work.prepare(*core);
  core->TakeEvents();
  Cost longest;
  for (bool more = true; more;) {
    g_most_bytes = g_live_bytes;
    const int64_t before = g_live_bytes;
    const double began = ThreadMicroseconds();
    more = work.chunk(*core);
    const EventBatch events = core->TakeEvents();
    longest.microseconds = std::max(longest.microseconds, ThreadMicroseconds() - began);
    longest.most_bytes = std::max(longest.most_bytes, g_most_bytes - before);
  }
  core->CheckInvariants();
  return longest;
}

}  // namespace pagoda
