// Beam searches through the scheduler, over a real manager, real pools and real copies: every
// search finds what a plain one finds alone, however the cache is used meanwhile.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "base/error.h"
#include "engine/basic_cache/basic_cache_client.h"
#include "engine/schedule/request_demand.h"
#include "engine/schedule/scheduler.h"
#include "tests/engine/sampling/plain_beam_search.h"
#include "tests/engine/schedule/arithmetic_model.h"
#include "tests/engine/schedule/scheduler_world.h"

namespace pagoda {
namespace {

using ::testing::HasSubstr;
using World = SchedulerWorld;
using Outcome = SchedulerWorld::Outcome;

constexpr uint32_t kTokensPerBlock = World::kTokensPerBlock;
const std::vector<WindowSize> kFull = {kFullAttention};
const std::vector<WindowSize> kTwoWindows = {WindowSize(20), kFullAttention};
const std::vector<WindowSize> kSliding = {WindowSize(20)};

GenerateRequest Search(uint64_t seed, size_t prompt_tokens, uint32_t max_new_tokens,
                       uint32_t width) {
  GenerateRequest request = RandomRequest(seed, prompt_tokens, max_new_tokens);
  request.beam_width = width;
  request.num_samples = width;
  return request;
}

PlainSearch Plainly(const GenerateRequest& request, const std::vector<WindowSize>& windows) {
  return SearchPlainly(request, [&](const std::vector<TokenId>& text) {
    return ArithmeticModel::LogitsBehind(text, windows);
  });
}

void ExpectPlain(const GenerateRequest& request, const std::vector<WindowSize>& windows,
                 const Outcome& outcome) {
  ASSERT_TRUE(outcome.ended);
  ASSERT_TRUE(outcome.report.ok()) << outcome.report.status();
  const PlainSearch plain = Plainly(request, windows);
  ASSERT_EQ(plain.best.size(), request.num_samples);
  ASSERT_EQ(outcome.report->beam_scores.size(), request.num_samples);
  uint32_t tokens = 0;
  for (size_t i = 0; i < plain.best.size(); ++i) {
    EXPECT_EQ(outcome.samples[i], plain.best[i].tokens) << "hypothesis " << i;
    EXPECT_NEAR(outcome.report->beam_scores[i], plain.best[i].score, 1e-4);
    EXPECT_EQ(outcome.report->finish_reasons[i], plain.best[i].reason);
    tokens += static_cast<uint32_t>(plain.best[i].tokens.size());
  }
  EXPECT_EQ(outcome.report->generated_tokens, tokens);
}

void ExpectNothingHeld(World& world) {
  world.cache().WaitForCopies();  // A copy holds its blocks.
  EXPECT_TRUE(world.cache().NothingHeld());
}

// Searches and ordinary requests, all at once. Everything is given back.
void ExpectAll(World& world, const std::vector<WindowSize>& windows,
               const std::vector<GenerateRequest>& requests) {
  std::vector<const Outcome*> outcomes;
  for (const GenerateRequest& request : requests) outcomes.push_back(&world.Add(request));
  world.RunUntilIdle();
  for (size_t i = 0; i < requests.size(); ++i) {
    SCOPED_TRACE(testing::Message() << "request " << i);
    if (requests[i].is_beam_search()) {
      ExpectPlain(requests[i], windows, *outcomes[i]);
    } else {
      world.ExpectSoloAnswer(requests[i], *outcomes[i]);
    }
  }
  ExpectNothingHeld(world);
  EXPECT_EQ(world.model().unwritten_reads(), 0u);
  EXPECT_EQ(world.stats().running_requests + world.stats().waiting_requests, 0u);
}

class BeamTest : public testing::TestWithParam<std::vector<WindowSize>> {};
const char* const kWindowNames[] = {"Full", "SlidingAndFull", "Sliding"};
INSTANTIATE_TEST_SUITE_P(Windows, BeamTest, testing::Values(kFull, kTwoWindows, kSliding),
                         [](const auto& param) { return kWindowNames[param.index]; });

TEST_P(BeamTest, AloneItIsThePlainSearch) {
  for (const uint32_t width : {2u, 4u, 8u, 32u}) {
    for (const float penalty : {0.6f, 1.0f, 2.0f}) {
      for (const bool early : {false, true}) {
        for (const size_t stops : {0, 6}) {
          World world({.windows = GetParam(), .blocks = {.primary_blocks = 400}});
          GenerateRequest request = Search(width, 21, 30, width);
          request.num_samples = 1 + width / 2;
          request.length_penalty = penalty;
          request.early_stopping = early;
          for (TokenId token = 0; token < stops; ++token) request.stop_tokens.push_back(9 * token);
          ExpectAll(world, GetParam(), {request});
        }
      }
    }
  }
}

TEST_P(BeamTest, ASearchOfOneToken) {
  for (const size_t prompt : {1, 8, 17}) {
    World world({.windows = GetParam(), .blocks = {.primary_blocks = 4}});
    ExpectAll(world, GetParam(), {Search(prompt, prompt, 1, 5)});
    EXPECT_EQ(world.stats().computed_tokens, prompt) << "the last tokens are not computed";
  }
}

TEST_P(BeamTest, InChunksAndWithLessThanAStepForAllBeams) {
  for (const uint32_t budget : {1u, 3u, 7u, 9u}) {
    World world({.windows = GetParam(),
                 .blocks = {.primary_blocks = 128},
                 .options = {.max_step_tokens = budget}});
    ExpectAll(world, GetParam(), {Search(2, 61, 20, 6)});
    EXPECT_LE(world.model().most_tokens(), budget);
  }
}

TEST_P(BeamTest, ThePromptIsReusedAndTheAnswersAreCached) {
  World world({.windows = GetParam(), .blocks = {.primary_blocks = 256}});
  GenerateRequest request = Search(3, 43, 24, 4);
  ExpectAll(world, GetParam(), {request});
  const std::vector<TokenId> best = Plainly(request, GetParam()).best.front().tokens;
  Outcome& again = world.Add(request);
  world.RunUntilIdle();
  ExpectPlain(request, GetParam(), again);
  EXPECT_EQ(again.report->reused_tokens, 42u);
  // A conversation goes on from the best answer.
  GenerateRequest next = RandomRequest(0, 0, 8);
  next.prompt = request.prompt;
  next.prompt.insert(next.prompt.end(), best.begin(), best.end());
  Outcome& outcome = world.Add(next);
  world.RunUntilIdle();
  world.ExpectSoloAnswer(next, outcome);
  EXPECT_GE(outcome.report->reused_tokens, 43u + 24u - kTokensPerBlock);
}

// Whole blocks of common tokens are held once, and each beam has at most one block that is partly
// filled. Only beams and their common blocks are held, step by step.
TEST_P(BeamTest, HoldsTheBlocksOfItsBeamsAndNoMore) {
  for (const uint64_t seed : {1, 2, 3}) {
    for (const size_t prompt : {16, 21}) {
      World world({.windows = GetParam(), .blocks = {.primary_blocks = 400}});
      const GenerateRequest request = Search(seed, prompt, 40, 8);
      const PlainSearch plain = Plainly(request, GetParam());
      const Outcome& outcome = world.Add(request);
      size_t most_beams = 0;
      for (const auto& beams : plain.steps) {
        const uint64_t steps = world.stats().steps;
        while (world.stats().steps == steps) world.RunSteps(1);  // Some only wait for copies.
        std::set<std::vector<TokenId>> whole;
        uint64_t partial = 0;
        for (std::vector<TokenId> text : beams) {
          text.insert(text.begin(), request.prompt.begin(), request.prompt.end());
          partial += text.size() % kTokensPerBlock != 0 ? 1 : 0;
          for (size_t end = kTokensPerBlock; end <= text.size(); end += kTokensPerBlock) {
            // A window has passed earlier blocks.
            if (GetParam().front() != kFullAttention && end + 20 <= text.size()) continue;
            whole.insert({text.begin(), text.begin() + static_cast<std::ptrdiff_t>(end)});
          }
        }
        most_beams = std::max(most_beams, beams.size());
        const uint64_t active = world.cache().occupancy().active;
        EXPECT_EQ(active, whole.size() + partial) << beams.front().size() << " tokens";
      }
      EXPECT_EQ(most_beams, 8u);
      world.RunUntilIdle();
      ExpectPlain(request, GetParam(), outcome);
      EXPECT_EQ(world.stats().steps, plain.steps.size()) << "one step of the model for each";
    }
  }
}

TEST_P(BeamTest, PreemptedAsAWholeItGoesOnLater) {
  uint64_t preemptions = 0;
  for (const Preemption preemption : {Preemption::kOffload, Preemption::kRecompute}) {
    // With a budget of three tokens, some beams are ahead of others when the search pauses.
    for (const auto& [lower, budget] : {std::pair(0u, 512u), {64u, 512u}, {64u, 3u}}) {
      World world({.windows = GetParam(),
                   .blocks = {.primary_blocks = 26, .lower_blocks = lower},
                   .options = {.max_step_tokens = budget, .preemption = preemption}});
      std::vector<GenerateRequest> requests;
      for (uint64_t i = 0; i < 9; ++i) {
        requests.push_back(i % 3 == 2 ? RandomRequest(i, 20 + i, 50) : Search(i, 20 + i, 30, 5));
      }
      ExpectAll(world, GetParam(), requests);
      preemptions += world.stats().preemptions;
    }
  }
  EXPECT_GT(preemptions, 10u);
}

TEST_P(BeamTest, AHigherPriorityTakesItsPlace) {
  World world({.windows = GetParam(),
               .blocks = {.primary_blocks = 128, .lower_blocks = 64},
               .options = {.max_running_sequences = 6}});
  const GenerateRequest low = Search(1, 30, 30, 6);
  GenerateRequest high = Search(2, 25, 10, 3);
  high.priority = 1;
  Outcome& first = world.Add(low);
  world.RunSteps(12);
  Outcome& second = world.Add(high);
  world.RunUntilIdle();
  ExpectPlain(low, GetParam(), first);
  ExpectPlain(high, GetParam(), second);
  EXPECT_LT(second.ended_in_step, first.ended_in_step);
  EXPECT_EQ(first.report->preemptions, 1u) << "once for the whole search";
  EXPECT_EQ(second.report->preemptions, 0u);
}

TEST(BeamSlotsTest, PreemptsNoneUnlessItCanThenBegin) {
  World world({.blocks = {.primary_blocks = 400}, .options = {.max_running_sequences = 4}});
  GenerateRequest high = RandomRequest(1, 20, 60);
  high.priority = 2;
  const GenerateRequest low = RandomRequest(2, 20, 40);
  GenerateRequest search = Search(3, 20, 10, 4);
  search.priority = 1;
  Outcome& of_high = world.Add(high);
  Outcome& of_low = world.Add(low);
  world.RunSteps(5);
  Outcome& of_search = world.Add(search);
  world.RunUntilIdle();
  // It needs all four places, and one is taken by a request of higher priority.
  world.ExpectSoloAnswer(high, of_high);
  world.ExpectSoloAnswer(low, of_low);
  ExpectPlain(search, kFull, of_search);
  EXPECT_EQ(of_low.report->preemptions, 0u);
  EXPECT_LT(of_low.ended_in_step, of_high.ended_in_step);
  EXPECT_LT(of_high.ended_in_step, of_search.ended_in_step);
}

TEST(BeamSlotsTest, PreemptsAsManyAsItNeeds) {
  World world({.blocks = {.primary_blocks = 400}, .options = {.max_running_sequences = 4}});
  // A search copies blocks. If they are done before the next step, the number of its steps does not
  // depend on the speed of threads.
  world.SetBetweenSteps([&world] { world.cache().WaitForCopies(); });
  GenerateRequest high = RandomRequest(1, 20, 60);
  high.priority = 2;
  std::vector<GenerateRequest> lows;
  for (uint64_t i = 0; i < 3; ++i) lows.push_back(RandomRequest(2 + i, 20, 40));
  GenerateRequest search = Search(5, 20, 10, 3);
  search.priority = 1;
  Outcome& of_high = world.Add(high);
  std::vector<Outcome*> of_lows;
  for (const GenerateRequest& low : lows) of_lows.push_back(&world.Add(low));
  world.RunSteps(5);
  Outcome& of_search = world.Add(search);
  world.RunUntilIdle();
  world.ExpectSoloAnswer(high, of_high);
  ExpectPlain(search, kFull, of_search);
  EXPECT_EQ(of_high.report->preemptions, 0u);
  for (size_t i = 0; i < lows.size(); ++i) {
    world.ExpectSoloAnswer(lows[i], *of_lows[i]);
    EXPECT_EQ(of_lows[i]->report->preemptions, 1u);
    EXPECT_LT(of_search.ended_in_step, of_lows[i]->ended_in_step);
  }
}

TEST(BeamSlotsTest, NoMoreSequencesRunThanAllowed) {
  World world({.blocks = {.primary_blocks = 400}, .options = {.max_running_sequences = 8}});
  std::vector<GenerateRequest> requests;
  for (uint64_t i = 0; i < 6; ++i) {
    requests.push_back(Search(i, 12 + i, 15, 3 + static_cast<uint32_t>(i)));
    requests.push_back(RandomRequest(i + 10, 9, 20));
    requests.back().num_samples = 2;
  }
  world.SetBetweenSteps([&] { EXPECT_LE(world.model().most_sequences(), 8u); });
  ExpectAll(world, kFull, requests);
}

TEST(BeamSlotsTest, WaitsUntilTheNextTokensOfAllBeamsFit) {
  World world({.blocks = {.primary_blocks = 14}});
  // Six blocks, and then one for the prompt and eight for its beams.
  ExpectAll(world, kFull, {RandomRequest(1, 40, 8), Search(2, 8, 8, 8)});
  EXPECT_EQ(world.stats().preemptions, 0u);
}

// The smallest pool that CheckCapacity accepts is enough.
TEST_P(BeamTest, RunsInTheBlocksThatItWasCheckedFor) {
  for (const uint64_t seed : {1, 2, 3, 4}) {
    const GenerateRequest request = Search(seed, 10 + 3 * seed, 30, 4);
    uint64_t blocks = 0;
    for (const WindowSize window : GetParam()) {
      blocks = std::max(blocks, MostBlocks(request, window, TokensPerBlock(kTokensPerBlock)));
    }
    World world(
        {.windows = GetParam(), .blocks = {.primary_blocks = static_cast<uint32_t>(blocks)}});
    EXPECT_TRUE(Scheduler::CheckCapacity(world.client().info(), request).ok());
    ExpectAll(world, GetParam(), {request});
    World small(
        {.windows = GetParam(), .blocks = {.primary_blocks = static_cast<uint32_t>(blocks - 1)}});
    const absl::Status refused = Scheduler::CheckCapacity(small.client().info(), request);
    EXPECT_EQ(ReasonOf(refused), Reason::kInvalidCount);
    EXPECT_THAT(std::string(refused.message()), HasSubstr("in each of 4 beams"));
  }
}

TEST_P(BeamTest, ACancelledSearchGivesEverythingBack) {
  for (const int steps : {0, 1, 2, 5, 9, 20}) {
    World world({.windows = GetParam(),
                 .blocks = {.primary_blocks = 128},
                 .options = {.max_step_tokens = 8}});
    bool cancel = false;
    GenerateRequest request = Search(12, 30, 30, 4);
    request.cancelled = [&] { return cancel; };
    Outcome& outcome = world.Add(request);
    const GenerateRequest beside = Search(13, 20, 20, 3);
    Outcome& other = world.Add(beside);
    world.RunSteps(steps);
    cancel = true;
    world.RunUntilIdle();
    EXPECT_EQ(outcome.report.status().code(), absl::StatusCode::kCancelled);
    EXPECT_TRUE(outcome.samples[0].empty());
    ExpectPlain(beside, GetParam(), other);
    ExpectNothingHeld(world);
  }
}

TEST_P(BeamTest, LogitsThatAreNoNumbersEndItAlone) {
  World world({.windows = GetParam(), .blocks = {.primary_blocks = 128}, .no_numbers_at = 30});
  Outcome& spoilt = world.Add(Search(1, 20, 30, 4));
  const GenerateRequest shorter = Search(2, 18, 10, 4);
  Outcome& good = world.Add(shorter);
  world.RunUntilIdle();
  EXPECT_EQ(spoilt.report.status(), absl::InternalError("one of the model's logits is NaN"));
  ExpectPlain(shorter, GetParam(), good);
  ExpectNothingHeld(world);
}

TEST_P(BeamTest, GoesOnInAnotherSession) {
  for (const int steps : {1, 2, 7, 15}) {
    World world({.windows = GetParam(), .blocks = {.primary_blocks = 128}});
    std::unique_ptr<CacheClient> first = world.cache().OpenClient();
    world.scheduler().Attach(first.get());
    const GenerateRequest request = Search(5, 30, 25, 5);
    Outcome& outcome = world.Add(request);
    world.RunSteps(steps);
    world.scheduler().Attach(&world.client());
    first.reset();
    world.RunUntilIdle();
    ExpectPlain(request, GetParam(), outcome);
    ExpectNothingHeld(world);
  }
}

// --- Tenants, and other clients ---

GenerateRequest Of(const std::string& tenant, GenerateRequest request) {
  request.tenant = request.name_space.tenant = tenant;
  return request;
}

TEST_P(BeamTest, ATenantsQuotaHoldsAllBeams) {
  World world({.windows = GetParam(),
               .blocks = {.primary_blocks = 256},
               .tenants = {{.name = "red", .quota_blocks = {17, kNoQuota}}, {.name = "blue"}}});
  std::vector<GenerateRequest> requests;
  for (uint64_t i = 0; i < 4; ++i) {
    requests.push_back(Of("red", Search(i, 20, 25, 3)));
    requests.push_back(Of("blue", Search(i + 9, 20, 25, 3)));
    requests.push_back(Of("red", RandomRequest(i + 20, 20, 30)));
  }
  ExpectAll(world, GetParam(), requests);
  // With one window alone, what a search needs soon is most of what it ever needs.
  if (GetParam() != kSliding) {
    EXPECT_GT(world.stats().preemptions, 0u);
  }
  Outcome& refused = world.Add(Of("red", Search(1, 20, 60, 8)));
  world.RunUntilIdle();
  EXPECT_EQ(ReasonOf(refused.report.status()), Reason::kInvalidCount);
}

// What a refused search waits for depends on the time, so there are several rounds.
TEST(BeamTenantTest, SharesItsTenantsSequencesWithOthers) {
  for (int round = 0; round < 16; ++round) {
    World world({.blocks = {.primary_blocks = 256},
                 .tenants = {{.name = "red", .max_sequences = 5}, {.name = "blue"}}});
    std::vector<GenerateRequest> requests;
    for (uint64_t i = 0; i < 4; ++i) {
      requests.push_back(Of("red", RandomRequest(i + 20, 20, 60)));
      requests.push_back(Of("red", Search(i, 20, 25, 5)));
      requests.push_back(Of("blue", Search(i + 9, 20, 25, 6)));
    }
    ExpectAll(world, kFull, requests);
  }
}

TEST(BeamTenantTest, NeedsNoMoreSequencesThanBeams) {
  World world({.blocks = {.primary_blocks = 64}, .tenants = {{.name = "red", .max_sequences = 4}}});
  const GenerateRequest request = Of("red", Search(1, 20, 25, 4));
  ExpectAll(world, kFull, {request});
  EXPECT_EQ(world.stats().steps, Plainly(request, kFull).steps.size()) << "no beam was refused";
}

TEST(BeamTenantTest, EndsAfterAWhileIfItsTenantMayNotHaveItsSequences) {
  World world({.blocks = {.primary_blocks = 64},
               .options = {.capacity_timeout = absl::Milliseconds(50)},
               .tenants = {{.name = "red", .max_sequences = 3}}});
  Outcome& outcome = world.Add(Of("red", Search(1, 20, 25, 4)));
  world.RunUntilIdle();
  EXPECT_EQ(ReasonOf(outcome.report.status()), Reason::kTooManySequences);
  ExpectNothingHeld(world);
}

TEST_P(BeamTest, WaitsForBlocksThatOtherClientsHold) {
  World world({.windows = GetParam(),
               .blocks = {.primary_blocks = 20},
               .options = {.capacity_timeout = absl::Milliseconds(50)}});
  const std::unique_ptr<CacheClient> other = world.cache().OpenClient();
  const auto held =
      RunOne<AllocatedBlocks>(*other, AllocateBlocks{.window = GetParam().front(), .count = 14});
  ASSERT_TRUE(held.ok()) << held.status();
  const GenerateRequest request = Search(14, 30, 16, 4);
  Outcome& outcome = world.Add(request);
  world.RunUntilIdle();
  EXPECT_EQ(ReasonOf(outcome.report.status()), Reason::kBlocksExhausted) << outcome.report.status();
  std::vector<BlockRef> refs;
  for (const BlockHandle& block : held->blocks) refs.push_back(block.ref());
  Outcome& late = world.Add(request);
  world.RunSteps(3);
  ASSERT_TRUE(
      RunOne<FreedBlocks>(*other, FreeBlocks{.window = GetParam().front(), .blocks = refs}).ok());
  world.RunUntilIdle();
  ExpectPlain(request, GetParam(), late);
}

// --- The basic cache ---

TEST_P(BeamTest, TheBasicCacheGivesTheSameAnswers) {
  absl::StatusOr<std::unique_ptr<CacheClient>> client =
      MakeBasicCacheClient({.spec = ArithmeticModel::Spec(GetParam(), kTokensPerBlock),
                            .max_sequences = 6,
                            .max_sequence_tokens = 100});
  ASSERT_TRUE(client.ok()) << client.status();
  ArithmeticModel model(**client, GetParam(), kTokensPerBlock);
  Scheduler scheduler({.max_step_tokens = 16}, client->get(), GetParam(),
                      [&](const ModelInput& input) { return model.Forward(input); });
  std::vector<GenerateRequest> requests;
  for (uint64_t i = 0; i < 6; ++i) {
    requests.push_back(i % 2 == 0 ? Search(i, 20 + i, 30, 2 + static_cast<uint32_t>(i))
                                  : RandomRequest(i, 20, 30));
  }
  std::vector<Outcome> outcomes(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    Outcome& outcome = outcomes[i];
    outcome.samples.resize(requests[i].num_samples);
    scheduler.Add(Arrived(
        requests[i],
        [&outcome](const GeneratedToken& token) {
          outcome.samples[token.sample].push_back(token.token);
          return true;
        },
        [&outcome](absl::StatusOr<GenerateReport> report) {
          outcome.ended = true;
          outcome.report = std::move(report);
        }));
  }
  for (int step = 0; !scheduler.idle() && step < 20'000; ++step) {
    if (scheduler.Step() == Scheduler::Progress::kNone) absl::SleepFor(absl::Milliseconds(1));
    scheduler.ReportEnds();
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    SCOPED_TRACE(testing::Message() << "request " << i);
    ASSERT_TRUE(outcomes[i].ended);
    if (requests[i].is_beam_search()) {
      ExpectPlain(requests[i], GetParam(), outcomes[i]);
    } else {
      EXPECT_EQ(outcomes[i].samples, ArithmeticModel::ExpectedAnswer(requests[i], GetParam()));
    }
  }
  EXPECT_EQ(model.unwritten_reads(), 0u);
}

// --- Everything at once ---

// Searches and ordinary requests, those that have arrived, and what became of them.
struct SearchCrowd {
  std::vector<GenerateRequest> requests;
  std::vector<int64_t> cancel_after;  // Steps after its arrival; -1: not cancelled.
  int64_t step = 0;
  std::vector<const Outcome*> outcomes;
};

GenerateRequest RandomSearchOrRequest(std::mt19937_64& random, uint64_t seed,
                                      const std::vector<TokenId>& shared) {
  const auto width = static_cast<uint32_t>(random() % 3 == 0 ? 1 : 2 + random() % 4);
  GenerateRequest request =
      Search(seed, 1 + random() % 40, 1 + static_cast<uint32_t>(random() % 30), width);
  const auto common = static_cast<std::ptrdiff_t>(random() % 2 == 0 ? 0 : random() % 40);
  request.prompt.insert(request.prompt.begin(), shared.begin(), shared.begin() + common);
  if (width > 1) {
    request.num_samples = 1 + static_cast<uint32_t>(random() % width);
    request.length_penalty = random() % 2 == 0 ? 1.0f : 0.6f;
    request.early_stopping = random() % 2 == 0;
    for (uint64_t n = random() % 4; n > 0; --n) {
      request.stop_tokens.push_back(static_cast<TokenId>(random() % ArithmeticModel::kVocabSize));
    }
  } else {
    request.num_samples = 1 + static_cast<uint32_t>(random() % 2);
    request.max_draft_tokens = random() % 3 == 0 ? 4 : 0;
    request.sampling = {.temperature = 0.8f, .seed = random()};
  }
  request.priority = static_cast<int32_t>(random() % 2);
  const uint64_t tenant = random() % 3;
  request.tenant = "tenant " + std::to_string(tenant);
  if (tenant < 2) request.name_space.tenant = request.tenant;
  return request;
}

SearchCrowd MakeSearchCrowd(std::mt19937_64& random, uint64_t seed) {
  SearchCrowd crowd;
  const std::vector<TokenId> shared = RandomTokens(random, 40, ArithmeticModel::kVocabSize);
  for (size_t i = 0; i < 200; ++i) {
    crowd.requests.push_back(RandomSearchOrRequest(random, seed * 1000 + i, shared));
    crowd.cancel_after.push_back(random() % 6 == 0 ? static_cast<int64_t>(random() % 200) : -1);
  }
  return crowd;
}

// A new one arrives in every other step.
void RunSearchCrowd(World& world, uint64_t seed, SearchCrowd& crowd) {
  std::mt19937_64 arriving(seed + 100);
  while (crowd.outcomes.size() < crowd.requests.size() || !world.scheduler().idle()) {
    ASSERT_LT(++crowd.step, 40'000) << "nobody starves";
    if (crowd.outcomes.size() < crowd.requests.size() && arriving() % 2 == 0) {
      const size_t i = crowd.outcomes.size();
      const int64_t end = crowd.cancel_after[i] < 0 ? -1 : crowd.step + crowd.cancel_after[i];
      crowd.requests[i].cancelled = [&crowd, end] { return end >= 0 && crowd.step >= end; };
      crowd.outcomes.push_back(&world.Add(crowd.requests[i]));
    }
    world.RunSteps(1);
  }
}

// Returns how many were cancelled before their end.
int ExpectAnswersOfSearchCrowd(World& world, const std::vector<WindowSize>& windows,
                               const SearchCrowd& crowd) {
  int cancelled = 0;
  for (size_t i = 0; i < crowd.outcomes.size(); ++i) {
    SCOPED_TRACE(testing::Message() << "request " << i);
    const Outcome& outcome = *crowd.outcomes[i];
    if (crowd.cancel_after[i] >= 0 && !outcome.report.ok()) {
      EXPECT_EQ(outcome.report.status().code(), absl::StatusCode::kCancelled);
      ++cancelled;
    } else if (crowd.requests[i].is_beam_search()) {
      ExpectPlain(crowd.requests[i], windows, outcome);
    } else {
      world.ExpectSoloAnswer(crowd.requests[i], outcome);
    }
  }
  return cancelled;
}

TEST_P(BeamTest, HundredsOfRequestsOnASmallPool) {
  for (const uint64_t seed : {1, 2, 3}) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    SearchCrowd crowd = MakeSearchCrowd(random, seed);
    World world(
        {.windows = GetParam(),
         .blocks = {.primary_blocks = 64, .lower_blocks = 32},
         .options = {.max_step_tokens = 48, .max_running_sequences = 16},
         // From time to time a copy is lost.
         .before_copy =
             [&random, seed](const Order&) {
               return seed == 3 && random() % 40 == 0 ? absl::DataLossError("planted")
                                                      : absl::OkStatus();
             },
         .tenants = {{.name = "tenant 0", .quota_blocks = {54, kNoQuota}},
                     {.name = "tenant 1", .quota_blocks = {60, kNoQuota}, .max_sequences = 7},
                     {.name = "tenant 2", .shares = true}}});
    ASSERT_NO_FATAL_FAILURE(RunSearchCrowd(world, seed, crowd));
    EXPECT_GT(ExpectAnswersOfSearchCrowd(world, GetParam(), crowd), 5) << "cancelled";
    EXPECT_GT(world.stats().preemptions, 0u);
    EXPECT_GT(world.stats().reused_tokens, 0u);
    ExpectNothingHeld(world);
    EXPECT_EQ(world.model().unwritten_reads(), 0u);
    EXPECT_EQ(world.stats().running_requests + world.stats().waiting_requests, 0u);
  }
}

}  // namespace
}  // namespace pagoda
