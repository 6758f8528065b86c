// The figures of each tier of a replayed ladder: for traces that were computed by hand, and rules
// that hold for every trace.
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "clients/pagoda_plan/replay/replay.h"
#include "gtest/gtest.h"
#include "manager/policy/eviction_policy.h"

namespace pagoda {
namespace {

constexpr uint64_t kBlock = kMooncakeBlockTokens;

ReplayReport Replay(const std::vector<TraceRequest>& requests, const ReplayOptions& options) {
  const auto report = ReplayTrace(requests, options);
  EXPECT_TRUE(report.ok()) << report.status();
  return *report;
}

ReplayReport ReplayLadder(const std::vector<TraceRequest>& requests,
                          const std::vector<uint32_t>& tier_blocks,
                          const std::string& policy = "lru") {
  return Replay(requests, {.tier_blocks = tier_blocks, .policy = policy, .on_request = {}});
}

// The last tier is a disk.
ReplayReport ReplayDisk(const std::vector<TraceRequest>& requests,
                        const std::vector<uint32_t>& tier_blocks,
                        const std::string& policy = "lru") {
  return Replay(requests, {.tier_blocks = tier_blocks,
                           .policy = policy,
                           .on_request = {},
                           .last_tier = LastTier::kDisk});
}

// Requests of one block each, a second apart.
std::vector<TraceRequest> OneBlockEach(const std::vector<uint64_t>& ids) {
  std::vector<TraceRequest> requests;
  for (const uint64_t id : ids) {
    requests.push_back({static_cast<int64_t>(requests.size()) * 1000, {id}});
  }
  return requests;
}

struct Figures {
  uint64_t hit_blocks = 0;
  uint64_t written = 0;
  uint64_t read = 0;
  uint64_t evictions = 0;
  uint64_t free_evictions = 0;
};

void ExpectTier(const ReplayedTier& tier, const Figures& expected) {
  EXPECT_EQ(tier.hit_tokens, expected.hit_blocks * kBlock);
  EXPECT_EQ(tier.blocks_written, expected.written);
  EXPECT_EQ(tier.blocks_read, expected.read);
  EXPECT_EQ(tier.evictions, expected.evictions);
  EXPECT_EQ(tier.free_evictions, expected.free_evictions);
}

// Each block is written when its request ends. 1 falls to its copy when 3 comes, 2 when 1 is
// fetched for the last request.
TEST(ReplayLadderTest, ADiskIsWrittenWhenRequestsEndAndReadBeforeTheyStart) {
  const ReplayReport report = ReplayDisk(OneBlockEach({1, 2, 3, 1}), {2, 4});
  {
    SCOPED_TRACE("memory");
    ExpectTier(report.tiers[0], {.written = 1, .read = 3, .free_evictions = 2});
  }
  {
    SCOPED_TRACE("disk");
    ExpectTier(report.tiers[1], {.hit_blocks = 1, .written = 3, .read = 1});
  }
  EXPECT_EQ(report.blocks_hit, 1u);
  EXPECT_EQ(report.lower_blocks_hit, 1u);
  EXPECT_FALSE(
      ReplayTrace(OneBlockEach({1}), {.tier_blocks = {4}, .last_tier = LastTier::kDisk}).ok())
      << "a disk needs memory above it";
}

// 3 moves 1 down to the second tier. 4 moves 2 down, for which 1 falls to its copy on disk. The
// fetch of 1 lets 2 fall. Then 1 is onboarded, and swaps with 3. 4 stays in the first tier. The
// second tier is also written and read for each of the four backups.
TEST(ReplayLadderTest, ADiskIsReadIntoTheTierAboveIt) {
  const ReplayReport report = ReplayDisk(OneBlockEach({1, 2, 3, 4, 1, 4}), {2, 1, 4});
  {
    SCOPED_TRACE("first");
    ExpectTier(report.tiers[0], {.hit_blocks = 1, .written = 1, .read = 4 + 3});
  }
  {
    SCOPED_TRACE("second");
    ExpectTier(report.tiers[1], {.written = 4 + 4, .read = 4 + 1, .free_evictions = 2});
  }
  {
    SCOPED_TRACE("disk");
    ExpectTier(report.tiers[2], {.hit_blocks = 1, .written = 4, .read = 1});
  }
  EXPECT_EQ(report.blocks_hit, 2u);
  EXPECT_EQ(report.lower_blocks_hit, 1u);
}

// 3 moves 1 down to the second tier. There it hits, and swaps with 2. So nothing is read from the
// disk.
TEST(ReplayLadderTest, ABlockInTheTierAboveADiskIsNotReadFromTheDisk) {
  const ReplayReport report = ReplayDisk(OneBlockEach({1, 2, 3, 1, 3}), {2, 1, 4});
  {
    SCOPED_TRACE("first");
    ExpectTier(report.tiers[0], {.hit_blocks = 1, .written = 1, .read = 3 + 2});
  }
  {
    SCOPED_TRACE("second");
    ExpectTier(report.tiers[1], {.hit_blocks = 1, .written = 3 + 2, .read = 3 + 1});
  }
  {
    SCOPED_TRACE("disk");
    ExpectTier(report.tiers[2], {.written = 3});
  }
}

// A memory of three blocks takes one block from the disk at once. First 5 evicts 1, and 4 has
// evicted 2.
TEST(ReplayLadderTest, APromptIsFetchedFromADiskInSeveralRounds) {
  const ReplayReport report =
      ReplayDisk({{0, {1, 2}}, {1, {3}}, {2, {4}}, {3, {5}}, {4, {1, 2}}}, {3, 9});
  {
    SCOPED_TRACE("memory");
    ExpectTier(report.tiers[0], {.written = 2, .read = 5, .free_evictions = 4});
  }
  {
    SCOPED_TRACE("disk");
    ExpectTier(report.tiers[1], {.hit_blocks = 2, .written = 5, .read = 2});
  }
  EXPECT_EQ(report.blocks_hit, 2u);
}

// 2 leaves memory before 1, and 1 is then the oldest block there. But the fetch of 2 displaces 3.
TEST(ReplayLadderTest, AFetchDisplacesNoBlockOfItsOwnPrompt) {
  const ReplayReport report = ReplayDisk({{0, {1, 2}}, {1, {3}}, {2, {4}}, {3, {1, 2}}}, {3, 9});
  {
    SCOPED_TRACE("memory");
    ExpectTier(report.tiers[0], {.hit_blocks = 1, .written = 1, .read = 4, .free_evictions = 2});
  }
  {
    SCOPED_TRACE("disk");
    ExpectTier(report.tiers[1], {.hit_blocks = 1, .written = 4, .read = 1});
  }
  EXPECT_EQ(report.blocks_hit, 2u);
}

// 4 moves 2 down, 5 moves 1 down, and 6 moves 3 down. Each of them displaces the one before it from
// the second tier. So 1 and 2 are on disk alone. The second tier has room for 1, and keeps it. So 2
// is computed again.
TEST(ReplayLadderTest, APromptIsFetchedAsFarAsTheTierAboveTheDiskHoldsIt) {
  const ReplayReport report =
      ReplayDisk({{0, {1, 2}}, {1, {3}}, {2, {4}}, {3, {5}}, {4, {6}}, {5, {1, 2}}}, {3, 1, 9});
  EXPECT_EQ(report.blocks_hit, 1u);
  EXPECT_EQ(report.tiers[2].hit_tokens, kBlock);
  EXPECT_EQ(report.tiers[2].blocks_read, 1u);
}

// After 1 to 5 the tiers hold 5 4 | 3 | 2, and 1 has left the last one. The first tier offloaded
// three blocks; two of them were offloaded further. Then 2 is onboarded from the full last tier.
// The blocks offloaded for it fill its place: 4 goes to the second tier, 3 to the third.
TEST(ReplayLadderTest, ABlockGoesDownStepByStepAndComesUpAtOnce) {
  const ReplayReport report = ReplayLadder(OneBlockEach({1, 2, 3, 4, 5, 2}), {2, 1, 1});
  ASSERT_EQ(report.tiers.size(), 3u);
  {
    SCOPED_TRACE("first");
    ExpectTier(report.tiers[0], {.written = 1, .read = 4});
  }
  {
    SCOPED_TRACE("second");
    ExpectTier(report.tiers[1], {.written = 4, .read = 3});
  }
  {
    SCOPED_TRACE("third");
    ExpectTier(report.tiers[2], {.hit_blocks = 1, .written = 3, .read = 1, .evictions = 1});
  }
  EXPECT_EQ(report.blocks_hit, 1u);
  EXPECT_EQ(report.lower_blocks_hit, 1u);
  EXPECT_EQ(report.evictions, 1u);
  EXPECT_EQ(report.offloads, 7u);
  EXPECT_EQ(report.onboards, 1u);
  EXPECT_DOUBLE_EQ(report.hit_rate(report.tiers[2]), 1.0 / 6);
  EXPECT_EQ(report.trace_time, absl::Seconds(5));
}

// 1 is offloaded and onboarded again, and its copy below stays. When it is the oldest again, it is
// offloaded without a copy.
TEST(ReplayLadderTest, ABlockWithACopyBelowIsEvictedForNothing) {
  const ReplayReport report = ReplayLadder(OneBlockEach({1, 2, 3, 1, 4, 5}), {2, 3});
  ASSERT_EQ(report.tiers.size(), 2u);
  {
    SCOPED_TRACE("first");
    ExpectTier(report.tiers[0], {.written = 1, .read = 3, .free_evictions = 1});
  }
  {
    SCOPED_TRACE("second");
    ExpectTier(report.tiers[1], {.hit_blocks = 1, .written = 3, .read = 1});
  }
}

// The copy of 1 is two tiers below. After 1 to 4 the tiers hold 3 4 | 2 | 1. The third tier has
// space to keep its copy of 1 when 1 is onboarded. 3, 4, 1 and 5 then move to the second tier step
// by step: the copy farther below lets no block pass it. When 5 displaces 1 there, 1 falls to the
// copy.
TEST(ReplayLadderTest, ABlockPassesNoTierOnItsWayToACopyFartherBelow) {
  const ReplayReport report = ReplayLadder(OneBlockEach({1, 2, 3, 4, 1, 5, 6, 7}), {2, 1, 9});
  ASSERT_EQ(report.tiers.size(), 3u);
  {
    SCOPED_TRACE("first");
    ExpectTier(report.tiers[0], {.written = 1, .read = 6});
  }
  {
    SCOPED_TRACE("second");
    ExpectTier(report.tiers[1], {.written = 6, .read = 4, .free_evictions = 1});
  }
  {
    SCOPED_TRACE("third");
    ExpectTier(report.tiers[2], {.hit_blocks = 1, .written = 4, .read = 1});
  }
}

TEST(ReplayLadderTest, OneTierEvictsAndCopiesNothing) {
  const ReplayReport report = ReplayLadder(OneBlockEach({1, 2, 2, 3}), {2});
  ASSERT_EQ(report.tiers.size(), 1u);
  EXPECT_EQ(report.tiers[0].capacity_blocks, 2u);
  ExpectTier(report.tiers[0], {.hit_blocks = 1, .evictions = 1});
}

// Random walks down a random tree.
std::vector<TraceRequest> RandomTrace(uint64_t seed) {
  std::mt19937_64 random(seed);
  std::map<std::pair<uint64_t, uint64_t>, uint64_t> child_ids;  // By parent and branch.
  std::vector<TraceRequest> requests(200);
  for (TraceRequest& request : requests) {
    uint64_t parent = 0;
    const size_t length = 1 + random() % 8;
    for (size_t i = 0; i < length; ++i) {
      const std::pair edge{parent, random() % 3};
      parent = child_ids.try_emplace(edge, child_ids.size() + 1).first->second;
      request.hash_ids.push_back(parent);
    }
  }
  return requests;
}

void ExpectHitsAddUp(const ReplayReport& report) {
  uint64_t hit = 0;
  uint64_t lower_hit = 0;
  for (size_t t = 0; t < report.tiers.size(); ++t) {
    hit += report.tiers[t].hit_tokens;
    if (t > 0) lower_hit += report.tiers[t].hit_tokens;
  }
  EXPECT_EQ(hit, report.blocks_hit * kBlock);
  EXPECT_EQ(lower_hit, report.lower_blocks_hit * kBlock);
}

// Which blocks go to the next tier when they leave a tier.
enum class GoDown {
  kAll,         // Only the last tier evicts.
  kWorthyOnes,  // EvictionPolicy::Keeps() can prefer the blocks that are there already.
};

// The rules that connect the tiers' figures, for every trace.
void ExpectConsistent(const ReplayReport& report, GoDown go_down = GoDown::kAll) {
  ExpectHitsAddUp(report);
  uint64_t written = 0;
  uint64_t read = 0;
  uint64_t evictions = 0;
  for (const ReplayedTier& tier : report.tiers) {
    written += tier.blocks_written;
    read += tier.blocks_read;
    evictions += tier.evictions;
  }
  EXPECT_EQ(evictions, report.evictions);
  EXPECT_EQ(written, read);
  EXPECT_EQ(written, report.offloads + report.onboards);
  // Exactly the blocks that hit below were onboarded.
  EXPECT_EQ(report.tiers.front().blocks_written, report.onboards);
  EXPECT_EQ(report.onboards, report.lower_blocks_hit);
  // There is no tier below the last one.
  EXPECT_EQ(report.tiers.back().free_evictions, 0u);
  if (go_down == GoDown::kAll) {
    EXPECT_EQ(report.tiers.back().evictions, report.evictions);
  }
  // Every cached block entered the first tier. It is still in some tier, or it has left.
  const ReplayedTier& first = report.tiers.front();
  const uint64_t down = first.blocks_read + first.free_evictions + first.evictions;
  const uint64_t in = report.blocks_requested - report.blocks_hit + report.onboards;
  EXPECT_GE(in, down);
  EXPECT_LE(in, down + first.capacity_blocks);
}

TEST(ReplayLadderTest, TheFiguresOfTheTiersAddUp) {
  for (const std::string_view policy : EvictionPolicyNames()) {
    for (uint64_t seed = 1; seed <= 20; ++seed) {
      const auto n = static_cast<uint32_t>(seed);
      const std::vector<uint32_t> ladder = {9 + n % 7, 1 + n % 5, 1 + n % 11, 1 + n % 13};
      for (size_t tiers = 1; tiers <= ladder.size(); ++tiers) {
        SCOPED_TRACE(testing::Message() << policy << ", seed " << seed << ", tiers " << tiers);
        ExpectConsistent(ReplayLadder(RandomTrace(seed), {ladder.begin(), ladder.begin() + tiers},
                                      std::string(policy)),
                         policy == "learned" ? GoDown::kWorthyOnes : GoDown::kAll);
      }
    }
  }
}

// A copy below stays. So a lower tier that holds everything is written once for each block.
TEST(ReplayLadderTest, ATierThatHoldsEverythingIsWrittenOncePerBlock) {
  const auto trace = ReadTrace(CHAT_TRACE);
  ASSERT_TRUE(trace.ok()) << trace.status();
  const ReplayReport report = ReplayLadder(trace->requests, {100, 5000});
  const uint64_t distinct = report.blocks_requested - report.blocks_hit;
  EXPECT_EQ(report.evictions, 0u);
  EXPECT_LE(report.tiers[1].blocks_written, distinct);
  EXPECT_GE(report.tiers[1].blocks_written + 100, distinct);
  // Onboarded blocks were offloaded again, except those that are still there.
  EXPECT_LE(report.tiers[0].free_evictions, report.onboards);
  EXPECT_GE(report.tiers[0].free_evictions + 100, report.onboards);
  EXPECT_GT(report.tiers[0].free_evictions, 100u);
}

// On a trace of conversations all tiers together are one LRU list, however they are divided.
TEST(ReplayLadderTest, TheTiersTogetherHitWhatOneOfTheirSumHits) {
  const auto trace = ReadTrace(CHAT_TRACE);
  ASSERT_TRUE(trace.ok()) << trace.status();
  for (const std::vector<uint32_t>& ladder : std::vector<std::vector<uint32_t>>{
           {70, 30, 100}, {100, 1, 99}, {70, 10, 20, 300}, {100, 100, 100, 100}}) {
    uint32_t sum = 0;
    for (const uint32_t blocks : ladder) sum += blocks;
    SCOPED_TRACE(testing::Message() << ladder.size() << " tiers of " << sum << " blocks");
    const ReplayReport cut = ReplayLadder(trace->requests, ladder);
    const ReplayReport whole = ReplayLadder(trace->requests, {sum});
    EXPECT_EQ(cut.skipped_requests, 0u);
    EXPECT_EQ(cut.blocks_hit, whole.blocks_hit);
    EXPECT_EQ(cut.evictions, whole.evictions);
    ExpectConsistent(cut);
  }
}

// The first tier holds the same blocks, whatever lies below it.
TEST(ReplayLadderTest, TheFirstTierHitsWhatItHitsAlone) {
  const auto trace = ReadTrace(CHAT_TRACE);
  ASSERT_TRUE(trace.ok()) << trace.status();
  for (const std::vector<uint32_t>& ladder :
       std::vector<std::vector<uint32_t>>{{100, 50}, {100, 400}, {70, 30, 100}, {70, 130, 900}}) {
    SCOPED_TRACE(testing::Message() << ladder.size() << " tiers, last " << ladder.back());
    const uint64_t alone = ReplayLadder(trace->requests, {ladder.front()}).blocks_hit * kBlock;
    EXPECT_EQ(ReplayLadder(trace->requests, ladder).tiers.front().hit_tokens, alone);
    EXPECT_EQ(ReplayDisk(trace->requests, ladder).tiers.front().hit_tokens, alone);
  }
}

// Most blocks in memory have a copy on the disk too, so the tiers hold fewer different blocks than
// tiers in memory of the same sizes.
TEST(ReplayLadderTest, ADiskHitsAtMostWhatMemoryOfItsSizeHits) {
  const auto trace = ReadTrace(CHAT_TRACE);
  ASSERT_TRUE(trace.ok()) << trace.status();
  for (const std::vector<uint32_t>& ladder : std::vector<std::vector<uint32_t>>{
           {100, 100}, {100, 300}, {100, 400}, {70, 30, 300}, {70, 130, 250}, {70, 130, 300}}) {
    SCOPED_TRACE(testing::Message() << ladder.size() << " tiers, last " << ladder.back());
    const ReplayReport disk = ReplayDisk(trace->requests, ladder);
    EXPECT_EQ(disk.skipped_requests, 0u);
    EXPECT_GT(disk.tiers.back().hit_tokens, 0u);
    EXPECT_LT(disk.blocks_hit, ReplayLadder(trace->requests, ladder).blocks_hit);
  }
}

// A block that memory tiers hold is not read from the disk, however small the disk is.
TEST(ReplayLadderTest, ADiskTakesNoHitsFromTheTiersAboveIt) {
  const auto trace = ReadTrace(CHAT_TRACE);
  ASSERT_TRUE(trace.ok()) << trace.status();
  for (const std::vector<uint32_t>& ladder :
       std::vector<std::vector<uint32_t>>{{100, 50},
                                          {100, 400},
                                          {70, 30, 300},
                                          {70, 130, 100},
                                          {70, 130, 900},
                                          {70, 30, 50, 400}}) {
    SCOPED_TRACE(testing::Message() << ladder.size() << " tiers, last " << ladder.back());
    const ReplayReport disk = ReplayDisk(trace->requests, ladder);
    const ReplayReport memory = ReplayLadder(trace->requests, {ladder.begin(), ladder.end() - 1});
    for (size_t t = 0; t < memory.tiers.size(); ++t) {
      EXPECT_EQ(disk.tiers[t].hit_tokens, memory.tiers[t].hit_tokens) << t;
    }
  }
}

// With lru and a disk of at least three times the memory, all that memory has is on the disk too.
// So both together hit what the disk would hit as the only tier. A smaller disk can hit more or
// less.
TEST(ReplayLadderTest, ALargeDiskHitsWithItsMemoryWhatOneTierOfItsSizeHits) {
  const auto trace = ReadTrace(CHAT_TRACE);
  ASSERT_TRUE(trace.ok()) << trace.status();
  for (const uint32_t blocks : {300u, 400u, 1'000u}) {
    SCOPED_TRACE(blocks);
    EXPECT_EQ(ReplayDisk(trace->requests, {100, blocks}).blocks_hit,
              ReplayLadder(trace->requests, {blocks}).blocks_hit);
  }
}

// Everything that was ever computed matches. Each block is written once, and read only for a hit.
TEST(ReplayLadderTest, ADiskThatHoldsEverythingHitsWhatAnUnlimitedTierHits) {
  const auto trace = ReadTrace(CHAT_TRACE);
  ASSERT_TRUE(trace.ok()) << trace.status();
  const uint64_t unlimited = ReplayLadder(trace->requests, {}).blocks_hit;
  for (const std::vector<uint32_t>& ladder :
       std::vector<std::vector<uint32_t>>{{100, 5000}, {70, 130, 5000}}) {
    SCOPED_TRACE(ladder.size());
    const ReplayReport report = ReplayDisk(trace->requests, ladder);
    EXPECT_EQ(report.skipped_requests, 0u);
    EXPECT_EQ(report.blocks_hit, unlimited);
    EXPECT_EQ(report.evictions, 0u);
    EXPECT_EQ(report.tiers.back().blocks_written, report.blocks_requested - report.blocks_hit);
    EXPECT_EQ(report.tiers.back().hit_tokens, report.tiers.back().blocks_read * kBlock);
  }
}

// Checks after each request that it hit exactly the blocks on disk that were read for it. Returns
// the disk's hits.
uint64_t ExpectHitsAreReads(uint64_t seed, ReplayOptions options) {
  ReplayReport before;
  before.tiers.resize(options.tier_blocks.size());
  options.on_request = [&](const ReplayReport& report) {
    const ReplayedTier& disk = report.tiers.back();
    const uint64_t hit = (disk.hit_tokens - before.tiers.back().hit_tokens) / kBlock;
    EXPECT_EQ(hit, disk.blocks_read - before.tiers.back().blocks_read);
    EXPECT_LE(hit, report.blocks_hit - before.blocks_hit);
    ExpectHitsAddUp(report);
    before = report;
  };
  options.last_tier = LastTier::kDisk;
  return Replay(RandomTrace(seed), options).tiers.back().hit_tokens;
}

TEST(ReplayLadderTest, HitsOfADiskWereReadForTheirRequest) {
  for (const std::string_view policy : EvictionPolicyNames()) {
    uint64_t hits = 0;
    for (uint64_t seed = 1; seed <= 20; ++seed) {
      const auto n = static_cast<uint32_t>(seed);
      const std::vector<uint32_t> ladder = {9 + n % 7, 1 + n % 5, 5 + n % 30};
      for (const std::vector<uint32_t>& tiers : {ladder, {ladder[0], ladder[2]}}) {
        SCOPED_TRACE(testing::Message()
                     << policy << ", seed " << seed << ", tiers " << tiers.size());
        ReplayOptions options = {
            .tier_blocks = tiers, .policy = std::string(policy), .on_request = {}};
        hits += ExpectHitsAreReads(seed, options);
        options.service = ServiceModel{};
        hits += ExpectHitsAreReads(seed, options);
      }
    }
    EXPECT_GT(hits, 0u) << policy;
  }
}

}  // namespace
}  // namespace pagoda
