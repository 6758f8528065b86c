// The lists for operators: sessions, sequences, and the blocks of a prefix.
#include "manager/words/lists.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "manager/block_manager.h"
#include "manager/cache_lists.h"
#include "manager/sequences/cached_prefixes.h"
#include "manager/sequences/raw_blocks.h"
#include "manager/sequences/running_sequences.h"
#include "manager/sequences/session_endings.h"
#include "tests/manager/fixtures/host_tiers.h"
#include "tests/manager/fixtures/prompt_of.h"
#include "tests/manager/fixtures/testing.h"

namespace pagoda {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr absl::Duration kLease = absl::Seconds(10);
constexpr uint32_t kBlockTokens = 4;

class ListsTest : public ::testing::Test {
 protected:
  ~ListsTest() override { core_->CheckInvariants(); }

  SessionRef Open(const std::string& name) { return core_->OpenSession(name, kLease, now_)->ref; }
  void Add(SessionId session, uint64_t sequence, uint32_t tokens) {
    ASSERT_TRUE(core_->sequences()
                    .AddSequence(session, SequenceId{sequence}, PromptOf({}, Prompt(tokens)), now_)
                    .ok());
  }
  void Commit(SessionId session, uint64_t sequence, uint32_t computed) {
    ASSERT_TRUE(
        core_->sequences().CommitTokens(session, SequenceId{sequence}, {}, computed, now_).ok());
  }
  static std::vector<TokenId> Prompt(uint32_t tokens) {
    std::vector<TokenId> prompt(tokens);
    for (uint32_t i = 0; i < tokens; ++i) prompt[i] = i;
    return prompt;
  }
  // "session/sequence" of each row.
  std::vector<std::string> Names(std::optional<SessionId> only, SequenceKey from, size_t limit) {
    std::vector<std::string> names;
    for (const SequenceRow& row : core_->lists().Sequences(only, from, limit)) {
      names.push_back(absl::StrCat(row.session.value(), "/", row.sequence.value()));
    }
    return names;
  }

