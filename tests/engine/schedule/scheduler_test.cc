// The scheduler over a real manager, real pools and real copies, with a model whose answers can be
// predicted. Every answer must be the one that its request gets alone.
#include "engine/schedule/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "base/error.h"
#include "engine/basic_cache/basic_cache_client.h"
#include "tests/engine/sampling/plain_sampler.h"
#include "tests/engine/schedule/arithmetic_model.h"
#include "tests/engine/schedule/scheduler_world.h"

namespace pagoda {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kTokensPerBlock = SchedulerWorld::kTokensPerBlock;
const std::vector<WindowSize> kFull = {kFullAttention};
const std::vector<WindowSize> kTwoWindows = {WindowSize(20), kFullAttention};

using World = SchedulerWorld;
using Outcome = SchedulerWorld::Outcome;

GenerateRequest Request(uint64_t seed, size_t prompt_tokens, uint32_t max_new_tokens) {
  return RandomRequest(seed, prompt_tokens, max_new_tokens);
}

class WindowsTest : public testing::TestWithParam<std::vector<WindowSize>> {};
INSTANTIATE_TEST_SUITE_P(Windows, WindowsTest, testing::Values(kFull, kTwoWindows),
                         [](const auto& param) {
                           return param.index == 0 ? "Full" : "SlidingAndFull";
                         });

TEST_P(WindowsTest, OneRequest) {
  World world({.windows = GetParam()});
  world.ExpectSoloAnswers({Request(1, 30, 40)});
  EXPECT_EQ(world.stats().computed_tokens, 30u + 39u) << "the last token is not computed";
}

TEST_P(WindowsTest, ChunksOfAPrompt) {
  for (const uint32_t budget : {1u, 3u, 7u, 8u, 9u}) {
    World world({.windows = GetParam(), .options = {.max_step_tokens = budget}});
    world.ExpectSoloAnswers({Request(2, 61, 20)});
    EXPECT_LE(world.model().most_tokens(), budget);
  }
}

TEST_P(WindowsTest, ManyAtOnceGoThroughTheModelTogether) {
  World world({.windows = GetParam(), .blocks = {.primary_blocks = 256}});
  std::vector<GenerateRequest> requests;
  for (uint64_t i = 0; i < 16; ++i) {
    requests.push_back(Request(i, 5 + i, 20));
    // The prompts have no common beginning, so no block is copied.
    requests.back().prompt[0] = static_cast<TokenId>(i);
  }
  world.ExpectSoloAnswers(requests);
  EXPECT_EQ(world.model().most_sequences(), 16u);
  EXPECT_LT(world.stats().steps, 40u);
}

TEST_P(WindowsTest, APrefixIsComputedOnce) {
  World world({.windows = GetParam()});
  GenerateRequest request = Request(3, 40, 5);
  world.ExpectSoloAnswers({request});
  const uint64_t computed = world.stats().computed_tokens;
  request.prompt.push_back(1);
  Outcome& outcome = world.Add(request);
  world.RunUntilIdle();
  world.ExpectSoloAnswer(request, outcome);
  EXPECT_EQ(outcome.report->reused_tokens, 40u);
  EXPECT_EQ(world.stats().computed_tokens - computed, 1u + 4u);
}

TEST_P(WindowsTest, APreemptedSequenceGoesOnLater) {
  for (const Preemption preemption : {Preemption::kOffload, Preemption::kRecompute}) {
    for (const uint32_t lower : {0u, 32u}) {
      World world({.windows = GetParam(),
                   .blocks = {.primary_blocks = 12, .lower_blocks = lower},
                   .options = {.preemption = preemption}});
      std::vector<GenerateRequest> requests;
      for (uint64_t i = 0; i < 6; ++i) requests.push_back(Request(i, 20 + i, 50));
      world.ExpectSoloAnswers(requests);
      EXPECT_GT(world.stats().preemptions, 0u);
    }
  }
}

TEST_P(WindowsTest, SamplesShareThePrompt) {
  World world({.windows = GetParam(), .blocks = {.primary_blocks = 128}});
  GenerateRequest request = Request(4, 43, 24);
  request.num_samples = 6;
  request.sampling = {.temperature = 1.5f, .seed = 77};
  world.ExpectSoloAnswers({request});
  // The prompt once, and each sample's own tokens.
  EXPECT_EQ(world.stats().computed_tokens, 43u + 6 * 23u);
  const auto answers = ArithmeticModel::ExpectedAnswer(request, GetParam());
  EXPECT_NE(answers[0], answers[1]) << "the samples differ";
}

// The cached KV of an answer has the keys of its tokens, so a continuation finds it.
TEST_P(WindowsTest, WhoContinuesASampleFindsItsOwnTokens) {
  World world({.windows = GetParam(), .blocks = {.primary_blocks = 256}, .period = 5});
  GenerateRequest request = Request(14, 21, 30);
  request.num_samples = 4;
  request.max_draft_tokens = 3;
  request.sampling = {.temperature = 1.0f, .seed = 3};
  world.ExpectSoloAnswers({request});
  for (const auto& answer : ArithmeticModel::ExpectedAnswer(request, GetParam(), 5)) {
    // With the right continuation, and with one that repeats its first token.
    for (const size_t twice : {size_t{0}, size_t{1}}) {
      GenerateRequest next = Request(0, 0, 8);
      next.prompt = request.prompt;
      if (twice == 1) next.prompt.push_back(answer.front());
      next.prompt.insert(next.prompt.end(), answer.begin(), answer.end());
      Outcome& outcome = world.Add(next);
      world.RunUntilIdle();
      world.ExpectSoloAnswer(next, outcome);
      if (twice == 1) continue;
      EXPECT_GE(outcome.report->reused_tokens, 21u + 24u);
    }
  }
  EXPECT_EQ(world.model().unwritten_reads(), 0u);
}

TEST_P(WindowsTest, DraftTokensOfAPreemptedSequence) {
  for (const uint64_t seed : {1, 2, 3, 4}) {
    World world(
        {.windows = GetParam(), .blocks = {.primary_blocks = 14, .lower_blocks = 16}, .period = 5});
    std::vector<GenerateRequest> requests;
    for (uint64_t i = 0; i < 6; ++i) {
      requests.push_back(Request(seed * 10 + i, 18 + i, 50));
      requests.back().max_draft_tokens = 6;
    }
    world.ExpectSoloAnswers(requests);
    EXPECT_GT(world.stats().preemptions, 0u);
    EXPECT_GT(world.stats().accepted_draft_tokens, 0u);
  }
}

TEST(SchedulerTest, WhatTheCacheRefusesEndsAndTheOthersRun) {
  World world({});
  GenerateRequest refused = Request(1, 20, 5);
  refused.name_space.cache_salt = std::string(5000, 'x');
  std::vector<Outcome*> ends;
  for (int i = 0; i < 9; ++i) ends.push_back(&world.Add(refused));
  Outcome& good = world.Add(Request(2, 20, 5));
  world.RunUntilIdle();
  for (const Outcome* outcome : ends) {
    EXPECT_EQ(ReasonOf(outcome->report.status()), Reason::kInvalidArgument);
  }
  world.ExpectSoloAnswer(Request(2, 20, 5), good);
  EXPECT_TRUE(world.cache().NothingHeld());
}

// An error of the model or of memory: other requests continue, and the KV of the step is not
// reused.
TEST_P(WindowsTest, LogitsThatAreNoNumbersEndTheirRequestAlone) {
  const auto draw = [](const TokenDraw& row, absl::Span<const float> logits) -> uint32_t {
    for (const float logit : logits) {
      if (std::isnan(logit)) return kNoNumber;
    }
    return ChoosePlainly({.temperature = row.temperature, .top_k = row.top_k}, logits, {},
                         row.uniform);
  };
  for (const auto& [all, draws] : {std::pair(true, false), std::pair(false, false),
                                   std::pair(true, true), std::pair(false, true)}) {
    World::Setting setting = {
        .windows = GetParam(), .period = 5, .no_numbers_at = 39, .all_are_none = all};
    if (draws) setting.draw = draw;
    World world(std::move(setting));
    std::vector<GenerateRequest> requests;
    // Behind the prompt, behind a chosen token, behind draft tokens; with one sample and with
    // several.
    for (const size_t prompt : {40, 32, 20}) {
      requests.push_back(Request(prompt, prompt, 40));
      requests.push_back(Request(1 + prompt, prompt, 40));
      requests.back().max_draft_tokens = 4;
      requests.back().num_samples = 3;
      requests.push_back(Request(2 + prompt, prompt, 40));
      requests.back().sampling = {.temperature = 1, .top_k = 3, .seed = 4, .top_logprobs = 2};
      requests.push_back(Request(3 + prompt, 10, 29));  // Ends earlier.
    }
    std::vector<Outcome*> outcomes;
    for (const GenerateRequest& request : requests) outcomes.push_back(&world.Add(request));
    world.RunUntilIdle();
    for (size_t i = 0; i < requests.size(); ++i) {
      SCOPED_TRACE(testing::Message() << "request " << i);
      if (i % 4 == 3) {
        world.ExpectSoloAnswer(requests[i], *outcomes[i]);
        continue;
      }
      ASSERT_TRUE(outcomes[i]->ended);
      EXPECT_EQ(outcomes[i]->report.status(),
                absl::InternalError("one of the model's logits is NaN"));
    }
    EXPECT_TRUE(world.cache().NothingHeld());
    EXPECT_EQ(world.stats().running_requests + world.stats().waiting_requests, 0u);
    const uint64_t reused = world.stats().reused_tokens;
    world.Add(requests.front());
    world.RunUntilIdle();
    EXPECT_LT(world.stats().reused_tokens - reused, kTokensPerBlock) << "of its 40 tokens";
  }
}

TEST_P(WindowsTest, SamplesOfOneToken) {
  World world({.windows = GetParam()});
  GenerateRequest request = Request(5, 17, 1);
  request.num_samples = 4;
  request.sampling = {.temperature = 1.0f, .seed = 5};
  world.ExpectSoloAnswers({request});
}

TEST_P(WindowsTest, SamplesThatDoNotFitTogether) {
  World world({.windows = GetParam(), .blocks = {.primary_blocks = 14, .lower_blocks = 16}});
  GenerateRequest request = Request(6, 30, 40);
  request.num_samples = 5;
  request.sampling = {.temperature = 1.0f, .seed = 9};
  world.ExpectSoloAnswers({request, Request(7, 25, 30)});
  EXPECT_GT(world.stats().preemptions, 0u);
}

// A prompt that repeats itself, so that draft tokens are proposed; most of them are wrong.
GenerateRequest Repetitive(uint64_t seed) {
  GenerateRequest request = Request(seed, 6, 60);
  const std::vector<TokenId> once = request.prompt;
  for (int i = 0; i < 4; ++i) {
    request.prompt.insert(request.prompt.end(), once.begin(), once.end());
  }
  request.max_draft_tokens = 5;
  return request;
}

TEST_P(WindowsTest, DraftTokensDoNotChangeTheAnswer) {
  World world({.windows = GetParam(), .blocks = {.primary_blocks = 128}});
  std::vector<GenerateRequest> requests;
  for (uint64_t i = 0; i < 8; ++i) {
    requests.push_back(Repetitive(i));
    requests.back().sampling = {.temperature = i % 2 == 0 ? 0.0f : 0.4f, .seed = i};
  }
  world.ExpectSoloAnswers(requests);
  EXPECT_GT(world.stats().drafted_tokens, 0u);
  EXPECT_LT(world.stats().accepted_draft_tokens, world.stats().drafted_tokens);
}

// With a model that draws: its tokens are taken, and everything that needs logits still gets them.
TEST_P(WindowsTest, TokensThatTheModelDrawsAreTheAnswer) {
  uint64_t drawn = 0;
  const auto draw = [&](const TokenDraw& row, absl::Span<const float> logits) -> uint32_t {
    ++drawn;
    for (const float logit : logits) {
      if (std::isnan(logit)) return kNoNumber;
    }
    return ChoosePlainly({.temperature = row.temperature, .top_k = row.top_k, .top_p = row.top_p},
                         logits, {}, row.uniform);
  };
  World world({.windows = GetParam(), .blocks = {.primary_blocks = 256}, .draw = draw});
  std::vector<GenerateRequest> requests;
  for (const SamplingParams& sampling :
       {SamplingParams{}, SamplingParams{.temperature = 0.4f, .seed = 3},
        SamplingParams{.temperature = 1.0f, .top_k = 7, .seed = 4},
        SamplingParams{.temperature = 0.8f, .top_p = 0.7f, .seed = 5}}) {
    requests.push_back(Request(20 + requests.size(), 12, 20));
    requests.back().sampling = sampling;
    requests.push_back(Repetitive(requests.size()));
    requests.back().sampling = sampling;
    requests.push_back(Request(20 + requests.size(), 9, 15));
    requests.back().sampling = sampling;
    requests.back().num_samples = 3;
  }
  world.ExpectSoloAnswers(requests);
  EXPECT_GT(drawn, 300u);
  // These need logits.
  drawn = 0;
  requests = {Request(50, 12, 20), Request(51, 12, 20), Request(52, 12, 20)};
  requests[0].sampling = {.temperature = 1.0f, .repetition_penalty = 1.3f, .seed = 6};
  requests[1].sampling = {.top_logprobs = 3};
  requests[2].sampling = {.temperature = 1.0f, .top_k = 300, .seed = 7};
  world.ExpectSoloAnswers(requests);
  EXPECT_EQ(drawn, 0u);
}

TEST(SchedulerTest, AcceptedDraftTokensSaveSteps) {
  World plain({.period = 5}), drafting({.period = 5});
  GenerateRequest request = Request(8, 10, 200);
  plain.ExpectSoloAnswers({request});
  request.max_draft_tokens = 4;
  drafting.ExpectSoloAnswers({request});
  EXPECT_GT(drafting.stats().accepted_draft_tokens, 20u);
  EXPECT_EQ(drafting.stats().steps + drafting.stats().accepted_draft_tokens, plain.stats().steps);
}

TEST(SchedulerTest, AStopTokenEndsASample) {
  World world({});
  GenerateRequest request = Request(9, 12, 30);
  const auto whole = ArithmeticModel::ExpectedAnswer(request, kFull).front();
  request.stop_tokens = {whole[7]};
  Outcome& outcome = world.Add(request);
  world.RunUntilIdle();
  world.ExpectSoloAnswer(request, outcome);
  EXPECT_EQ(outcome.report->finish_reasons, std::vector<FinishReason>({FinishReason::kStopToken}));
  EXPECT_LE(outcome.report->generated_tokens, 8u);
}

TEST(SchedulerTest, ACallerEndsOneSampleAndTheOthersGoOn) {
  World world({});
  GenerateRequest request = Request(9, 12, 30);
  request.num_samples = 3;
  uint32_t seen = 0;
  request.ends_sample = [&](const GeneratedToken& token) {
    return token.sample == 1 && ++seen == 4;
  };
  Outcome& outcome = world.Add(request);
  world.RunUntilIdle();
  ASSERT_TRUE(outcome.report.ok()) << outcome.report.status();
  EXPECT_EQ(outcome.samples[0].size(), 30u);
  EXPECT_EQ(outcome.samples[1].size(), 4u);
  EXPECT_EQ(outcome.samples[2].size(), 30u);
  EXPECT_EQ(outcome.report->finish_reasons[0], FinishReason::kLength);
  EXPECT_EQ(outcome.report->finish_reasons[1], FinishReason::kStopToken);
}

TEST(SchedulerTest, TheHigherPriorityTakesTheBlocks) {
  World world({.blocks = {.primary_blocks = 12}});
  GenerateRequest low = Request(10, 40, 40);
  GenerateRequest high = Request(11, 40, 40);
  high.priority = 1;
  Outcome& first = world.Add(low);
  world.RunSteps(10);
  Outcome& second = world.Add(high);
  world.RunUntilIdle();
  world.ExpectSoloAnswer(low, first);
  world.ExpectSoloAnswer(high, second);
  EXPECT_LT(second.ended_in_step, first.ended_in_step);
  EXPECT_GT(first.report->preemptions, 0u);
  EXPECT_EQ(second.report->preemptions, 0u);
}

// Twelve requests that share nothing have too few blocks. What a preempted one finds of its own is
// no hit.
TEST(SchedulerTest, WhatIsComputedAgainIsNoHit) {
  World world({.blocks = {.primary_blocks = 24}});
  std::vector<GenerateRequest> requests;
  for (uint64_t i = 0; i < 12; ++i) requests.push_back(Request(100 + i, 20, 30));
  requests.back().num_samples = 3;
  world.ExpectSoloAnswers(requests);
  EXPECT_GT(world.stats().preemptions, 3u);
  const WindowStats window = world.cache().manager().Read(&BlockManager::Stats).windows.front();
  EXPECT_EQ(window.counters.prefix_lookup_tokens, 12u * 20);
  EXPECT_EQ(window.counters.prefix_hit_tokens, 0u);
  EXPECT_EQ(window.reuse_distances.hits, 0);
}

TEST(SchedulerTest, ATenantWithManyRequestsDoesNotKeepOthersWaiting) {
  World world({.options = {.max_running_sequences = 1},
               .tenants = {{.name = "many", .shares = true}, {.name = "one", .shares = true}}});
  std::vector<Outcome*> many;
  for (uint64_t i = 0; i < 10; ++i) {
    GenerateRequest request = Request(i, 10, 10);
    request.tenant = "many";
    many.push_back(&world.Add(request));
  }
  GenerateRequest one = Request(99, 10, 10);
  one.tenant = "one";
  Outcome& single = world.Add(one);
  world.RunUntilIdle();
  EXPECT_LT(single.ended_in_step, many[2]->ended_in_step);
}

TEST(SchedulerTest, ACancelledRequestGivesEverythingBack) {
  for (const int steps : {0, 1, 2, 5, 9}) {
    World world({.options = {.max_step_tokens = 8}});
    bool cancel = false;
    GenerateRequest request = Request(12, 30, 30);
    request.num_samples = 3;
    request.cancelled = [&] { return cancel; };
    Outcome& outcome = world.Add(request);
    Outcome& other = world.Add(Request(13, 20, 20));
    world.RunSteps(steps);
    cancel = true;
    world.RunUntilIdle();
    EXPECT_EQ(outcome.report.status().code(), absl::StatusCode::kCancelled);
    world.ExpectSoloAnswer(Request(13, 20, 20), other);
    EXPECT_TRUE(world.cache().NothingHeld());
  }
}

TEST(SchedulerTest, BlocksThatOthersHoldAreAwaitedAndThenRefused) {
  World world(
      {.blocks = {.primary_blocks = 8}, .options = {.capacity_timeout = absl::Milliseconds(30)}});
  const std::unique_ptr<CacheClient> other = world.cache().OpenClient();
  const auto held = RunOne<AllocatedBlocks>(*other, AllocateBlocks{.count = 6});
  ASSERT_TRUE(held.ok());
  Outcome& outcome = world.Add(Request(14, 30, 10));
  world.RunUntilIdle();
  EXPECT_EQ(ReasonOf(outcome.report.status()), Reason::kBlocksExhausted);
  EXPECT_THAT(std::string(outcome.report.status().message()), HasSubstr("other clients"));
  std::vector<BlockRef> refs;
  for (const BlockHandle& block : held->blocks) refs.push_back(block.ref());
  Outcome& late = world.Add(Request(14, 30, 10));
  world.RunSteps(3);
  ASSERT_TRUE(RunOne<FreedBlocks>(*other, FreeBlocks{.blocks = refs}).ok());
  world.RunUntilIdle();
  world.ExpectSoloAnswer(Request(14, 30, 10), late);
}

TEST(SchedulerTest, CheckCapacityCountsTheWindowsBlocks) {
  CacheInfo cache{.tokens_per_block = 8,
                  .windows = {{.window = WindowSize(16), .blocks = {4}},
                              {.window = kFullAttention, .blocks = {6}}}};
  EXPECT_TRUE(Scheduler::CheckCapacity(cache, Request(1, 40, 9)).ok());
  EXPECT_EQ(ReasonOf(Scheduler::CheckCapacity(cache, Request(1, 40, 10))), Reason::kInvalidCount);
  cache.windows[0].blocks = {3};
  EXPECT_THAT(std::string(Scheduler::CheckCapacity(cache, Request(1, 40, 9)).message()),
              HasSubstr("window 16"));
}

// --- The basic cache ---

TEST_P(WindowsTest, TheBasicCacheGivesTheSameAnswers) {
  absl::StatusOr<std::unique_ptr<CacheClient>> client =
      MakeBasicCacheClient({.spec = ArithmeticModel::Spec(GetParam(), kTokensPerBlock),
                            .max_sequences = 5,
                            .max_sequence_tokens = 100});
  ASSERT_TRUE(client.ok()) << client.status();
  ArithmeticModel model(**client, GetParam(), kTokensPerBlock, 5);
  Scheduler scheduler({.max_step_tokens = 16}, client->get(), GetParam(),
                      [&](const ModelInput& input) { return model.Forward(input); });
  std::vector<GenerateRequest> requests;
  for (uint64_t i = 0; i < 12; ++i) {
    requests.push_back(Request(i, 20 + i, 40));
    requests.back().num_samples = i % 4 == 0 ? 3 : 1;
    requests.back().max_draft_tokens = i % 2 == 0 ? 4 : 0;
    requests.back().sampling = {.temperature = 0.7f, .seed = i};
  }
  std::vector<std::vector<std::vector<TokenId>>> answers(requests.size());
  size_t ended = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    answers[i].resize(requests[i].num_samples);
    scheduler.Add(Arrived(
        requests[i],
        [&answers, i](const GeneratedToken& token) {
          answers[i][token.sample].push_back(token.token);
          return true;
        },
        [&ended](const absl::StatusOr<GenerateReport>& report) {
          EXPECT_TRUE(report.ok()) << report.status();
          ++ended;
        }));
  }
  for (int step = 0; !scheduler.idle() && step < 10'000; ++step) {
    scheduler.Step();
    scheduler.ReportEnds();
  }
  EXPECT_EQ(ended, requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(answers[i], ArithmeticModel::ExpectedAnswer(requests[i], GetParam(), 5));
  }
  EXPECT_EQ(scheduler.stats().reused_tokens, 0u);
}

}  // namespace
}  // namespace pagoda
