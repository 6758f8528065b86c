#include "pools/sizing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/error.h"

namespace pagoda {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uint64_t kKiB = 1024;
constexpr uint64_t kGiB = uint64_t{1} << 30;

CacheLayout Layout(std::vector<LayerSpec> layers, uint32_t tokens_per_block = 32) {
  return *CacheLayout::Create({.tokens_per_block = tokens_per_block, .layers = std::move(layers)});
}

// 36 layers, 8 KV heads of 128, bfloat16.
CacheLayout Qwen3_8B() {
  return Layout(
      std::vector(36, LayerSpec{.num_kv_heads = 8, .head_dim = 128, .dtype = DType::kBFloat16}));
}

// gpt-oss-20b: 24 layers, every other one with a window of 128; 8 KV heads of 64, bfloat16.
CacheLayout GptOss20b() {
  std::vector<LayerSpec> layers;
  for (int i = 0; i < 24; ++i) {
    layers.push_back({.window = i % 2 == 0 ? WindowSize(128) : kFullAttention,
                      .num_kv_heads = 8,
                      .head_dim = 64,
                      .dtype = DType::kBFloat16});
  }
  return Layout(std::move(layers));
}

// A layer of `bytes` bytes per token.
LayerSpec Bytes(uint32_t window, uint32_t bytes) {
  return {.window = WindowSize(window),
          .num_kv_heads = 1,
          .head_dim = bytes / 2,
          .dtype = DType::kFloat16,
          .kind = KvKind::kKeyOnly};
}

// An opaque layer of `bytes` bytes per block.
LayerSpec Opaque(uint32_t window, uint64_t bytes) {
  return {.window = WindowSize(window), .kind = KvKind::kOpaque, .bytes_per_block = bytes};
}

TEST(SizingTest, BlocksThatTokensDoNotDivideAreUsedUp) {
  // 33 bytes per block of 32 tokens: 2 per token, rounded up.
  const CacheLayout layout = Layout({Opaque(64, 33), Opaque(kFullAttention.value(), 7)});
  EXPECT_EQ(BytesPerToken(layout.windows()[0]), 2u);
  EXPECT_EQ(BytesPerToken(layout.windows()[1]), 1u);
  // One block of each window only: the second tier holds these and their spares.
  const auto plan = PlanSizes(layout, {.workload = {.max_sequence_tokens = 64},
                                       .tiers = {{ByteBudget{40}}, {ByteBudget{80}}}});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(plan->blocks(kPrimaryTier), ElementsAre(1, 1));
  EXPECT_THAT(plan->blocks(Tier(1)), ElementsAre(1, 1));
  EXPECT_EQ(plan->bytes(Tier(1)), 80u);
}

TEST(SizingTest, ScalesAreBytesOfTheBlock) {
  const CacheLayout layout =
      Layout({LayerSpec{.num_kv_heads = 2, .head_dim = 16, .dtype = DType::kFloat8E4M3}});
  const auto plan =
      PlanSizes(layout, {.workload = {.max_sequence_tokens = 64}, .tiers = {{BlockBudget{{3}}}}});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->bytes(kPrimaryTier), 3u * (2 * 2 * 16 * 32 + 2 * 2 * 4));
}

