// The basics of every paged cache: block tables and token slots, counts, and the moments at which
// blocks are taken and released.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "manager/shared_manager.h"
#include "pools/layout.h"
#include "tests/conformance/conformance.h"
#include "tests/manager/fixtures/host_tiers.h"

namespace pagoda {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

class ClassicTest : public ConformanceTest {
 protected:
  std::vector<uint32_t> SlotsOf(uint64_t id) {
    std::vector<uint32_t> slots;
    for (const BlockHandle& block : Table(id)) slots.push_back(block.slot.value());
    return slots;
  }
};

// --- Tables and token slots ---

TEST_F(ClassicTest, ATokenLivesInItsEntryAtItsOffset) {
  constexpr TokensPerBlock kSixteen(16);
  EXPECT_EQ(kSixteen.value(), 16u);
  EXPECT_EQ(kSixteen.BlocksFor(73), 5u);
  EXPECT_EQ(kSixteen.BlocksFor(64), 4u);
  EXPECT_EQ(kSixteen.BlocksFor(65), 5u);
  EXPECT_EQ(kSixteen.BlocksFor(0), 0u);
  for (uint32_t token = 0; token < 73; ++token) {
    EXPECT_EQ(kSixteen.BlockForToken(token), token / 16);
    EXPECT_EQ(kSixteen.OffsetInBlock(token), token % 16);
  }
  constexpr TokensPerBlock kOne(1);
  EXPECT_EQ(kOne.BlockForToken(7), 7u);
  EXPECT_EQ(kOne.OffsetInBlock(7), 0u);
}

TEST_F(ClassicTest, SeventyThreeTokensHoldFiveBlocksOfSixteen) {
  Make(16, 8);
  Add(1, Range(0, 72));
  EXPECT_THAT(Table(1), SizeIs(5));
  EXPECT_EQ(Used(), 5u);
  EXPECT_EQ(Primary().free, 3u);
  // slot * tokens_per_block + offset: no two tokens share a token slot.
  std::set<uint64_t> token_slots;
  const TokensPerBlock tokens_per_block(core_->info().tokens_per_block);
  const BlockTable table = Describe(1).tables.at(0);
  for (uint32_t token = 0; token < 73; ++token) {
    const BlockHandle block = table.BlockForToken(token, tokens_per_block);
    EXPECT_EQ(block, Table(1).at(token / 16));
    token_slots.insert(uint64_t{block.slot.value()} * 16 + tokens_per_block.OffsetInBlock(token));
  }
  EXPECT_THAT(token_slots, SizeIs(73));
  EXPECT_EQ(table.BlockForToken(80, tokens_per_block).id, kNoBlock);
}

TEST_F(ClassicTest, AfterThePrefillASequenceIsAsLongAsItsPrompt) {
  Make(4, 8);
  Add(1, Range(0, 6));
  EXPECT_EQ(Describe(1).token_count, 7u);
  EXPECT_EQ(Describe(1).computed_tokens, 0u);
  Compute(1, 7);
  EXPECT_EQ(Describe(1).token_count, 7u) << "not one more";
  EXPECT_EQ(Describe(1).computed_tokens, 7u);
  EXPECT_EQ(Append(1, {7}).token_count, 8u);
}

TEST_F(ClassicTest, AFreshPoolHandsOutSlotsInAscendingOrder) {
  Make(4, 8);
  Add(1, Range(0, 15));
  EXPECT_THAT(SlotsOf(1), ElementsAre(0, 1, 2, 3));
  const auto raw = Run(AllocateBlocks{.count = 2});
  EXPECT_EQ(raw->blocks.at(0).slot, SlotIndex{4});
  EXPECT_EQ(raw->blocks.at(1).slot, SlotIndex{5});
  Append(1, {16});
  EXPECT_THAT(SlotsOf(1), ElementsAre(0, 1, 2, 3, 6));
}

// --- When blocks are taken ---

TEST_F(ClassicTest, ABlockIsTakenOnlyWhenABoundaryIsCrossed) {
  Make(4, 8);
  Add(1, {0});
  for (uint32_t tokens = 2; tokens <= 20; ++tokens) {
    const AppendedTokens appended = Append(1, {tokens});
    ASSERT_THAT(appended.added, SizeIs(1));
    const size_t expected = tokens % 4 == 1 ? 1 : 0;
    EXPECT_THAT(appended.added.at(0).blocks, SizeIs(expected)) << tokens;
    if (expected == 1) {
      EXPECT_EQ(appended.added.at(0).first_block, tokens / 4) << tokens;
    }
    EXPECT_EQ(Used(), (tokens + 3) / 4);
  }
}

TEST_F(ClassicTest, APromptThatDoesNotFitIsRefusedWhole) {
  Make(4, 4);
  Add(1, Range(0, 7));
  ExpectRefused(Reason::kBlocksExhausted,
                AddSequence{.sequence = SequenceId{2}, .tokens = Range(10, 18)});
  ExpectRefused(Reason::kInvalidCount,
                AddSequence{.sequence = SequenceId{2}, .tokens = Range(10, 26)});
  EXPECT_EQ(Add(2, Range(10, 17)), 0u);
}

TEST_F(ClassicTest, AnAppendThatDoesNotFitIsRefusedWhole) {
  Make(4, 3);
  Add(1, Range(0, 7));
  Add(2, Range(10, 13));
  ExpectRefused(Reason::kBlocksExhausted,
                AppendTokens{.sequence = SequenceId{1}, .tokens = {8}, .computed_tokens = 8});
  ExpectRefused(Reason::kBlocksExhausted, ReserveTokens{.sequence = SequenceId{1}, .count = 1});
  EXPECT_EQ(Describe(1).computed_tokens, 0u);
  Free(2);
  EXPECT_EQ(Append(1, {8}).token_count, 9u);
}

TEST_F(ClassicTest, RawBlocksAreTakenAllOrNone) {
  Make(4, 4);
  Add(1, {0});
  ExpectRefused(Reason::kBlocksExhausted, AllocateBlocks{.count = 4});
  ExpectRefused(Reason::kInvalidCount, AllocateBlocks{.count = 5});
  ExpectRefused(Reason::kInvalidCount, AllocateBlocks{.count = 0});
  ExpectRefused(Reason::kUnknownWindow, AllocateBlocks{.window = WindowSize{7}, .count = 1});
  const auto raw = Run(AllocateBlocks{.count = 3});
  ASSERT_TRUE(raw.ok());
  EXPECT_EQ(Used(), 4u);
  // The same for a release: one foreign block refuses all of them.
  ExpectRefused(Reason::kForeignBlock,
                FreeBlocks{.blocks = {raw->blocks.at(0).ref(), Table(1).at(0).ref()}});
  ExpectRefused(Reason::kDoubleFree,
                FreeBlocks{.blocks = {raw->blocks.at(0).ref(), raw->blocks.at(0).ref()}});
  ExpectRefused(Reason::kUnknownBlock, FreeBlocks{.blocks = {{BlockId{99}, Generation{1}}}});
  ASSERT_TRUE(Run(FreeBlocks{.blocks = {raw->blocks.at(0).ref()}}).ok());
  ExpectRefused(Reason::kDoubleFree, FreeBlocks{.blocks = {raw->blocks.at(0).ref()}});
  Append(1, {1, 2, 3, 4});  // The block is used again.
  ExpectRefused(Reason::kStaleHandle, FreeBlocks{.blocks = {raw->blocks.at(0).ref()}});
}

// --- Reference counts ---

TEST_F(ClassicTest, ASharedBlockIsHeldUntilItsLastUserHasGone) {
  Make(4, 4);
  Add(1, Range(0, 8));
  Compute(1, 9);
  EXPECT_EQ(Add(2, Range(0, 7) + Tokens{50}), 8u);
  EXPECT_EQ(Used(), 4u);
  Free(1);
  EXPECT_EQ(Used(), 3u);
  ExpectRefused(Reason::kBlocksExhausted,
                AddSequence{.sequence = SequenceId{3}, .tokens = Range(100, 107)});
  Free(2);
  EXPECT_EQ(Used(), 0u);
  EXPECT_EQ(Add(3, Range(100, 107)), 0u);
}

TEST_F(ClassicTest, AllHoldersOfABlockCount) {
  Make(4, 4);
  Serve(1, Range(0, 3));
  Add(2, Range(0, 4));
  Add(3, Range(0, 4));
  Fork(2, 4);
  const auto pin = Run(PinPrefix{.tokens = Range(0, 3)});
  ASSERT_TRUE(pin.ok());
  for (const uint64_t id : {2, 3, 4}) {
    EXPECT_EQ(Primary().cached, 0u);
    Free(id);
  }
  EXPECT_EQ(Primary().cached, 0u);
  ASSERT_TRUE(Run(UnpinPrefix{.pin = pin->pin}).ok());
  EXPECT_EQ(Primary().cached, 1u);
  EXPECT_EQ(Primary().free, 3u);
}

// --- Cached blocks ---

// A full block that is cached is shared by everyone. Whatever its sequence does, it is told to
// write other entries.
TEST_F(ClassicTest, ACachedBlockIsNeverHandedOutForWriting) {
  Make(4, 8);
  Add(1, Range(0, 7));
  Compute(1, 8);
  Add(2, Range(0, 8));
  const std::vector<BlockHandle> shared = Table(1);
  const auto is_shared = [&](const BlockHandle& block) {
    return block.slot == shared[0].slot || block.slot == shared[1].slot;
  };
  const auto writable = [](const std::vector<BlockTable>& tables) { return tables[0].blocks; };
  for (const BlockHandle& block : writable(Append(1, {8}).added)) EXPECT_FALSE(is_shared(block));
  const auto reserved = Run(ReserveTokens{.sequence = SequenceId{1}, .count = 8});
  for (const BlockHandle& block : writable(reserved->added)) EXPECT_FALSE(is_shared(block));
  // A sequence that continues inside it gets a copy.
  const TruncatedSequence truncated = Truncate(1, 6);
  EXPECT_EQ(truncated.tables.at(0).first_block, 1u);
  for (const BlockHandle& block : truncated.tables.at(0).blocks) EXPECT_FALSE(is_shared(block));
  EXPECT_EQ(Table(2).at(1), shared[1]);
  // It cannot be declared not computed either, nor freed by id.
  ExpectRefused(Reason::kComputedBackwards,
                CommitTokens{.sequence = SequenceId{2}, .computed_tokens = 7});
  ExpectRefused(Reason::kForeignBlock, FreeBlocks{.blocks = {shared[0].ref()}});
}

TEST_F(ClassicTest, AHeldBlockIsNeverAVictim) {
  Make(4, 4);
  Add(1, Range(0, 7));
  Compute(1, 8);
  const std::vector<BlockHandle> table = Table(1);
  for (uint64_t id = 2; id < 20; ++id) {
    const TokenId first = static_cast<TokenId>(100 * id);
    Serve(id, Range(first, first + 7));
    ASSERT_EQ(Table(1), table);
  }
}

// --- Through a client ---

TEST_F(ClassicTest, AClientSeesTheSame) {
  EventLog log({});
  SharedManager manager(
      *BlockManager::Create(
          {.layout = *CacheLayout::Create(
               {.tokens_per_block = 16, .layers = {{.num_kv_heads = 1, .head_dim = 1}}}),
           .tiers = HostTiers({8}),
           .epoch = Epoch{1}}),
      &log);
  const auto client = OpenLocalCacheClient(&manager, "test");
  ASSERT_TRUE(client.ok());
  const auto added = RunOne<AddedSequence>(
      **client, AddSequence{.sequence = SequenceId{1}, .tokens = Range(0, 72)});
  ASSERT_TRUE(added.ok());
  EXPECT_EQ(added->matched_tokens, 0u);
  EXPECT_EQ(added->ready, Ticket{});
  ASSERT_THAT(added->tables, SizeIs(1));
  EXPECT_EQ(added->tables.at(0).first_block, 0u);
  EXPECT_THAT(added->tables.at(0).blocks, SizeIs(5));
  const auto described =
      RunOne<DescribedSequence>(**client, DescribeSequence{.sequence = SequenceId{1}});
  ASSERT_TRUE(described.ok());
  EXPECT_EQ(described->tables, added->tables);
  EXPECT_EQ(described->reserved_tokens, 73u);
}

// --- Layouts ---

LayerSpec Layer(uint32_t heads, uint32_t head_dim, KvKind kind = KvKind::kKeyAndValue) {
  return {.num_kv_heads = heads, .head_dim = head_dim, .dtype = DType::kBFloat16, .kind = kind};
}

// Scenario 27. Peers order pools by their number of heads, and an entry of a block table counts
// fields. Here pools are in the order of their first layers, and a slot index is the same in each.
TEST_F(ClassicTest, LayersWithEqualHeadsShareAPool) {
  const auto layout = CacheLayout::Create(
      {.tokens_per_block = 64, .layers = {Layer(3, 64), Layer(2, 64), Layer(1, 64), Layer(2, 64)}});
  ASSERT_TRUE(layout.ok());
  ASSERT_THAT(layout->windows(), SizeIs(1));
  const std::vector<PoolLayout>& pools = layout->windows()[0].pools;
  ASSERT_THAT(pools, SizeIs(3));
  EXPECT_THAT(pools[0].layers, ElementsAre(0));
  EXPECT_THAT(pools[1].layers, ElementsAre(1, 3));
  EXPECT_THAT(pools[2].layers, ElementsAre(2));
  uint64_t block_bytes = 0;
  for (const PoolLayout& pool : pools) {
    const uint64_t elements = uint64_t{pool.num_kv_heads} * 64 * 64;  // One layer's K of a block.
    EXPECT_EQ(pool.kv_stride_bytes(), elements * 2);
    EXPECT_EQ(pool.layer_stride_bytes(), 2 * elements * 2) << "V follows K";
    EXPECT_EQ(pool.slot_stride_bytes(), 2 * pool.layers.size() * elements * 2);
    block_bytes += pool.slot_stride_bytes();
  }
  EXPECT_EQ(layout->windows()[0].block_bytes(), block_bytes);
}

TEST_F(ClassicTest, LayersOfDifferentHeadDimsDoNotShareAPool) {
  const auto layout =
      CacheLayout::Create({.layers = {Layer(2, 128), Layer(4, 64), Layer(2, 64), Layer(4, 64)}});
  ASSERT_TRUE(layout.ok());
  const std::vector<PoolLayout>& pools = layout->windows()[0].pools;
  ASSERT_THAT(pools, SizeIs(3));
  EXPECT_THAT(pools[1].layers, ElementsAre(1, 3));
}

// Latent attention (MLA) keeps one vector for each token, and no values.
TEST_F(ClassicTest, AKeyOnlyPoolHasHalfTheFactor) {
  const auto layout = CacheLayout::Create(
      {.tokens_per_block = 64,
       .layers = {Layer(1, 576, KvKind::kKeyOnly), Layer(1, 576, KvKind::kKeyOnly)}});
  ASSERT_TRUE(layout.ok());
  const PoolLayout& pool = layout->windows()[0].pools[0];
  EXPECT_EQ(pool.kv_factor, 1u);
  EXPECT_EQ(pool.layer_stride_bytes(), pool.kv_stride_bytes());
  EXPECT_EQ(pool.slot_stride_bytes(), 2u * 64 * 576 * 2);
}

// Scenario 28. Peers have scales of 16 elements for NVFP4; here each scale is for a block and head.
TEST_F(ClassicTest, AFloat8PoolHasItsScalesBeside) {
  LayerSpec float8 = Layer(3, 64);
  float8.dtype = DType::kFloat8E4M3;
  const auto layout =
      CacheLayout::Create({.tokens_per_block = 64, .layers = {float8, Layer(3, 64), float8}});
  ASSERT_TRUE(layout.ok());
  const std::vector<PoolLayout>& pools = layout->windows()[0].pools;
  ASSERT_THAT(pools, SizeIs(3));
  EXPECT_EQ(pools[0].slot_stride_bytes(), 2u * 2 * 3 * 64 * 64);
  EXPECT_EQ(pools[1].content, PoolContent::kScales);
  EXPECT_THAT(pools[1].layers, ElementsAre(0, 2));
  EXPECT_EQ(pools[1].slot_stride_bytes(), 2u * 2 * 3 * sizeof(float));
}

// A block is one block in every pool of its window: the core counts it once.
TEST_F(ClassicTest, ABlockSpansAllPoolsOfItsWindow) {
  const auto layout =
      CacheLayout::Create({.tokens_per_block = 4,
                           .layers = {Layer(3, 64), Layer(2, 64), Layer(1, 64, KvKind::kKeyOnly)}});
  auto core = BlockManager::Create({.layout = *layout, .tiers = HostTiers({4}), .epoch = Epoch{1}});
  ASSERT_TRUE(core.ok());
  const SessionId session = (*core)->OpenSession("test", absl::InfiniteDuration(), now_)->ref.id;
  const auto added = (*core)->Execute(
      session, AddSequence{.sequence = SequenceId{1}, .tokens = Range(0, 7)}, now_);
  ASSERT_TRUE(added.ok());
  EXPECT_THAT(std::get<AddedSequence>(*added).tables, SizeIs(1));
  EXPECT_EQ((*core)->Stats().windows.at(0).tiers[0].active, 2u);
}

}  // namespace
}  // namespace pagoda
