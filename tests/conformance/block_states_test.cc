// What a client declares about its raw blocks, and what it is told about its blocks.
#include "base/error.h"
#include "tests/conformance/conformance.h"

namespace pagoda {
namespace {

class BlockStatesTest : public ConformanceTest {
 protected:
  std::vector<BlockRef> Allocate(uint32_t count, WindowSize window = kFullAttention) {
    const auto taken = Run(AllocateBlocks{.window = window, .count = count});
    EXPECT_TRUE(taken.ok()) << taken.status();
    std::vector<BlockRef> refs;
    for (const BlockHandle& block : taken->blocks) refs.push_back(block.ref());
    return refs;
  }
  BlockMetadata Describe(const BlockRef& ref, WindowSize window = kFullAttention) {
    const auto described = Run(DescribeBlocks{.window = window, .blocks = {ref}});
    EXPECT_TRUE(described.ok()) << described.status();
    return described.ok() ? described->blocks.at(0) : BlockMetadata{};
  }
};

TEST_F(BlockStatesTest, ARawBlockIsFilledAndThenFinalized) {
  Make(4, 4);
  const std::vector<BlockRef> raw = Allocate(2);
  EXPECT_EQ(Describe(raw[0]), (BlockMetadata{.holders = 1}));
  ASSERT_TRUE(Run(FillBlocks{.blocks = {{raw[0], 3}, {raw[1], 0}}}).ok());
  EXPECT_EQ(Describe(raw[0]), (BlockMetadata{.holders = 1, .filled_tokens = 3}));
  ASSERT_TRUE(Run(FillBlocks{.blocks = {{raw[0], 3}}}).ok()) << "the same again";
  ASSERT_TRUE(Run(FillBlocks{.blocks = {{raw[0], 4, BlockFill::End::kFinal}}}).ok());
  const BlockMetadata full = {.holders = 1, .filled_tokens = 4, .finalized = true};
  EXPECT_EQ(Describe(raw[0]), full);
  EXPECT_EQ(Describe(raw[1]), (BlockMetadata{.holders = 1})) << "and no other one";
}

TEST_F(BlockStatesTest, NothingIsWrittenIntoAFinalizedBlock) {
  Make(4, 4);
  const std::vector<BlockRef> raw = Allocate(2);
  // A client may also end a block that is not full.
  ASSERT_TRUE(Run(FillBlocks{.blocks = {{raw[0], 2, BlockFill::End::kFinal}}}).ok());
  for (const uint32_t tokens : {2, 3}) {
    ExpectRefused(Reason::kBlockFinalized, FillBlocks{.blocks = {{raw[1], 4}, {raw[0], tokens}}});
  }
  EXPECT_EQ(Describe(raw[1]).filled_tokens, 0u) << "all or nothing";
  // The next use of the block begins open and empty.
  ASSERT_TRUE(Run(FreeBlocks{.blocks = raw}).ok());
  for (const BlockRef& again : Allocate(4)) EXPECT_EQ(Describe(again), (BlockMetadata{1}));
}

TEST_F(BlockStatesTest, FillsNameTheirReasons) {
  Make(4, 4);
  const std::vector<BlockRef> raw = Allocate(2);
  ASSERT_TRUE(Run(FillBlocks{.blocks = {{raw[0], 2}}}).ok());
  ExpectRefused(Reason::kComputedBackwards, FillBlocks{.blocks = {{raw[0], 1}}});
  ExpectRefused(Reason::kInvalidCount, FillBlocks{.blocks = {{raw[0], 5}}});
  ExpectRefused(Reason::kInvalidCount, FillBlocks{});
  ExpectRefused(Reason::kUnknownWindow,
                FillBlocks{.window = WindowSize{7}, .blocks = {{raw[0], 3}}});
  ExpectRefused(Reason::kUnknownBlock, FillBlocks{.blocks = {{{BlockId{99}, Generation{1}}, 1}}});
  ExpectRefused(Reason::kDoubleFree, FillBlocks{.blocks = {{raw[0], 3}, {raw[0], 4}}});
  Add(1, {5, 6});
  ExpectRefused(Reason::kForeignBlock, FillBlocks{.blocks = {{Table(1).at(0).ref(), 1}}});
  const SessionId other = core_->OpenSession("other", absl::InfiniteDuration(), now_)->ref.id;
  EXPECT_EQ(ReasonOf(Run(other, FillBlocks{.blocks = {{raw[0], 3}}}).status()),
            Reason::kForeignBlock);
  ASSERT_TRUE(Run(FreeBlocks{.blocks = {raw[0]}}).ok());
  ExpectRefused(Reason::kDoubleFree, FillBlocks{.blocks = {{raw[0], 3}}});
  Allocate(1);
  ExpectRefused(Reason::kStaleHandle, FillBlocks{.blocks = {{raw[0], 3}}});
  EXPECT_EQ(Describe(raw[1]).filled_tokens, 0u);
}

TEST_F(BlockStatesTest, ABlockOfASequenceFillsAndIsCached) {
  Make(4, 8);
  Add(1, Range(0, 9));
  const std::vector<BlockHandle> table = Table(1);
  EXPECT_EQ(Describe(table[0].ref()), (BlockMetadata{.holders = 1}));
  Compute(1, 6);
  const BlockMetadata full = {.holders = 1, .filled_tokens = 4, .finalized = true, .cached = true};
  EXPECT_EQ(Describe(table[0].ref()), full);
  EXPECT_EQ(Describe(table[1].ref()), (BlockMetadata{.holders = 1, .filled_tokens = 2}));
  EXPECT_EQ(Describe(table[2].ref()), (BlockMetadata{.holders = 1}));
  // A cut makes the block writable again.
  Compute(1, 8);
  EXPECT_TRUE(Describe(table[1].ref()).finalized);
  Truncate(1, 5);
  EXPECT_EQ(Describe(Table(1).at(1).ref()), (BlockMetadata{.holders = 1, .filled_tokens = 1}));
}

TEST_F(BlockStatesTest, HoldersAreSequences) {
  Make(4, 8);
  Add(1, Range(0, 8));
  Compute(1, 8);
  Add(2, Range(0, 8));
  Fork(1, 3);
  const BlockRef shared = Table(1).at(0).ref();
  EXPECT_EQ(Describe(shared).holders, 3u);
  const auto pin = Run(PinPrefix{.tokens = Range(0, 7)});
  ASSERT_TRUE(pin.ok() && pin->pin != PinId{0});
  EXPECT_EQ(Describe(shared).holders, 3u) << "a pin is no sequence";
  ASSERT_TRUE(core_->BeginBatch(session_, {.step = 1}, now_).ok());
  Free(2);
  EXPECT_EQ(Describe(shared).holders, 2u) << "nor is a release that waits for its step";
  // Also those of another session.
  const SessionId other = core_->OpenSession("other", absl::InfiniteDuration(), now_)->ref.id;
  ASSERT_TRUE(Run(other, AddSequence{.sequence = SequenceId{9}, .tokens = Range(0, 8)}).ok());
  EXPECT_EQ(Describe(shared).holders, 3u);
  ASSERT_TRUE(core_->BeginBatch(session_, {.step = 2, .completed_step = 1}, now_).ok());
  ASSERT_TRUE(Run(UnpinPrefix{.pin = pin->pin}).ok());
}

// The fork has computed less of the block that it shares than its original computes later.
TEST_F(BlockStatesTest, ASharedTailIsAsFullAsItsFullestSequence) {
  Make(4, 8);
  Add(5, Range(0, 3));
  Compute(5, 2);
  Fork(5, 2);
  Compute(5, 3);
  const BlockRef tail = Table(5).at(0).ref();
  ASSERT_EQ(Table(2).at(0).ref(), tail);
  EXPECT_EQ(Describe(tail), (BlockMetadata{.holders = 2, .filled_tokens = 3}));
}

TEST_F(BlockStatesTest, AResetEndsTheCachingButNotTheFill) {
  Make(4, 8);
  Add(1, Range(0, 8));
  Compute(1, 8);
  const BlockRef block = Table(1).at(0).ref();
  core_->ResetPrefixCache(now_);
  Maintain();
  EXPECT_EQ(Describe(block), (BlockMetadata{.holders = 1, .filled_tokens = 4, .finalized = true}));
}

TEST_F(BlockStatesTest, DescriptionsNameTheirReasons) {
  Make(4, 8);
  Serve(1, Range(0, 7));
  const auto cached = Run(MatchPrefix{.tokens = Range(0, 8)});
  ASSERT_EQ(cached->blocks.size(), 2u);
  ExpectRefused(Reason::kForeignBlock, DescribeBlocks{.blocks = {cached->blocks[0].ref()}});
  const std::vector<BlockRef> raw = Allocate(1);
  const auto twice = Run(DescribeBlocks{.blocks = {raw[0], raw[0]}});
  ASSERT_TRUE(twice.ok());
  EXPECT_EQ(twice->blocks.at(0), twice->blocks.at(1));
  const SessionId other = core_->OpenSession("other", absl::InfiniteDuration(), now_)->ref.id;
  EXPECT_EQ(ReasonOf(Run(other, DescribeBlocks{.blocks = raw}).status()), Reason::kForeignBlock);
  ExpectRefused(Reason::kForeignBlock, DescribeBlocks{.blocks = {raw[0], cached->blocks[1].ref()}});
  ExpectRefused(Reason::kInvalidCount, DescribeBlocks{});
  ExpectRefused(Reason::kUnknownWindow, DescribeBlocks{.window = WindowSize{7}, .blocks = raw});
  ExpectRefused(Reason::kUnknownBlock, DescribeBlocks{.blocks = {{BlockId{99}, Generation{1}}}});
  ASSERT_TRUE(Run(FreeBlocks{.blocks = raw}).ok());
  ExpectRefused(Reason::kStaleHandle, DescribeBlocks{.blocks = raw});
}

TEST_F(BlockStatesTest, TheFillOutlivesOtherOperationsAndEndsInAStepWithItsBlock) {
  Make(4, 4);
  const std::vector<BlockRef> raw = Allocate(1);
  ASSERT_TRUE(Run(FillBlocks{.blocks = {{raw[0], 4, BlockFill::End::kFinal}}}).ok());
  Serve(1, Range(0, 11));
  core_->ResetPrefixCache(now_);
  Maintain();
  Serve(2, Range(20, 31));
  EXPECT_TRUE(Describe(raw[0]).finalized);
  ASSERT_TRUE(core_->BeginBatch(session_, {.step = 1}, now_).ok());
  ASSERT_TRUE(Run(FreeBlocks{.blocks = raw}).ok());
  ExpectRefused(Reason::kStaleHandle, DescribeBlocks{.blocks = raw});
  ExpectRefused(Reason::kDoubleFree, FillBlocks{.blocks = {{raw[0], 4}}});
  ASSERT_TRUE(core_->BeginBatch(session_, {.step = 2, .completed_step = 1}, now_).ok());
}

TEST_F(BlockStatesTest, NeitherCallRecordsAnEvent) {
  Make(4, 4);
  const std::vector<BlockRef> raw = Allocate(1);
  Add(1, Range(0, 4));
  Compute(1, 4);
  const Revision before = core_->revision();
  ASSERT_TRUE(Run(FillBlocks{.blocks = {{raw[0], 4, BlockFill::End::kFinal}}}).ok());
  Describe(raw[0]);
  Describe(Table(1).at(0).ref());
  EXPECT_EQ(core_->revision(), before);
}

TEST_F(BlockStatesTest, WindowsAreApart) {
  constexpr WindowSize kSliding{4};
  Make({.tokens_per_block = 2, .windows = {{.window = kSliding, .primary = 8}, {.primary = 8}}});
  const std::vector<BlockRef> raw = Allocate(1, kSliding);
  ASSERT_TRUE(Run(FillBlocks{.window = kSliding, .blocks = {{raw[0], 2}}}).ok());
  EXPECT_EQ(Describe(raw[0], kSliding).filled_tokens, 2u);
  EXPECT_FALSE(Run(DescribeBlocks{.blocks = raw}).ok());
}

}  // namespace
}  // namespace pagoda