TEST(SizingTest, Qwen3_8BTakes144KiBAToken) {
  const CacheLayout layout = Qwen3_8B();
  EXPECT_EQ(BytesPerToken(layout), 144 * kKiB);
  // 40 GiB hold 9,102 blocks of 32 tokens: 291,264 tokens, 7 sequences of 40,960.
  const auto plan = PlanSizes(
      layout, {.workload = {.max_sequence_tokens = 40'960}, .tiers = {{ByteBudget{40 * kGiB}}}});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->windows[0].bytes_per_block, 32 * 144 * kKiB);
  EXPECT_EQ(plan->windows[0].blocks_per_sequence, 1280u);
  EXPECT_THAT(plan->blocks(kPrimaryTier), ElementsAre(9102));
  EXPECT_THAT(plan->blocks(Tier(1)), IsEmpty());
  EXPECT_EQ(plan->max_concurrent_sequences(), 7u);
  EXPECT_EQ(plan->bytes(kPrimaryTier), 9102 * 32 * 144 * kKiB);
}

TEST(SizingTest, ASequencesBlocksFollowItsWindow) {
  const TokensPerBlock sixteen(16);
  const Workload workload{.max_sequence_tokens = 1000};
  EXPECT_EQ(BlocksPerSequence(kFullAttention, sixteen, workload), 63u);
  EXPECT_EQ(BlocksPerSequence(WindowSize(128), sixteen, workload), 9u);
  // A window that no sequence reaches equals full attention.
  EXPECT_EQ(BlocksPerSequence(WindowSize(1000), sixteen, workload), 63u);
  EXPECT_EQ(BlocksPerSequence(WindowSize(990), sixteen, workload), 63u);

  const Workload chunked{.max_sequence_tokens = 1000, .chunk_tokens = 100};
  EXPECT_EQ(BlocksPerSequence(kFullAttention, sixteen, chunked), 63u);
  EXPECT_EQ(BlocksPerSequence(WindowSize(128), sixteen, chunked), 16u);
  // A chunk is no longer than the sequence.
  EXPECT_EQ(BlocksPerSequence(WindowSize(128), sixteen,
                              {.max_sequence_tokens = 1000, .chunk_tokens = 4'000'000'000}),
            63u);
  EXPECT_EQ(BlocksPerSequence(kFullAttention, TokensPerBlock(1),
                              {.max_sequence_tokens = std::numeric_limits<uint32_t>::max(),
                               .chunk_tokens = std::numeric_limits<uint32_t>::max()}),
            std::numeric_limits<uint32_t>::max());
}

// A sequence is computed chunk by chunk, and releases the blocks that its window has passed: entry
// i is released when (i + 1) * tokens_per_block <= computed - window + 1, except the last whole
// block.
TEST(SizingTest, ASequencesBlocksAreEnoughForEveryChunk) {
  for (const uint32_t per_block : {1u, 4u, 16u}) {
    for (const uint32_t window : {1u, 7u, 16u, 40u}) {
      for (const uint32_t chunk : {0u, 1u, 5u, 16u, 33u}) {
        const uint32_t step = std::max(chunk, 1u);
        uint64_t most = 0;
        for (uint32_t computed = 0; computed < 300; computed += step) {
          uint32_t passed = computed + 1 > window ? (computed + 1 - window) / per_block : 0;
          if (passed > 0 && passed == computed / per_block) --passed;
          const uint32_t room = std::min(300u, computed + step);
          most = std::max<uint64_t>(most, (room + per_block - 1) / per_block - passed);
        }
        const uint64_t planned =
            BlocksPerSequence(WindowSize(window), TokensPerBlock(per_block),
                              {.max_sequence_tokens = 300, .chunk_tokens = chunk});
        EXPECT_LE(most, planned) << per_block << ", " << window << ", " << chunk;
        EXPECT_LE(planned, most + 2) << per_block << ", " << window << ", " << chunk;
      }
    }
  }
}

std::vector<std::string> Rounded(const std::vector<double>& shares) {
  std::vector<std::string> text;
  for (const double share : shares) text.push_back(absl::StrCat(std::round(share * 1e4) / 1e4));
  return text;
}

TEST(SizingTest, SharesByTokensAreThoseOfTensorRtLlm) {
  const Workload workload{.max_sequence_tokens = 8192};
  EXPECT_THAT(Rounded(WindowShares(Layout({Bytes(1024, 2), Bytes(4096, 2), Bytes(8192, 2)}),
                                   workload, ShareBy::kTokensInWindow)),
              ElementsAre("0.0769", "0.3077", "0.6154"));
  EXPECT_THAT(Rounded(WindowShares(Layout({Bytes(1024, 2), Bytes(4096, 12), Bytes(8192, 2)}),
                                   workload, ShareBy::kTokensInWindow)),
              ElementsAre("0.0303", "0.7273", "0.2424"));
}

TEST(SizingTest, SharesByBlocksHoldAsManySequencesInEveryWindow) {
  const CacheLayout layout = GptOss20b();
  const Workload workload{
      .max_sequence_tokens = 8192, .concurrent_sequences = 16, .chunk_tokens = 1024};
  // 12 layers of 2 x 8 heads x 64 x 2 bytes in each window; (128 + 1,024) / 32 + 1 blocks, and
  // 8,192 / 32.
  EXPECT_EQ(BytesPerToken(layout), 48 * kKiB);
  EXPECT_THAT(Rounded(WindowShares(layout, workload, ShareBy::kBlocksPerSequence)),
              ElementsAre(absl::StrCat(std::round(37e4 / 293) / 1e4),
                          absl::StrCat(std::round(256e4 / 293) / 1e4)));
  const auto needed = BytesForWorkload(layout, workload);
  ASSERT_TRUE(needed.ok());
  EXPECT_EQ(*needed, 16 * (37 + 256) * 32 * 24 * kKiB);

  const auto plan = PlanSizes(layout, {.workload = workload, .tiers = {{ByteBudget{*needed}}}});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(plan->blocks(kPrimaryTier), ElementsAre(16 * 37, 16 * 256));
  EXPECT_EQ(plan->bytes(kPrimaryTier), *needed);
  EXPECT_EQ(plan->max_concurrent_sequences(), 16u);
  const auto less = PlanSizes(layout, {.workload = workload, .tiers = {{ByteBudget{*needed - 1}}}});
  ASSERT_TRUE(less.ok()) << less.status();
  EXPECT_EQ(less->max_concurrent_sequences(), 15u);
}

TEST(SizingTest, TheLowerTierHasItsSpareAndIsDividedByTokens) {
  const CacheLayout layout = GptOss20b();
  const uint64_t block = 32 * 24 * kKiB;  // The block's bytes in either window.
  const auto plan =
      PlanSizes(layout, {.workload = {.max_sequence_tokens = 8192},
                         .tiers = {{BlockBudget{{10}}}, {ByteBudget{(65 + 2) * block}}}});
  ASSERT_TRUE(plan.ok()) << plan.status();
  // 128 of 128 + 8,192 tokens.
  EXPECT_THAT(plan->blocks(Tier(1)), ElementsAre(1, 64));
  const SlotCounts slots = plan->slots();
  EXPECT_THAT(slots.tiers, ElementsAre(ElementsAre(10, 10), ElementsAre(2, 65)));
  EXPECT_EQ(plan->bytes(Tier(1)), (65 + 2) * block);
}

TEST(SizingTest, AFractionIsOfTheFreeMemory) {
  const CacheLayout layout = Qwen3_8B();
  const auto plan = PlanSizes(
      layout, {.workload = {.max_sequence_tokens = 4096},
               .tiers = {{FractionBudget{.fraction = 0.9, .free_bytes = 80 * kGiB}},
                         {FractionBudget{.fraction = 1, .free_bytes = 100 * 32 * 144 * kKiB}}}});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(plan->blocks(kPrimaryTier), ElementsAre(72 * kGiB / (32 * 144 * kKiB)));
  EXPECT_THAT(plan->blocks(Tier(1)), ElementsAre(99));
}

TEST(SizingTest, EveryTierBelowTheFirstIsSizedAlike) {
  const CacheLayout layout = GptOss20b();
  const uint64_t block = 32 * 24 * kKiB;       // The block's bytes in either window.
  const uint64_t staging = 2 * kStagingSlots;  // The staging slots of both windows, above a disk.
  const auto plan = PlanSizes(layout, {.workload = {.max_sequence_tokens = 8192},
                                       .tiers = {{BlockBudget{{10}}},
                                                 {BlockBudget{{20}}},
                                                 {ByteBudget{(65 + 2 + staging) * block}},
                                                 {BlockBudget{{40}}, Medium::kDisk, "slow"}}});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->num_tiers(), 4u);
  EXPECT_THAT(plan->blocks(Tier{2}), ElementsAre(1, 64));
  EXPECT_THAT(plan->blocks(Tier{3}), ElementsAre(40, 40));
  EXPECT_EQ(plan->bytes(Tier{3}), 2 * 40 * FileSlotBytes(block)) << "a disk has no spare";
  EXPECT_THAT(plan->slots().tiers,
              ElementsAre(ElementsAre(10, 10), ElementsAre(21, 21),
                          ElementsAre(2 + kStagingSlots, 65 + kStagingSlots), IsEmpty()))
      << "what lies on disk has no pools";

  const auto refusal = [&](std::vector<TierRequest> tiers) {
    return std::string(
        PlanSizes(layout, {.workload = {.max_sequence_tokens = 8192}, .tiers = std::move(tiers)})
            .status()
            .message());
  };
  EXPECT_THAT(refusal({}), HasSubstr("0 tiers"));
  EXPECT_THAT(refusal(std::vector<TierRequest>(5, {BlockBudget{{1}}})), HasSubstr("5 tiers"));
  EXPECT_THAT(refusal({{BlockBudget{{1}}}, {BlockBudget{{1, 2, 3}}, Medium::kHost, "warm"}}),
              HasSubstr("the warm tier has 3 block counts"));
}

TEST(SizingTest, BlocksAreForEachWindowOrForAll) {
  const CacheLayout layout = GptOss20b();
  const Workload workload{.max_sequence_tokens = 8192};
  const auto each = PlanSizes(
      layout, {.workload = workload, .tiers = {{BlockBudget{{5, 300}}}, {BlockBudget{{0, 7}}}}});
  ASSERT_TRUE(each.ok()) << each.status();
  EXPECT_THAT(each->blocks(kPrimaryTier), ElementsAre(5, 300));
  EXPECT_THAT(each->slots().tiers[1], ElementsAre(0, 8)) << "no blocks, no spare";
  EXPECT_EQ(each->max_concurrent_sequences(), 1u) << "a sequence has 5 and 256 blocks";
}

TEST(SizingTest, SaysWhyABudgetDoesNotDo) {
  const CacheLayout layout = GptOss20b();
  const uint64_t block = 32 * 24 * kKiB;
  const auto refusal = [&](TierBudget primary, TierBudget lower = ByteBudget{},
                           Workload workload = {.max_sequence_tokens = 8192}) {
    const auto plan = PlanSizes(layout, {.workload = workload, .tiers = {{primary}, {lower}}});
    EXPECT_EQ(ReasonOf(plan.status()), Reason::kInvalidArgument) << plan.status();
    return std::string(plan.status().message());
  };
  EXPECT_THAT(refusal(ByteBudget{2 * block - 1}),
              AllOf(HasSubstr("the primary tier gets 1572863 bytes"), HasSubstr("one block of"),
                    HasSubstr("786432 in window 128, 786432 in window full")));
  EXPECT_TRUE(PlanSizes(layout, {.workload = {.max_sequence_tokens = 8192},
                                 .tiers = {{ByteBudget{2 * block}}, {ByteBudget{4 * block}}}})
                  .ok());
  EXPECT_THAT(refusal(ByteBudget{2 * block}, ByteBudget{4 * block - 1}),
              AllOf(HasSubstr("the secondary tier"), HasSubstr("two blocks (one is the spare)")));
  EXPECT_THAT(refusal(ByteBudget{}), HasSubstr("0 bytes"));
  EXPECT_THAT(refusal(FractionBudget{.fraction = 0.5, .free_bytes = 1000}),
              HasSubstr("500 bytes (0.5 of 1000 free ones)"));
  for (const double fraction : {0.0, -0.1, 1.01, std::nan("")}) {
    EXPECT_THAT(refusal(FractionBudget{.fraction = fraction, .free_bytes = kGiB}),
                HasSubstr("above 0 and at most 1"));
  }
  EXPECT_THAT(refusal(BlockBudget{{1, 0}}), HasSubstr("no block of window full"));
  EXPECT_THAT(refusal(BlockBudget{{1, 2, 3}}), HasSubstr("3 block counts"));
  EXPECT_THAT(refusal(BlockBudget{}), HasSubstr("0 block counts"));
  EXPECT_THAT(refusal(BlockBudget{{kMaxBlocks + 1}}), HasSubstr("at most 268435456"));
  EXPECT_THAT(refusal(ByteBudget{~uint64_t{0}}), HasSubstr("at most 268435456"));
  EXPECT_THAT(refusal(ByteBudget{kGiB}, ByteBudget{}, {.max_sequence_tokens = 0}),
              HasSubstr("neither may be 0"));
}

TEST(SizingTest, SizesBeyond64BitsAreErrors) {
  const CacheLayout layout =
      Layout(std::vector(4096, LayerSpec{.num_kv_heads = 1024, .head_dim = 1024}), 1024);
  const auto plan = PlanSizes(layout, {.workload = {.max_sequence_tokens = 4'000'000'000},
                                       .tiers = {{BlockBudget{{kMaxBlocks}}}}});
  EXPECT_THAT(std::string(plan.status().message()), HasSubstr("64 bits"));
  const auto needed = BytesForWorkload(
      layout, {.max_sequence_tokens = 4'000'000'000, .concurrent_sequences = 4'000'000'000});
  EXPECT_THAT(std::string(needed.status().message()), HasSubstr("64 bits"));
  // The largest budget over the largest block: 2^64 / 2^45.
  const auto huge = PlanSizes(layout, {.workload = {.max_sequence_tokens = 4'000'000'000},
                                       .tiers = {{ByteBudget{~uint64_t{0}}}}});
  ASSERT_TRUE(huge.ok()) << huge.status();
  EXPECT_THAT(huge->blocks(kPrimaryTier), ElementsAre((1u << 19) - 1));
}

TEST(SizingTest, AnyBudgetIsUsedUpAndNeverExceeded) {
  for (uint32_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 random(seed);
    const auto below = [&](uint32_t bound) { return static_cast<uint32_t>(random() % bound); };
    std::vector<LayerSpec> layers;
    for (uint32_t i = 0, count = 1 + below(6); i < count; ++i) {
      const uint32_t window = below(3) == 0 ? kFullAttention.value() : 1u << below(16);
      layers.push_back(below(3) == 0 ? Opaque(window, 1 + below(3000))
                                     : Bytes(window, 2 * (1 + below(100))));
    }
    const CacheLayout layout = Layout(std::move(layers), 1u << below(6));
    const SizingRequest request{
        .workload = {.max_sequence_tokens = 1 + below(50'000), .chunk_tokens = below(3000)}};
    uint64_t one_of_each = 0;
    for (const WindowLayout& window : layout.windows()) one_of_each += window.block_bytes();
    for (const Tier tier : {kPrimaryTier, Tier(1)}) {
      const bool primary = tier == kPrimaryTier;
      const uint64_t least = primary ? one_of_each : 2 * one_of_each;
      const uint64_t budget = least + below(1 + below(5'000'000));
      SizingRequest with_budget = request;
      with_budget.tiers = {{ByteBudget{primary ? budget : one_of_each}},
                           {ByteBudget{primary ? 0 : budget}}};
      const auto plan = PlanSizes(layout, with_budget);
      ASSERT_TRUE(plan.ok()) << plan.status();
      EXPECT_LE(plan->bytes(tier), budget);
      EXPECT_LT(budget - plan->bytes(tier), one_of_each);
      for (const uint32_t blocks : plan->blocks(tier)) EXPECT_GE(blocks, 1u);

      // If every window's share is worth a block, each window has the whole blocks of its share.
      const std::vector<double> shares =
          WindowShares(layout, request.workload,
                       primary ? ShareBy::kBlocksPerSequence : ShareBy::kTokensInWindow);
      const double divided = static_cast<double>(primary ? budget : budget - one_of_each);
      std::vector<double> exact;
      for (size_t w = 0; w < shares.size(); ++w) {
        exact.push_back(divided * shares[w] /
                        static_cast<double>(layout.windows()[w].block_bytes()));
      }
      if (*std::min_element(exact.begin(), exact.end()) < 1) continue;
      for (size_t w = 0; w < shares.size(); ++w) {
        EXPECT_NEAR(plan->windows[w].tier(tier).blocks, exact[w] - 0.5, 0.501);
      }
    }
  }
}

}  // namespace
}  // namespace pagoda