  absl::Time now_ = absl::UnixEpoch() + absl::Hours(1);
  std::unique_ptr<BlockManager> core_ = MakeCore(16, kBlockTokens);
};

TEST_F(ListsTest, ASessionShowsWhatItHas) {
  const SessionRef ref = Open("engine-0");
  Add(ref.id, 1, 6);
  BlockHandle block;
  ASSERT_TRUE(core_->raw_blocks().AllocateBlocks(ref.id, kFullAttention, {&block, 1}, now_).ok());
  ASSERT_TRUE(core_->BeginBatch(ref.id, {.step = 7, .completed_step = 5}, now_).ok());
  ASSERT_TRUE(core_->sequences().FreeSequence(ref.id, SequenceId{1}, now_).ok());
  Add(ref.id, 2, 3);

  const std::vector<SessionRow> rows = core_->lists().Sessions({}, 10, now_ + absl::Seconds(3));
  ASSERT_THAT(rows, SizeIs(1));
  const SessionRow& row = rows[0];
  EXPECT_EQ(row.session, ref.id);
  EXPECT_EQ(row.client_name, "engine-0");
  EXPECT_EQ(row.opened, now_);
  EXPECT_EQ(row.lease, kLease);
  EXPECT_EQ(row.lease_left, kLease - absl::Seconds(3));
  EXPECT_EQ(row.streams, 0u);
  EXPECT_EQ(row.sequences, 1u);
  EXPECT_EQ(row.raw_blocks, 1u);
  EXPECT_EQ(row.deferred_blocks, 2u);
  EXPECT_EQ(row.step, 7u);
  EXPECT_EQ(row.completed_step, 5u);
}

TEST_F(ListsTest, AStreamHoldsTheLease) {
  const SessionRef ref = Open("engine-0");
  ASSERT_TRUE(core_->AttachStream(ref).ok());
  const std::vector<SessionRow> rows = core_->lists().Sessions({}, 10, now_);
  EXPECT_EQ(rows[0].lease_left, std::nullopt);
  EXPECT_EQ(rows[0].streams, 1u);
  // A session that has not been expired yet has nothing left, and never less.
  core_->DetachStream(ref.id, now_);
  EXPECT_EQ(core_->lists().Sessions({}, 10, now_ + 2 * kLease)[0].lease_left, absl::ZeroDuration());
}

TEST_F(ListsTest, SessionsComeInPages) {
  const SessionRef first = Open("a"), second = Open("b"), third = Open("c");
  EXPECT_THAT(core_->lists().Sessions({}, 2, now_), SizeIs(2));
  ASSERT_TRUE(core_->endings().CloseSession(second, now_).ok());
  const std::vector<SessionRow> rest = core_->lists().Sessions(second.id, 2, now_);
  ASSERT_THAT(rest, SizeIs(1)) << "a page may begin at a session that is gone";
  EXPECT_EQ(rest[0].session, third.id);
  EXPECT_EQ(core_->lists().Sessions({}, 1, now_)[0].session, first.id);
}

TEST_F(ListsTest, SequencesComeInPagesAcrossSessions) {
  const SessionId first = Open("a").id, idle = Open("b").id, third = Open("c").id;
  for (const uint64_t sequence : {0, 9, 5}) Add(first, sequence, 1);
  for (const uint64_t sequence : {2, 1}) Add(third, sequence, 1);
  EXPECT_THAT(Names({}, {}, 100), ElementsAre("1/0", "1/5", "1/9", "3/1", "3/2"));
  EXPECT_THAT(Names({}, {}, 2), ElementsAre("1/0", "1/5"));
  EXPECT_THAT(Names({}, {first, SequenceId{6}}, 2), ElementsAre("1/9", "3/1"));
  EXPECT_THAT(Names({}, {third, SequenceId{2}}, 2), ElementsAre("3/2"));
  EXPECT_THAT(Names({}, {SessionId{4}, {}}, 2), IsEmpty());
  EXPECT_THAT(Names(first, {}, 100), ElementsAre("1/0", "1/5", "1/9"));
  EXPECT_THAT(Names(first, {first, SequenceId{5}}, 1), ElementsAre("1/5"));
  EXPECT_THAT(Names(third, {}, 1), ElementsAre("3/1"));
  EXPECT_THAT(Names(idle, {}, 100), IsEmpty());
  EXPECT_THAT(Names(SessionId{77}, {}, 100), IsEmpty());
}

TEST_F(ListsTest, ASequenceShowsWhatWasMatchedAndWhatItHolds) {
  const SessionId session = Open("engine-0").id;
  Add(session, 1, 8);
  Commit(session, 1, 8);
  Add(session, 2, 10);
  ASSERT_TRUE(core_->sequences().ReserveTokens(session, SequenceId{2}, 3, now_).ok());
  Commit(session, 2, 9);
  ASSERT_TRUE(core_->sequences().ForkSequence(session, SequenceId{2}, SequenceId{3}, now_).ok());

  const std::vector<SequenceRow> rows = core_->lists().Sequences({}, {}, 10);
  ASSERT_THAT(rows, SizeIs(3));
  EXPECT_EQ(rows[0].matched_tokens, 0u);
  EXPECT_EQ(rows[1].client_name, "engine-0");
  EXPECT_EQ(rows[1].matched_tokens, 8u);
  EXPECT_EQ(rows[1].token_count, 10u);
  EXPECT_EQ(rows[1].computed_tokens, 9u);
  EXPECT_EQ(rows[1].reserved_tokens, 13u);
  EXPECT_EQ(rows[1].blocks, 4u);
  EXPECT_EQ(rows[1].losses, 0u);
  EXPECT_EQ(rows[2].matched_tokens, 8u);
  EXPECT_EQ(rows[2].blocks, 3u);
}

TEST_F(ListsTest, APrefixShowsItsBlocksAndWhoHoldsThem) {
  const SessionId session = Open("engine-0").id;
  Add(session, 1, 10);
  Commit(session, 1, 10);
  ASSERT_TRUE(core_->sequences().FreeSequence(session, SequenceId{1}, now_).ok());
  ASSERT_TRUE(
      core_->prefixes().Pin(session, PromptOf({}, Prompt(4)), absl::InfiniteDuration(), now_).ok());
  Add(session, 2, 6);  // Holds the first block, and a copy of half of the second.
  const std::vector<RetentionRange> ranges = {
      {.token_start = 4, .token_end = {}, .retention = {.priority = Priority{80}}}};
  ASSERT_TRUE(core_->prefixes()
                  .SetRetention(PromptOf({}, Prompt(10)), {.ranges = ranges, .generated = {}}, now_)
                  .ok());

  const auto prefix = core_->lists().InspectPrefix(PromptOf({}, Prompt(9)));
  ASSERT_TRUE(prefix.ok());
  EXPECT_EQ(prefix->matched_tokens, 9u);
  ASSERT_THAT(prefix->blocks, SizeIs(3));
  EXPECT_EQ(prefix->blocks[0].holders, 2u);
  EXPECT_TRUE(prefix->blocks[0].pinned);
  EXPECT_EQ(prefix->blocks[0].priority, kDefaultPriority);
  EXPECT_EQ(prefix->blocks[1].token_start, 4u);
  EXPECT_EQ(prefix->blocks[1].token_count, 4u);
  EXPECT_EQ(prefix->blocks[1].holders, 0u);
  EXPECT_FALSE(prefix->blocks[1].pinned);
  EXPECT_EQ(prefix->blocks[1].priority, Priority{80});
  EXPECT_EQ(prefix->blocks[2].token_start, 8u);
  EXPECT_EQ(prefix->blocks[2].token_count, 1u) << "one of the tail's two tokens is the prompt's";
  // The tree says the same of ids and hashes.
  std::map<BlockId, BlockHash> hashes;
  for (const TreeEntry& entry : core_->DumpTree(kFullAttention)) hashes[entry.id] = entry.hash;
  for (const InspectedBlock& block : prefix->blocks) EXPECT_EQ(block.hash, hashes[block.block.id]);
}

TEST_F(ListsTest, APrefixNeedsATokenAndAGoodNamespace) {
  EXPECT_EQ(ReasonOf(core_->lists().InspectPrefix(PromptOf({}, {})).status()),
            Reason::kInvalidCount);
  EXPECT_EQ(ReasonOf(core_->lists()
                         .InspectPrefix(PromptOf({.cache_salt = std::string(257, 's')}, Prompt(1)))
                         .status()),
            Reason::kInvalidArgument);
  const auto prefix = core_->lists().InspectPrefix(PromptOf({}, Prompt(9)));
  EXPECT_EQ(prefix->matched_tokens, 0u);
  EXPECT_THAT(prefix->blocks, IsEmpty());
}

TEST(InspectTiersTest, ABlockThatCameUpHasItsCopyBelow) {
  auto core = *BlockManager::Create(
      {.layout = TinyLayout(kBlockTokens), .tiers = HostTiers({4}, {4}), .epoch = Epoch{1}});
  const absl::Time now = absl::UnixEpoch();
  const SessionId session = core->OpenSession("test", absl::InfiniteDuration(), now)->ref.id;
  const std::vector<TokenId> prompt = {1, 2, 3, 4, 5, 6, 7, 8};
  ASSERT_TRUE(
      core->sequences().AddSequence(session, SequenceId{1}, PromptOf({}, prompt), now).ok());
  ASSERT_TRUE(core->sequences().CommitTokens(session, SequenceId{1}, {}, 8, now).ok());
  ASSERT_TRUE(core->sequences().FreeSequence(session, SequenceId{1}, now).ok());
  ASSERT_TRUE(core->Execute(session, OffloadPrefix{.tokens = prompt}, now).ok());
  const std::vector<TokenId> first(prompt.begin(), prompt.begin() + kBlockTokens);
  ASSERT_TRUE(core->Execute(session, PrefetchPrefix{.tokens = first}, now).ok());

  const auto prefix = core->lists().InspectPrefix(PromptOf({}, prompt));
  ASSERT_TRUE(prefix.ok());
  ASSERT_THAT(prefix->blocks, SizeIs(2));
  EXPECT_EQ(prefix->blocks[0].tier, kPrimaryTier);
  EXPECT_EQ(prefix->blocks[0].lower, TierSet::FromBits(0b10));
  EXPECT_EQ(prefix->blocks[1].tier, Tier(1));
  EXPECT_TRUE(prefix->blocks[1].lower.empty());
  core->CheckInvariants();
}

TEST(InspectWindowsTest, BlocksBehindTheMatchAreListedAndHolesAreNot) {
  // A sliding window of 4 tokens beside full attention, so that the windows keep different blocks.
  auto core = *BlockManager::Create(
      {.layout = *CacheLayout::Create(
           {.name = "test",
            .tokens_per_block = 2,
            .layers = {{.num_kv_heads = 1, .head_dim = 1},
                       {.window = WindowSize{4}, .num_kv_heads = 1, .head_dim = 1}}}),
       .tiers = HostTiers({5, 16}),
       .epoch = Epoch{1}});
  const absl::Time now = absl::UnixEpoch();
  const SessionId session = core->OpenSession("test", absl::InfiniteDuration(), now)->ref.id;
  const std::vector<TokenId> prompt = {1, 2, 3, 4, 5, 6, 7, 8};
  ASSERT_TRUE(
      core->sequences().AddSequence(session, SequenceId{1}, PromptOf({}, prompt), now).ok());
  ASSERT_TRUE(core->sequences().CommitTokens(session, SequenceId{1}, {}, 8, now).ok());
  // The sliding window needs three raw blocks, so the blocks that it has passed leave.
  std::vector<BlockHandle> raw(3);
  ASSERT_TRUE(
      core->raw_blocks().AllocateBlocks(session, WindowSize{4}, absl::MakeSpan(raw), now).ok());

  const auto whole = core->lists().InspectPrefix(PromptOf({}, prompt));
  ASSERT_TRUE(whole.ok());
  EXPECT_EQ(whole->matched_tokens, 8u);
  const auto half = core->lists().InspectPrefix(PromptOf({}, absl::MakeConstSpan(prompt).first(4)));
  EXPECT_EQ(half->matched_tokens, 0u) << "the sliding window has nothing of it";
  std::vector<WindowSize> windows;
  for (const InspectedBlock& block : half->blocks) windows.push_back(block.window);
  EXPECT_THAT(windows, ElementsAre(kFullAttention, kFullAttention));
  core->CheckInvariants();
}

}  // namespace
}  // namespace pagoda
