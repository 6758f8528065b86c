// Requests that overlap in time: traces that were computed by hand, and rules that hold for all.
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "clients/pagoda_plan/replay/replay.h"
#include "gtest/gtest.h"
#include "manager/policy/eviction_policy.h"

namespace pagoda {
namespace {

constexpr uint32_t kBlock = 16;
// A missed block takes 16 ms and a token of a reply 10 ms.
constexpr ServiceModel kService = {.prefill_tokens_per_second = 1000,
                                   .decode_tokens_per_second = 100};

TraceRequest Request(int64_t time_ms, std::vector<uint64_t> ids, uint32_t input, uint32_t output) {
  return {.timestamp_ms = time_ms,
          .hash_ids = std::move(ids),
          .input_tokens = input,
          .output_tokens = output};
}

ReplayReport Overlap(const std::vector<TraceRequest>& requests,
                     const std::vector<uint32_t>& tier_blocks, const std::string& policy = "lru",
                     LastTier last_tier = LastTier::kMemory) {
  const auto report = ReplayTrace(requests, {.tier_blocks = tier_blocks,
                                             .policy = policy,
                                             .on_request = {},
                                             .tokens_per_block = kBlock,
                                             .service = kService,
                                             .last_tier = last_tier});
  EXPECT_TRUE(report.ok()) << report.status();
  EXPECT_TRUE(report->overlap.has_value());
  return *report;
}

TEST(ReplayOverlapTest, ARequestEndsWhenItsReplyDoes) {
  // 32 missed tokens are 32 ms, and 4 tokens of the reply 40 ms.
  const ReplayReport report = Overlap({Request(1000, {1, 2}, 32, 4)}, {3});
  EXPECT_EQ(report.trace_time, absl::Milliseconds(1072));
  EXPECT_EQ(report.overlap->most_running, 1u);
  EXPECT_EQ(report.overlap->most_held_blocks, 3u);
  EXPECT_EQ(report.overlap->waiting_requests, 0u);
}

TEST(ReplayOverlapTest, OnlyMissedTokensTakeTimeToCompute) {
  const ReplayReport report =
      Overlap({Request(0, {1, 2}, 32, 0), Request(100, {1, 2, 3}, 48, 0)}, {9});
  EXPECT_EQ(report.blocks_hit, 2u);
  EXPECT_EQ(report.trace_time, absl::Milliseconds(116));
}

TEST(ReplayOverlapTest, ARequestWithoutRoomWaitsForAnEnd) {
  // The first one has its three blocks until 48 ms.
  const ReplayReport report =
      Overlap({Request(0, {1, 2, 3}, 48, 0), Request(10, {4, 5}, 32, 0)}, {4});
  EXPECT_EQ(report.overlap->waiting_requests, 1u);
  EXPECT_EQ(report.overlap->longest_wait, absl::Milliseconds(38));
  EXPECT_EQ(report.overlap->total_wait, absl::Milliseconds(38));
  EXPECT_EQ(report.overlap->most_running, 1u);
  EXPECT_EQ(report.trace_time, absl::Milliseconds(80));
}

TEST(ReplayOverlapTest, AWaitingRequestHoldsLaterOnesBack) {
  // The third one would fit together with the first one, but the second one came before it.
  const ReplayReport report =
      Overlap({Request(0, {1, 2}, 32, 0), Request(1, {3, 4}, 32, 0), Request(2, {5}, 16, 0)}, {3});
  EXPECT_EQ(report.overlap->waiting_requests, 2u);
  EXPECT_EQ(report.overlap->longest_wait, absl::Milliseconds(31));
  EXPECT_EQ(report.overlap->total_wait, absl::Milliseconds(31 + 30));
  EXPECT_EQ(report.overlap->most_running, 2u);
}

TEST(ReplayOverlapTest, RunningRequestsShareTheirPrefix) {
  const std::vector<TraceRequest> requests = {Request(0, {1, 2, 3}, 48, 10),
                                              Request(1, {1, 2, 4}, 48, 10)};
  const ReplayReport report = Overlap(requests, {6});
  EXPECT_EQ(report.overlap->waiting_requests, 0u);
  EXPECT_EQ(report.overlap->most_held_blocks, 6u);
  EXPECT_EQ(report.blocks_hit, 2u) << "the first one still runs";
  EXPECT_EQ(Overlap(requests, {5}).overlap->waiting_requests, 1u);
}

TEST(ReplayOverlapTest, RunningRequestsAreNotEvicted) {
  // The first one runs until 192 ms if it has a reply, else until 32 ms.
  std::vector<TraceRequest> requests = {Request(0, {1, 2}, 32, 16), Request(40, {3}, 16, 0),
                                        Request(80, {4}, 16, 0), Request(120, {5}, 16, 0),
                                        Request(150, {1, 2}, 32, 0)};
  EXPECT_EQ(Overlap(requests, {4}).blocks_hit, 2u);
  requests[0].output_tokens = 0;
  EXPECT_EQ(Overlap(requests, {4}).blocks_hit, 1u);
}

// 5 and 6 displace 1 and 2, which the fourth request has fetched. It still runs when the fifth one
// comes.
TEST(ReplayOverlapTest, AFetchedBlockIsAHitOfTheDiskForOneRequest) {
  const ReplayReport report =
      Overlap({Request(0, {1, 2}, 32, 0), Request(100, {3, 4}, 32, 0), Request(200, {5, 6}, 32, 0),
               Request(300, {1, 2}, 32, 10), Request(310, {1, 2}, 32, 0)},
              {4, 20}, "lru", LastTier::kDisk);
  EXPECT_EQ(report.overlap->most_running, 2u);
  EXPECT_EQ(report.blocks_hit, 4u);
  EXPECT_EQ(report.lower_blocks_hit, 2u);
  EXPECT_EQ(report.tiers[0].hit_tokens, 2 * kBlock);
  EXPECT_EQ(report.tiers[1].hit_tokens, 2 * kBlock);
  EXPECT_EQ(report.tiers[1].blocks_read, 2u);
}

// 40 tokens and a reply of 30: blocks 1, 2, and of the reply 4 and 5. It ends at 340 ms.
std::vector<TraceRequest> Conversation(int64_t second_turn_ms) {
  return {Request(0, {1, 2, 3}, 40, 30), Request(second_turn_ms, {1, 2, 4, 5, 6, 7}, 90, 0)};
}

TEST(ReplayOverlapTest, TheNextTurnHitsTheReply) {
  const ReplayReport report = Overlap(Conversation(400), {20});
  EXPECT_EQ(report.overlap->reply_blocks, 2u);
  EXPECT_EQ(report.overlap->found_reply_blocks, 2u);
  EXPECT_EQ(report.blocks_hit, 4u);
  EXPECT_EQ(report.blocks_requested, 9u);
}

TEST(ReplayOverlapTest, ARunningReplyIsFoundAsFarAsItIs) {
  // Block 4 is full with the 8th token of the reply, at 120 ms; block 5 with the 24th, at 280 ms.
  EXPECT_EQ(Overlap(Conversation(119), {20}).blocks_hit, 2u);
  EXPECT_EQ(Overlap(Conversation(121), {20}).blocks_hit, 3u);
  EXPECT_EQ(Overlap(Conversation(279), {20}).blocks_hit, 3u);
  EXPECT_EQ(Overlap(Conversation(281), {20}).blocks_hit, 4u);
}

TEST(ReplayOverlapTest, AReplyTakesBlocksFromTheCache) {
  // Three blocks stay cached besides the prompt, but the reply of 40 tokens takes one more.
  std::vector<TraceRequest> requests = {Request(0, {7}, 16, 0), Request(100, {8}, 16, 0),
                                        Request(200, {1}, 16, 40), Request(1000, {7}, 16, 0)};
  EXPECT_EQ(Overlap(requests, {5}).blocks_hit, 0u);
  EXPECT_EQ(Overlap(requests, {6}).blocks_hit, 1u);
  requests[2].output_tokens = 0;
  EXPECT_EQ(Overlap(requests, {4}).blocks_hit, 1u);
}

TEST(ReplayOverlapTest, ARequestThatNeverFitsIsSkipped) {
  const std::vector<TraceRequest> requests = {Request(0, {1, 2}, 32, 16),
                                              Request(1, {1, 2}, 32, 17),
                                              Request(2, {1, 2, 3}, 48, 0), Request(3, {}, 0, 0)};
  const ReplayReport report = Overlap(requests, {3});
  EXPECT_EQ(report.requests, 4u);
  EXPECT_EQ(report.skipped_requests, 2u);
  EXPECT_EQ(report.blocks_requested, 7u);
  EXPECT_EQ(report.blocks_hit, 0u);
}

TEST(ReplayOverlapTest, RatesMustBeAboveZero) {
  for (const ServiceModel& bad : {ServiceModel{0, 1}, ServiceModel{1, 0}, ServiceModel{-1, 1}}) {
    EXPECT_FALSE(
        ReplayTrace({}, {.tier_blocks = {1}, .policy = "", .on_request = {}, .service = bad}).ok());
  }
}

// With replies of no tokens and instant service, requests run one by one.
TEST(ReplayOverlapTest, AnInstantServiceIsOneByOne) {
  const auto trace = ReadTrace(CHAT_TRACE);
  ASSERT_TRUE(trace.ok()) << trace.status();
  std::vector<TraceRequest> requests = trace->requests;
  for (TraceRequest& request : requests) {
    request.output_tokens = 0;
    request.input_tokens.reset();
  }
  for (const std::string_view policy : EvictionPolicyNames()) {
    for (const auto& [tiers, last] :
         std::vector<std::pair<std::vector<uint32_t>, LastTier>>{{{100}, LastTier::kMemory},
                                                                 {{100, 200}, LastTier::kMemory},
                                                                 {{100, 200}, LastTier::kDisk}}) {
      ReplayOptions options = {
          .tier_blocks = tiers, .policy = std::string(policy), .on_request = {}, .last_tier = last};
      const auto one_by_one = ReplayTrace(requests, options);
      options.service = ServiceModel{1e15, 1e15};
      const auto instant = ReplayTrace(requests, options);
      ASSERT_TRUE(one_by_one.ok() && instant.ok());
      EXPECT_EQ(one_by_one->blocks_hit, instant->blocks_hit) << policy;
      EXPECT_EQ(one_by_one->evictions, instant->evictions) << policy;
      EXPECT_EQ(one_by_one->onboards, instant->onboards) << policy;
      EXPECT_EQ(one_by_one->lower_blocks_hit, instant->lower_blocks_hit) << policy;
    }
  }
}

// Random conversations: each request continues an earlier one, or begins with a shared prefix.
std::vector<TraceRequest> RandomChats(uint64_t seed) {
  std::mt19937_64 random(seed);
  uint64_t next_id = 10;
  std::vector<TraceRequest> requests;
  int64_t time = 0;
  for (int i = 0; i < 150; ++i) {
    TraceRequest request;
    request.timestamp_ms = time += random() % 200;
    uint64_t tokens = 0;
    if (!requests.empty() && random() % 3 > 0) {
      const TraceRequest& before = requests[random() % requests.size()];
      request.hash_ids = before.hash_ids;
      if (*before.input_tokens % kBlock > 0) request.hash_ids.pop_back();
      tokens = *before.input_tokens + before.output_tokens;
    } else {
      request.hash_ids = {random() % 3};
      tokens = kBlock;
    }
    request.input_tokens = static_cast<uint32_t>(tokens + random() % 50);
    while (request.hash_ids.size() * kBlock < *request.input_tokens) {
      request.hash_ids.push_back(++next_id);
    }
    request.output_tokens = random() % 60;
    requests.push_back(std::move(request));
  }
  return requests;
}

// No reply is cut, and requests never have more blocks than there are: the promise of the header.
TEST(ReplayOverlapTest, RepliesAlwaysGetTheirBlocks) {
  bool some_waited = false;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const std::vector<TraceRequest> requests = RandomChats(seed);
    for (const std::string_view policy : EvictionPolicyNames()) {
      for (const std::vector<uint32_t>& tiers :
           {std::vector<uint32_t>{40}, {80}, {40, 60}, {60, 30, 30}}) {
        SCOPED_TRACE(testing::Message() << "seed " << seed << ", " << policy << ", " << tiers[0]);
        const ReplayReport report = Overlap(requests, tiers, std::string(policy));
        EXPECT_EQ(report.overlap->cut_replies, 0u);
        EXPECT_LE(report.overlap->most_held_blocks, tiers[0]);
        EXPECT_EQ(report.requests, requests.size());
        EXPECT_LE(report.overlap->found_reply_blocks, report.overlap->reply_blocks);
        some_waited = some_waited || report.overlap->waiting_requests > 0;
      }
    }
    const ReplayReport unlimited = Overlap(requests, {});
    EXPECT_EQ(unlimited.evictions, 0u);
    EXPECT_EQ(unlimited.overlap->waiting_requests, 0u);
    EXPECT_GE(unlimited.blocks_hit, Overlap(requests, {80}).blocks_hit);
  }
  EXPECT_TRUE(some_waited);
}

TEST(ReplayOverlapTest, CallsBackOncePerRequest) {
  uint64_t calls = 0;
  const auto report =
      ReplayTrace(RandomChats(1), {.tier_blocks = {40},
                                   .policy = "",
                                   .on_request = [&calls](const ReplayReport&) { ++calls; },
                                   .tokens_per_block = kBlock,
                                   .service = kService});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(calls, 150u);
}

}  // namespace
}  // namespace pagoda
