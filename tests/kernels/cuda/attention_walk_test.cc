// The steps over tiles of keys, beside a walk tile by tile, and how many steps there are. The
// rounds over units, beside a counter that all blocks share.
#include "kernels/cuda/attention/attention_walk.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/attention/attention_args.h"

namespace pagoda::kernels::cuda {
namespace {

constexpr AttentionMask kWindowWithSinks = {.window_tokens = 100, .sink_tokens = 20};
constexpr uint32_t kLongest = (uint32_t{1} << 31) - 1;

// A compiler evaluates at most some 100,000 repetitions of a loop in a constant expression. Tile by
// tile, this would be 33 million: the whole context between the sinks and the window.
static_assert(NextSeenTile<64>(kWindowWithSinks, kLongest - 1, kLongest - 1, kLongest, 64) ==
              (kLongest - 100) / 64 * 64);
static_assert(NextSeenTile<16, 64>(kWindowWithSinks, kLongest - 1, kLongest - 1, kLongest, 32) ==
              (kLongest - 100) / 64 * 64 + 32);
// Nothing is seen behind the last query.
static_assert(NextSeenTile<64>({}, 10, 90, kLongest, 128) >= kLongest);

// The numbers of tiles that decode of one token walks, and of the calls that find them.
TEST(AttentionWalkTest, AWalkVisitsOnlyTheSinksAndTheWindow) {
  for (const uint32_t context : {1'000u, 1'000'000u, kLongest}) {
    uint32_t tiles = 0;
    uint32_t first = 0;
    while ((first = NextSeenTile<64>(kWindowWithSinks, context - 1, context - 1, context, first)) <
           context) {
      ++tiles;
      first += 64;
    }
    EXPECT_GE(tiles, 1u + 2u) << context;  // The sinks' tile, and 100 keys.
    EXPECT_LE(tiles, 1u + 3u) << context;
  }
}

template <uint32_t kTokens, uint32_t kStep>
void ExpectSameAsTileByTile(uint32_t seed) {
  std::mt19937 random(seed);
  const auto below = [&random](uint32_t end) { return static_cast<uint32_t>(random() % end); };
  for (int i = 0; i < 20'000; ++i) {
    AttentionMask mask;
    mask.causal = below(8) != 0;
    mask.window_tokens = below(3) == 0 ? 0 : 1 + below(300);
    mask.sink_tokens = below(2) * below(200);
    const uint32_t first_position = below(2'000);
    const uint32_t last_position = first_position + below(2) * below(200);
    const uint32_t end = below(2'200);
    const uint32_t start = below(2'200);
    uint32_t expected = start;
    while (expected < end && !MaySee(mask, first_position, last_position, expected,
                                     int64_t{expected} + kTokens - 1)) {
      expected += kStep;
    }
    const uint32_t found =
        NextSeenTile<kTokens, kStep>(mask, first_position, last_position, end, start);
    EXPECT_EQ((found - start) % kStep, 0u);
    if (expected < end) {
      EXPECT_EQ(found, expected) << "from " << start << " to " << end << ", queries "
                                 << first_position << " to " << last_position << ", window "
                                 << mask.window_tokens << ", sinks " << mask.sink_tokens;
    } else {
      EXPECT_GE(found, end);
    }
    if (testing::Test::HasFailure()) return;
  }
}

TEST(AttentionWalkTest, EqualsAWalkTileByTile) {
  ExpectSameAsTileByTile<64, 64>(1);
  ExpectSameAsTileByTile<128, 128>(2);
  ExpectSameAsTileByTile<16, 64>(3);
  ExpectSameAsTileByTile<16, 32>(4);
}

constexpr uint32_t kBlocks = 132;  // The multiprocessors of an H200.
constexpr uint32_t kKvHeads = 8;
constexpr uint32_t kHeads = 32;

// The costs of a plan's units for causal prompts, in tiles of 128 keys, in the kernels' order. One
// more for what each unit costs.
std::vector<uint32_t> CostsOfPrompts(uint32_t prompts, int32_t tokens) {
  std::vector<int32_t> starts = {0};
  for (uint32_t s = 0; s < prompts; ++s) starts.push_back(starts.back() + tokens);
  const std::vector<int32_t> contexts(prompts, tokens);
  const AttentionPlan plan = PlanForCuda(
      {.query_starts = starts, .context_lengths = contexts, .mask = {}, .num_kv_heads = kKvHeads},
      kHeads, {.num_multiprocessors = kBlocks});
  const PlanCapacity capacity = CapacityFor(plan, kHeads);
  std::vector<std::byte> bytes(PlanBytes(capacity));
  EXPECT_TRUE(EncodePlan(plan, kHeads, capacity, absl::MakeSpan(bytes)).ok());
  std::vector<PlannedItem> items(capacity.items);
  std::memcpy(items.data(), bytes.data() + sizeof(PlanHeader), items.size() * sizeof(PlannedItem));
  std::vector<uint32_t> costs;
  for (const PlannedItem& item : items) {
    costs.insert(costs.end(), kKvHeads, (item.end_key - item.first_key + 127) / 128 + 1);
  }
  return costs;
}

// The cost of the block that ends last.
uint32_t ByRounds(const std::vector<uint32_t>& costs) {
  std::vector<uint32_t> times_taken(costs.size());
  uint32_t longest = 0;
  for (uint32_t block = 0; block < kBlocks; ++block) {
    uint32_t cost = 0;
    uint32_t unit = 0;
    for (uint32_t r = 0; (unit = UnitOfRound(r, block, kBlocks)) < costs.size(); ++r) {
      ++times_taken[unit];
      cost += costs[unit];
    }
    longest = std::max(longest, cost);
  }
  EXPECT_EQ(std::count(times_taken.begin(), times_taken.end(), 1u),
            static_cast<int64_t>(costs.size()));
  return longest;
}
uint32_t ByCounter(const std::vector<uint32_t>& costs) {
  std::vector<uint32_t> blocks(kBlocks);
  for (const uint32_t cost : costs) *std::min_element(blocks.begin(), blocks.end()) += cost;
  return *std::max_element(blocks.begin(), blocks.end());
}

TEST(AttentionWalkTest, RoundsTakeAsLongAsASharedCounter) {
  for (const auto& [prompts, tokens] : std::vector<std::pair<uint32_t, int32_t>>{
           {1, 1024}, {1, 2048}, {1, 16384}, {2, 8192}, {4, 4096}, {8, 1024}, {16, 700}}) {
    const std::vector<uint32_t> costs = CostsOfPrompts(prompts, tokens);
    EXPECT_LE(ByRounds(costs), 1.04 * ByCounter(costs)) << prompts << " prompts of " << tokens;
    const double mean = std::accumulate(costs.begin(), costs.end(), 0.0) / kBlocks;
    EXPECT_LE(ByRounds(costs), 1.06 * mean) << prompts << " prompts of " << tokens;
  }
}

}  // namespace
}  // namespace pagoda::kernels::cuda
