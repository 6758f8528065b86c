// Hundreds of requests of several tenants on a small pool, some of them cancelled: every answer is
// the one that its request gets alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/schedule/scheduler.h"
#include "tests/engine/schedule/arithmetic_model.h"
#include "tests/engine/schedule/scheduler_world.h"

namespace pagoda {
namespace {

using World = SchedulerWorld;
using Outcome = SchedulerWorld::Outcome;

struct Crowd {
  std::vector<GenerateRequest> requests;
  std::vector<int64_t> cancel_after;  // Steps after its arrival; -1: not cancelled.
};

Crowd MakeCrowd(uint64_t seed, size_t count) {
  std::mt19937_64 random(seed);
  Crowd crowd;
  const std::vector<TokenId> shared = RandomTokens(random, 40, ArithmeticModel::kVocabSize);
  for (size_t i = 0; i < count; ++i) {
    // Some share a prefix, in whole blocks or not.
    std::vector<TokenId> prompt(
        shared.begin(),
        shared.begin() + static_cast<ptrdiff_t>(random() % 2 == 0 ? 0 : random() % 40));
    const auto own = RandomTokens(random, 1 + random() % 40, ArithmeticModel::kVocabSize);
    prompt.insert(prompt.end(), own.begin(), own.end());
    GenerateRequest request{.prompt = std::move(prompt),
                            .max_new_tokens = 1 + static_cast<uint32_t>(random() % 40)};
    request.num_samples = random() % 5 == 0 ? 1 + static_cast<uint32_t>(random() % 4) : 1;
    request.max_draft_tokens = random() % 3 == 0 ? 4 : 0;
    if (random() % 2 == 0) {
      request.sampling = {.temperature = 0.8f,
                          .top_k = static_cast<uint32_t>(random() % 3),
                          .top_p = random() % 2 == 0 ? 1.0f : 0.9f,
                          .repetition_penalty = random() % 2 == 0 ? 1.0f : 1.2f,
                          .seed = random()};
    }
    request.priority = static_cast<int32_t>(random() % 2);
    // Three tenants have quotas, and two share.
    const uint64_t tenant = random() % 4;
    request.tenant = "tenant " + std::to_string(tenant);
    if (tenant < 2) request.name_space.tenant = request.tenant;
    crowd.requests.push_back(std::move(request));
    crowd.cancel_after.push_back(random() % 6 == 0 ? static_cast<int64_t>(random() % 300) : -1);
  }
  return crowd;
}

// A crowd whose requests have arrived, and what became of them.
struct CrowdRun {
  Crowd crowd;
  int64_t step = 0;
  std::vector<const Outcome*> outcomes = {};
  std::vector<int64_t> arrivals = {};  // In steps.
  std::vector<bool> heard = {};        // Whether the request's end was seen.
  int64_t longest = 0;  // The longest wait of requests of the higher priority, in steps.
};

void AddNextOfCrowd(World& world, CrowdRun& run) {
  const size_t i = run.outcomes.size();
  const int64_t after = run.crowd.cancel_after[i];
  const int64_t end = after < 0 ? -1 : run.step + after;
  run.crowd.requests[i].cancelled = [&run, end] { return end >= 0 && run.step >= end; };
  run.outcomes.push_back(&world.Add(run.crowd.requests[i]));
  run.arrivals.push_back(run.step);
}

void HearEndsInCrowd(CrowdRun& run) {
  run.heard.resize(run.crowd.requests.size());
  for (size_t i = 0; i < run.outcomes.size(); ++i) {
    if (run.heard[i] || !run.outcomes[i]->ended) continue;
    run.heard[i] = true;
    if (run.crowd.requests[i].priority == 1) {
      run.longest = std::max(run.longest, run.step - run.arrivals[i]);
    }
  }
}

// Requests arrive faster than they are answered.
void RunCrowd(World& world, uint64_t seed, bool copies_take_steps, CrowdRun& run) {
  const size_t count = run.crowd.requests.size();
  std::mt19937_64 arriving(seed + 100);
  for (; run.outcomes.size() < count || !world.scheduler().idle(); ++run.step) {
    ASSERT_LT(run.step, 20'000) << "nobody starves";
    for (uint64_t n = arriving() % 3; n > 0 && run.outcomes.size() < count; --n) {
      AddNextOfCrowd(world, run);
    }
    world.RunSteps(1);
    if (!copies_take_steps) world.cache().WaitForCopies();
    HearEndsInCrowd(run);
  }
}

// Returns how many were cancelled before their end.
int ExpectSoloAnswersOfCrowd(World& world, const CrowdRun& run) {
  int cancelled = 0;
  for (size_t i = 0; i < run.outcomes.size(); ++i) {
    SCOPED_TRACE(testing::Message() << "request " << i);
    if (run.crowd.cancel_after[i] >= 0 && !run.outcomes[i]->report.ok()) {
      EXPECT_EQ(run.outcomes[i]->report.status().code(), absl::StatusCode::kCancelled);
      ++cancelled;
      continue;
    }
    world.ExpectSoloAnswer(run.crowd.requests[i], *run.outcomes[i]);
  }
  return cancelled;
}

// The cache has the KV of their answers: conversations continue from it.
void ExpectConversationsContinue(World& world, const CrowdRun& run) {
  for (size_t i = 0; i < run.outcomes.size(); i += 5) {
    if (!run.outcomes[i]->report.ok()) continue;
    GenerateRequest next = run.crowd.requests[i];
    next.cancelled = nullptr;
    next.num_samples = 1;
    const std::vector<TokenId>& said = run.outcomes[i]->samples.back();
    next.prompt.insert(next.prompt.end(), said.begin(), said.end());
    Outcome& outcome = world.Add(next);
    world.RunUntilIdle();
    world.ExpectSoloAnswer(next, outcome);
  }
}

class CrowdTest : public testing::TestWithParam<std::vector<WindowSize>> {};
INSTANTIATE_TEST_SUITE_P(Windows, CrowdTest,
                         testing::Values(std::vector<WindowSize>{kFullAttention},
                                         std::vector<WindowSize>{WindowSize(20), kFullAttention}),
                         [](const auto& param) {
                           return param.index == 0 ? "Full" : "SlidingAndFull";
                         });

TEST_P(CrowdTest, FiveHundredRequestsOnASmallPool) {
  for (const uint64_t seed : {1, 2, 3}) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    CrowdRun run{.crowd = MakeCrowd(seed, 500)};
    std::mt19937_64 random(seed);
    World world({.windows = GetParam(),
                 .blocks = {.primary_blocks = 40, .lower_blocks = 24},
                 .options = {.max_step_tokens = 48, .max_running_sequences = 24},
                 // From time to time a copy is lost.
                 .before_copy =
                     [&random, seed](const Order&) {
                       return seed == 3 && random() % 50 == 0 ? absl::DataLossError("planted")
                                                              : absl::OkStatus();
                     },
                 .period = seed == 2 ? 7u : 0u,
                 .tenants = {{.name = "tenant 0", .quota_blocks = {20, kNoQuota}},
                             {.name = "tenant 1", .quota_blocks = {24, kNoQuota}},
                             {.name = "tenant 2", .shares = true, .quota_blocks = {22, kNoQuota}},
                             {.name = "tenant 3", .shares = true}}});
    // Steps without a model are faster than copies, so the number of steps per copy depends on the
    // machine. With one seed a copy takes no step, so that the test counts only the scheduler's
    // steps.
    const bool copies_take_steps = seed != 1;
    ASSERT_NO_FATAL_FAILURE(RunCrowd(world, seed, copies_take_steps, run));
    // It is 30 to 32 % of all steps, and 75 to 76 % if all have the same priority.
    if (!copies_take_steps) {
      EXPECT_LT(run.longest, run.step * 9 / 20) << "the higher priority waits longer than it must";
    }
    const int cancelled = ExpectSoloAnswersOfCrowd(world, run);
    ExpectConversationsContinue(world, run);
    EXPECT_GT(cancelled, 20);
    EXPECT_GT(world.stats().preemptions, 0u);
    EXPECT_GT(world.stats().reused_tokens, 0u);
    EXPECT_TRUE(world.cache().NothingHeld());
    EXPECT_EQ(world.model().unwritten_reads(), 0u);
    EXPECT_EQ(world.stats().running_requests + world.stats().waiting_requests, 0u);
  }
}

}  // namespace
}  // namespace pagoda
