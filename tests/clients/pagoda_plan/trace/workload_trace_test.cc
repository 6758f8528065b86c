#include "clients/pagoda_plan/trace/workload_trace.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "clients/pagoda_plan/replay/replay_opt.h"
#include "clients/pagoda_plan/trace/prompt_builder.h"
#include "clients/pagoda_plan/trace/random_draws.h"
#include "clients/pagoda_plan/trace/trace_replies.h"
#include "gtest/gtest.h"

namespace pagoda {
namespace {

constexpr WorkloadKind kKinds[] = {WorkloadKind::kAgents, WorkloadKind::kChat,
                                   WorkloadKind::kShift};

Trace Generate(WorkloadKind kind, size_t requests = 1500, uint64_t seed = 1) {
  return GenerateWorkload({.kind = kind, .requests = requests, .hours = 0.5, .seed = seed});
}

std::string Written(const Trace& trace) {
  std::ostringstream out;
  WriteTrace(trace, out);
  return out.str();
}

TEST(PromptBuilderTest, EqualTextsGiveEqualIdsUntilTheyDiffer) {
  PromptBuilder one(16);
  one.Append(1, 20);
  one.Append(2, 30);
  PromptBuilder other = one;
  EXPECT_EQ(one.Ids(), other.Ids());
  EXPECT_EQ(one.Ids().size(), 4u) << "50 tokens";
  const std::vector<uint64_t> before = one.Ids();
  one.Append(3, 14);
  other.Append(4, 14);
  EXPECT_EQ(one.tokens(), 64u);
  EXPECT_EQ(one.Ids().size(), 4u);
  EXPECT_TRUE(std::equal(before.begin(), before.begin() + 3, one.Ids().begin()));
  EXPECT_NE(one.Ids()[3], before[3]) << "the partial block is full now";
  EXPECT_NE(one.Ids()[3], other.Ids()[3]);
  // Where a text is cut into blocks matters, not how it is appended.
  PromptBuilder shifted(16);
  shifted.Append(9, 1);
  shifted.Append(1, 20);
  EXPECT_NE(shifted.Ids()[0], one.Ids()[0]);
}

TEST(RandomDrawsTest, DrawsHaveTheirMeansAndMedians) {
  RandomDraws random(5);
  constexpr int kDraws = 40'000;
  std::vector<double> log_normal;
  double exponential = 0, geometric = 0, uniform = 0;
  for (int i = 0; i < kDraws; ++i) {
    exponential += random.Exponential(340);
    geometric += random.Geometric(3.5);
    uniform += random.Uniform();
    log_normal.push_back(random.LogNormal(900, 1.3));
  }
  EXPECT_NEAR(exponential / kDraws, 340, 10);
  EXPECT_NEAR(geometric / kDraws, 3.5, 0.1);
  EXPECT_NEAR(uniform / kDraws, 0.5, 0.01);
  std::sort(log_normal.begin(), log_normal.end());
  EXPECT_NEAR(log_normal[kDraws / 2], 900, 40);
  // One deviation above the median.
  EXPECT_NEAR(log_normal[kDraws * 8413 / 10000] / 900, std::exp(1.3), 0.2);
}

TEST(RandomDrawsTest, ZipfPrefersTheFirstRanks) {
  RandomDraws random(5);
  const ZipfRanks ranks(4, 1);
  std::map<size_t, int> count;
  for (int i = 0; i < 25'000; ++i) ++count[ranks.Draw(random)];
  // The weights 1, 1/2, 1/3 and 1/4 of 25/12.
  EXPECT_NEAR(count[0], 12'000, 400);
  EXPECT_NEAR(count[1], 6000, 300);
  EXPECT_NEAR(count[3], 3000, 250);
  EXPECT_EQ(count.size(), 4u);
}

TEST(WorkloadTraceTest, TheSameSeedGivesTheSameTrace) {
  for (const WorkloadKind kind : kKinds) {
    const std::string text = Written(Generate(kind));
    EXPECT_EQ(text, Written(Generate(kind)));
    EXPECT_NE(text, Written(Generate(kind, 1500, 2)));
  }
}

// FNV-1a of the text.
uint64_t DigestOf(const std::string& text) {
  uint64_t digest = 14695981039346656037u;
  for (const char c : text) digest = (digest ^ static_cast<uint8_t>(c)) * 1099511628211u;
  return digest;
}

// These were the digests when the test was written. Figures of generated traces are comparable only
// while they hold.
TEST(WorkloadTraceTest, IsTheSameOnEveryMachine) {
  EXPECT_EQ(DigestOf(Written(Generate(WorkloadKind::kAgents))), 0xc5362788e9459d4fu);
  EXPECT_EQ(DigestOf(Written(Generate(WorkloadKind::kChat))), 0x6b9d5a973871338bu);
  EXPECT_EQ(DigestOf(Written(Generate(WorkloadKind::kShift))), 0x8668d4f9da267f71u);
}

TEST(WorkloadTraceTest, ReadsBackAsItWasMade) {
  for (const WorkloadKind kind : kKinds) {
    for (const uint32_t tokens : {512u, 64u}) {
      const Trace made = GenerateWorkload(
          {.kind = kind, .requests = 200, .hours = 0.5, .tokens_per_block = tokens});
      std::istringstream in(Written(made));
      const auto read = ParseTrace(in, "made.jsonl", {});
      ASSERT_TRUE(read.ok()) << read.status();
      EXPECT_EQ(read->tokens_per_block, tokens);
      EXPECT_EQ(read->odd_lengths, 0u);
      ASSERT_EQ(read->requests.size(), 200u);
      for (size_t i = 0; i < 200; ++i) {
        const TraceRequest& request = read->requests[i];
        EXPECT_EQ(request.hash_ids, made.requests[i].hash_ids);
        EXPECT_EQ(request.timestamp_ms, made.requests[i].timestamp_ms);
        EXPECT_EQ(request.input_tokens, made.requests[i].input_tokens);
        EXPECT_EQ(request.output_tokens, made.requests[i].output_tokens);
        EXPECT_EQ(request.hash_ids.size(), (*request.input_tokens + tokens - 1) / tokens);
      }
    }
  }
}

TEST(WorkloadTraceTest, TimesRiseAndIdsCountFromZero) {
  for (const WorkloadKind kind : kKinds) {
    const Trace trace = Generate(kind);
    uint64_t next = 0;
    int64_t time = 0;
    for (const TraceRequest& request : trace.requests) {
      EXPECT_GE(request.timestamp_ms, time);
      time = request.timestamp_ms;
      for (const uint64_t id : request.hash_ids) {
        EXPECT_LE(id, next);
        next = std::max(next, id + 1);
      }
    }
  }
}

double MeanInput(const Trace& trace, size_t begin, size_t end) {
  double sum = 0;
  for (size_t i = begin; i < end; ++i) sum += *trace.requests[i].input_tokens;
  return sum / static_cast<double>(end - begin);
}

double HitRate(const Trace& trace, uint32_t blocks) {
  const auto report =
      ReplayOptimal(trace.requests, {.tier_blocks = {blocks}, .policy = "", .on_request = {}});
  EXPECT_TRUE(report.ok()) << report.status();
  return report->hit_rate();
}

TEST(WorkloadTraceTest, AgentsLoopBehindSharedPrefixes) {
  const Trace trace = Generate(WorkloadKind::kAgents, 4000);
  EXPECT_GT(MeanInput(trace, 0, 4000), 30'000);
  EXPECT_GT(HitRate(trace, 1'000'000), 0.9) << "a step repeats the steps before it";
  // Most requests are the next turn of another one, and some branch off from the same prefix.
  size_t continued = 0;
  std::map<uint64_t, int> by_last_full_block;
  for (const TraceTurn& turn : FindReplies(trace.requests, 512)) {
    continued += turn.next.has_value() ? 1 : 0;
    if (!turn.prompt_nodes.empty()) ++by_last_full_block[turn.prompt_nodes.back()];
  }
  EXPECT_GT(continued, 3000u);
  EXPECT_GT(std::count_if(by_last_full_block.begin(), by_last_full_block.end(),
                          [](const auto& entry) { return entry.second > 1; }),
            50);
  // The first blocks are the applications'.
  std::map<uint64_t, int> applications;
  for (const TraceRequest& request : trace.requests) ++applications[request.hash_ids.front()];
  EXPECT_LE(applications.size(), 40u);
  EXPECT_GE(applications.size(), 10u);
}

TEST(WorkloadTraceTest, ChatsAreShorterAndReturn) {
  const Trace trace = Generate(WorkloadKind::kChat, 4000);
  EXPECT_GT(MeanInput(trace, 0, 4000), 4000);
  EXPECT_LT(MeanInput(trace, 0, 4000), 20'000);
  const double most = HitRate(trace, 1'000'000);
  EXPECT_GT(most, 0.4);
  EXPECT_LT(most, 0.8);
}

TEST(WorkloadTraceTest, AShiftChangesItsNature) {
  const Trace trace = Generate(WorkloadKind::kShift, 4000);
  EXPECT_LT(MeanInput(trace, 0, 1800), 15'000);
  EXPECT_GT(MeanInput(trace, 2500, 4000), 25'000);
}

TEST(WorkloadTraceTest, NightsAreIdle) {
  const Trace trace =
      GenerateWorkload({.kind = WorkloadKind::kChat, .requests = 20'000, .hours = 240});
  // From 9 o'clock on, in hours of a day that lasts ten times as long. Conversations are short.
  std::vector<int> by_hour(24);
  for (const TraceRequest& request : trace.requests) {
    const int64_t hour = request.timestamp_ms / 36'000'000;
    if (hour < 24) ++by_hour[static_cast<size_t>((hour + 9) % 24)];
  }
  EXPECT_LT(5 * by_hour[3], by_hour[15]);
  EXPECT_GT(by_hour[3], 0);
}

TEST(WorkloadTraceTest, OnlyTheFirstRequestNamesOtherBlocks) {
  Trace trace;
  trace.tokens_per_block = 16;
  trace.requests = {{.timestamp_ms = 3, .hash_ids = {7, 8}, .input_tokens = 20, .output_tokens = 4},
                    {.timestamp_ms = 5, .hash_ids = {}}};
  EXPECT_EQ(Written(trace),
            "{\"timestamp\": 3, \"tokens_per_block\": 16, \"input_length\": 20, "
            "\"output_length\": 4, \"hash_ids\": [7, 8]}\n"
            "{\"timestamp\": 5, \"output_length\": 0, \"hash_ids\": []}\n");
}

}  // namespace
}  // namespace pagoda
