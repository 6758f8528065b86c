// Admission: quotas, priorities, slots, and how often the scheduler queries the capacity.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/error.h"
#include "engine/schedule/tenant_quotas.h"
#include "manager/cache_lists.h"
#include "tests/engine/schedule/scheduler_world.h"

namespace pagoda {
namespace {

using ::testing::HasSubstr;
using World = SchedulerWorld;
using Outcome = SchedulerWorld::Outcome;

// Blocks of 8 tokens.
World::Setting TwoTenants(uint32_t red_blocks, uint32_t blue_blocks) {
  return {.tenants = {{.name = "red", .quota_blocks = {red_blocks, kNoQuota}},
                      {.name = "blue", .quota_blocks = {blue_blocks, kNoQuota}}}};
}

GenerateRequest Of(const std::string& tenant, GenerateRequest request) {
  request.tenant = request.name_space.tenant = tenant;
  return request;
}

// --- Quotas ---

TEST(QuotaTest, WhatAQuotaCanNeverHoldIsRefusedAtOnce) {
  World::Setting setting = TwoTenants(4, 20);
  setting.options.max_running_sequences = 1;
  World world(setting);
  const GenerateRequest running = Of("blue", RandomRequest(1, 10, 100));
  Outcome& blue = world.Add(running);
  world.RunSteps(3);
  // The last token needs no slot.
  const GenerateRequest just_fits = Of("red", RandomRequest(2, 25, 8));
  const GenerateRequest too_long = Of("red", RandomRequest(3, 25, 9));
  Outcome& waits = world.Add(just_fits);
  Outcome& refused = world.Add(too_long);
  world.RunSteps(2);
  ASSERT_TRUE(refused.ended) << "while the only slot is taken";
  EXPECT_EQ(ReasonOf(refused.report.status()), Reason::kInvalidCount) << "not: try again";
  EXPECT_THAT(std::string(refused.report.status().message()),
              HasSubstr("take 5 blocks of window full; the quota of the tenant 'red' is 4"));
  Outcome& again = world.Add(too_long);
  world.RunSteps(1);
  EXPECT_TRUE(again.ended);
  EXPECT_FALSE(blue.ended);
  EXPECT_FALSE(waits.ended);
  world.RunUntilIdle();
  world.ExpectSoloAnswer(running, blue);
  world.ExpectSoloAnswer(just_fits, waits);
}

TEST(QuotaTest, WhoWaitsForItsQuotaHoldsNobodyBack) {
  World world(TwoTenants(8, kNoQuota));
  std::vector<GenerateRequest> requests;
  for (uint64_t i = 0; i < 12; ++i) requests.push_back(Of("red", RandomRequest(i, 40, 24)));
  std::vector<Outcome*> red;
  for (const GenerateRequest& request : requests) red.push_back(&world.Add(request));
  world.RunSteps(3);
  std::vector<GenerateRequest> others;
  for (uint64_t i = 0; i < 6; ++i) others.push_back(Of("blue", RandomRequest(50 + i, 20, 5)));
  std::vector<Outcome*> blue;
  for (const GenerateRequest& request : others) blue.push_back(&world.Add(request));
  world.RunUntilIdle();
  for (size_t i = 0; i < blue.size(); ++i) {
    world.ExpectSoloAnswer(others[i], *blue[i]);
    EXPECT_LT(blue[i]->ended_in_step, red[0]->ended_in_step) << "blue has room";
  }
  for (size_t i = 0; i < red.size(); ++i) world.ExpectSoloAnswer(requests[i], *red[i]);
  EXPECT_TRUE(world.cache().NothingHeld());
}

// The namespace that it shares belongs to no tenant, but the blocks that it holds there are charged
// to it.
TEST(QuotaTest, AQuotaBoundsATenantThatShares) {
  World world({.tenants = {{.name = "open", .shares = true, .quota_blocks = {8, kNoQuota}},
                           {.name = "also open", .shares = true}}});
  const auto of = [](const std::string& tenant, GenerateRequest request) {
    request.tenant = tenant;
    return request;
  };
  const auto uses = [&](uint16_t tenant) {
    return world.cache().manager().Read([&](const BlockManager& core) {
      return core.lists().TenantUses().at(tenant).uses.front().used_blocks;
    });
  };
  std::vector<GenerateRequest> requests;
  for (uint64_t i = 0; i < 8; ++i) requests.push_back(of("open", RandomRequest(i, 40, 24)));
  std::vector<Outcome*> outcomes;
  for (const GenerateRequest& request : requests) outcomes.push_back(&world.Add(request));
  Outcome& never = world.Add(of("open", RandomRequest(20, 60, 10)));
  world.RunSteps(2);
  const GenerateRequest other = of("also open", RandomRequest(50, 100, 20));
  Outcome& beside = world.Add(other);
  uint32_t most = 0;
  for (; !world.scheduler().idle(); world.RunSteps(1)) {
    most = std::max(most, uses(1));
    ASSERT_LE(most, 8u);
  }
  EXPECT_GT(most, 4u);
  EXPECT_LT(beside.ended_in_step, outcomes[0]->ended_in_step) << "its room is not the other's";
  EXPECT_EQ(ReasonOf(never.report.status()), Reason::kInvalidCount);
  EXPECT_THAT(std::string(never.report.status().message()),
              HasSubstr("the quota of the tenant 'open' is 8"));
  world.ExpectSoloAnswer(other, beside);
  for (size_t i = 0; i < requests.size(); ++i) world.ExpectSoloAnswer(requests[i], *outcomes[i]);
  EXPECT_TRUE(world.cache().NothingHeld());
}

// A tenant that is full does not show its quota.
TEST(TenantQuotasTest, KnowsWhatItHasLearntAlone) {
  TenantQuotas quotas;
  quotas.NoteFull("red");
  EXPECT_TRUE(quotas.IsFull("red", absl::InfiniteDuration()));
  EXPECT_FALSE(quotas.Knows("red"));
  const WindowCapacity window{.window = kFullAttention, .quota_blocks = 4};
  quotas.Learn("red", {window});
  EXPECT_TRUE(quotas.Knows("red"));
  EXPECT_FALSE(quotas.Check(Of("red", RandomRequest(1, 50, 1)), 8).ok());
  // With very many tenants, the first ones are forgotten. Then the engine does not know that a full
  // tenant is full.
  for (int i = 0; i < 5000; ++i) quotas.Learn(absl::StrCat("tenant ", i), {window});
  ASSERT_FALSE(quotas.Knows("red"));
  quotas.NoteFull("red");
  EXPECT_FALSE(quotas.Knows("red"));
}

// Who asks is the same for all: an operator, in the tenants' namespaces.
TEST(QuotaTest, AQuotaTakesTheBlocksOfItsOwnTenantAlone) {
  World world(TwoTenants(8, kNoQuota));
  std::vector<GenerateRequest> requests;
  for (uint64_t i = 0; i < 2; ++i) requests.push_back(Of("red", RandomRequest(i, 17, 40)));
  for (uint64_t i = 0; i < 3; ++i) requests.push_back(Of("blue", RandomRequest(9 + i, 17, 40)));
  for (GenerateRequest& request : requests) request.tenant = "";
  std::vector<Outcome*> outcomes;
  for (const GenerateRequest& request : requests) outcomes.push_back(&world.Add(request));
  world.RunUntilIdle();
  for (size_t i = 0; i < requests.size(); ++i) world.ExpectSoloAnswer(requests[i], *outcomes[i]);
  EXPECT_EQ(outcomes[0]->report->preemptions, 0u) << "the earlier one stays";
  EXPECT_GT(outcomes[1]->report->preemptions, 0u);
  for (size_t i = 2; i < 5; ++i) EXPECT_EQ(outcomes[i]->report->preemptions, 0u);
}

// All sequences need their next block in the same step. One is preempted, and the others continue.
TEST(QuotaTest, AFullQuotaTakesOneSequenceAtATime) {
  World world(TwoTenants(12, kNoQuota));
  std::vector<GenerateRequest> requests;
  for (uint64_t i = 0; i < 4; ++i) {
    requests.push_back(Of("red", RandomRequest(i, 16, 20)));
    requests.back().prompt[0] = static_cast<TokenId>(i);
  }
  std::vector<Outcome*> outcomes;
  for (const GenerateRequest& request : requests) outcomes.push_back(&world.Add(request));
  while (world.stats().preemptions == 0 && !world.scheduler().idle()) world.RunSteps(1);
  EXPECT_EQ(world.stats().preemptions, 1u);
  EXPECT_EQ(world.stats().running_sequences, 3u);
  world.RunUntilIdle();
  for (size_t i = 0; i < requests.size(); ++i) world.ExpectSoloAnswer(requests[i], *outcomes[i]);
}

TEST(QuotaTest, WhereOthersOfTheTenantHoldTheQuotaARequestEndsAfterAWhile) {
  World::Setting setting = TwoTenants(8, kNoQuota);
  setting.options.capacity_timeout = absl::Milliseconds(30);
  World world(setting);
  const std::unique_ptr<CacheClient> other = world.cache().OpenClient();
  std::vector<TokenId> held(50, 3);
  ASSERT_TRUE(RunOne<AddedSequence>(*other, AddSequence{.sequence = SequenceId(1),
                                                        .name_space = {.tenant = "red"},
                                                        .tokens = held})
                  .ok());
  Outcome& red = world.Add(Of("red", RandomRequest(1, 30, 10)));
  // Meanwhile other requests arrive and end all the time.
  Outcome* last = nullptr;
  for (uint64_t i = 0; !red.ended; ++i) {
    ASSERT_LT(i, 100'000u);
    if (last == nullptr || last->ended) last = &world.Add(Of("blue", RandomRequest(i, 10, 10)));
    world.RunSteps(1);
  }
  EXPECT_EQ(ReasonOf(red.report.status()), Reason::kTenantQuotaExceeded);
  EXPECT_THAT(std::string(red.report.status().message()), HasSubstr("other clients of the tenant"));
  // A request that arrives when there is capacity again runs.
  const GenerateRequest request = Of("red", RandomRequest(2, 30, 10));
  Outcome& late = world.Add(request);
  world.RunSteps(3);
  ASSERT_TRUE(RunOne<FreedSequence>(*other, FreeSequence{SequenceId(1)}).ok());
  world.RunUntilIdle();
  world.ExpectSoloAnswer(request, late);
}

TEST(QuotaTest, AHigherPriorityTakesTheBlocksOfItsOwnTenant) {
  World world(TwoTenants(8, kNoQuota));
  const GenerateRequest low = Of("red", RandomRequest(1, 40, 20));
  const GenerateRequest blue = Of("blue", RandomRequest(2, 40, 20));
  GenerateRequest high = Of("red", RandomRequest(3, 40, 20));
  high.priority = 1;
  Outcome& first = world.Add(low);
  Outcome& other = world.Add(blue);
  world.RunSteps(4);
  Outcome& second = world.Add(high);
  world.RunUntilIdle();
  world.ExpectSoloAnswer(low, first);
  world.ExpectSoloAnswer(blue, other);
  world.ExpectSoloAnswer(high, second);
  EXPECT_LT(second.ended_in_step, first.ended_in_step);
  EXPECT_GT(first.report->preemptions, 0u);
  EXPECT_EQ(other.report->preemptions, 0u);
}

// --- Sequences and their bytes ---

World::Setting RedMayHave(TenantOptions limits) {
  limits.name = "red";
  return {.blocks = {.primary_blocks = 256}, .tenants = {std::move(limits), {.name = "blue"}}};
}

// The samples beyond the tenant's limit are refused after the prefill.
TEST(SequencesTest, MoreSamplesThanTheTenantsSequencesRunInTurns) {
  World world(RedMayHave({.max_sequences = 3}));
  GenerateRequest request = Of("red", RandomRequest(1, 43, 12));
  request.num_samples = 8;
  request.sampling = {.temperature = 1.0f, .seed = 3};
  const GenerateRequest beside = Of("blue", RandomRequest(2, 20, 30));
  world.ExpectSoloAnswers({request, beside, Of("red", RandomRequest(3, 12, 9))});
  EXPECT_TRUE(world.cache().NothingHeld());
}

// The most that the red tenant's sequences keep while the request runs alone.
uint64_t MostBytes(const GenerateRequest& request) {
  World world(RedMayHave({}));
  world.Add(request);
  uint64_t most = 0;
  for (; !world.scheduler().idle(); world.RunSteps(1)) {
    most = std::max(most, world.cache().manager().Read([](const BlockManager& core) {
      return core.lists().TenantUses().at(1).sequence_bytes;
    }));
  }
  return most;
}

// Two of them start, but the tenant's bytes are not enough for both to finish.
TEST(SequencesTest, WhoFindsNoBytesToGrowGivesWayAndGoesOn) {
  std::vector<GenerateRequest> requests;
  for (uint64_t i = 0; i < 4; ++i) requests.push_back(Of("red", RandomRequest(i, 20, 80)));
  requests.push_back(Of("blue", RandomRequest(9, 20, 80)));
  World world(RedMayHave({.max_sequence_bytes = 2 * MostBytes(requests[0]) - 1}));
  std::vector<Outcome*> outcomes;
  for (const GenerateRequest& request : requests) outcomes.push_back(&world.Add(request));
  world.RunUntilIdle();
  for (size_t i = 0; i < requests.size(); ++i) world.ExpectSoloAnswer(requests[i], *outcomes[i]);
  EXPECT_GT(world.stats().preemptions, 0u);
  EXPECT_EQ(outcomes[0]->report->preemptions, 0u) << "the earliest stays";
  EXPECT_EQ(outcomes[4]->report->preemptions, 0u) << "it is not its tenant's";
}

TEST(SequencesTest, AHigherPriorityTakesASequenceOfItsOwnTenant) {
  World world(RedMayHave({.max_sequences = 1}));
  const GenerateRequest low = Of("red", RandomRequest(1, 20, 60));
  GenerateRequest high = Of("red", RandomRequest(2, 20, 5));
  high.priority = 1;
  Outcome& first = world.Add(low);
  world.RunSteps(4);
  Outcome& second = world.Add(high);
  world.RunUntilIdle();
  world.ExpectSoloAnswer(low, first);
  world.ExpectSoloAnswer(high, second);
  EXPECT_LT(second.ended_in_step, first.ended_in_step);
  EXPECT_EQ(first.report->preemptions, 1u);
}

TEST(SequencesTest, WhereOthersOfTheTenantHaveTheSequencesARequestEndsAfterAWhile) {
  World::Setting setting = RedMayHave({.max_sequences = 1});
  setting.options.capacity_timeout = absl::Milliseconds(30);
  World world(setting);
  const std::unique_ptr<CacheClient> other = world.cache().OpenClient();
  const std::vector<TokenId> held(9, 3);
  ASSERT_TRUE(RunOne<AddedSequence>(*other, AddSequence{.sequence = SequenceId(1),
                                                        .name_space = {.tenant = "red"},
                                                        .tokens = held})
                  .ok());
  Outcome& red = world.Add(Of("red", RandomRequest(1, 30, 10)));
  uint64_t steps = 0;
  for (; !red.ended; world.RunSteps(1)) {
    absl::SleepFor(absl::Milliseconds(1));
    ASSERT_LT(++steps, 10'000u);
  }
  EXPECT_EQ(ReasonOf(red.report.status()), Reason::kTooManySequences) << red.report.status();
  EXPECT_GE(steps, 10u) << "it waited";
  // A request that arrives when a sequence is allowed again runs.
  const GenerateRequest request = Of("red", RandomRequest(2, 30, 10));
  Outcome& late = world.Add(request);
  world.RunSteps(5);
  EXPECT_FALSE(late.ended);
  ASSERT_TRUE(RunOne<FreedSequence>(*other, FreeSequence{SequenceId(1)}).ok());
  world.RunUntilIdle();
  world.ExpectSoloAnswer(request, late);
}

// --- Slots ---

TEST(SlotsTest, AHigherPriorityTakesTheSlotOfALowerOne) {
  World world({.options = {.max_running_sequences = 2}});
  const std::vector<GenerateRequest> low = {RandomRequest(1, 10, 60), RandomRequest(2, 10, 60)};
  GenerateRequest high = RandomRequest(3, 10, 10);
  high.priority = 1;
  Outcome& one = world.Add(low[0]);
  Outcome& two = world.Add(low[1]);
  world.RunSteps(5);
  Outcome& urgent = world.Add(high);
  Outcome& equal = world.Add(RandomRequest(4, 10, 10));
  while (!urgent.ended) {
    world.RunSteps(1);
    ASSERT_LE(world.stats().running_sequences, 2u);
    ASSERT_FALSE(world.scheduler().idle());
  }
  EXPECT_FALSE(one.ended);
  EXPECT_FALSE(two.ended);
  EXPECT_FALSE(equal.ended) << "an equal one waits";
  world.RunUntilIdle();
  world.ExpectSoloAnswer(low[0], one);
  world.ExpectSoloAnswer(low[1], two);
  world.ExpectSoloAnswer(high, urgent);
  EXPECT_EQ(one.report->preemptions, 0u) << "the later one gives way";
  EXPECT_EQ(two.report->preemptions, 1u);
}

// Red has a high priority but its quota is full: no sequence is preempted for it, however often the
// cache is asked. Green has a high priority and capacity.
TEST(SlotsTest, NobodyGivesASlotToWhoCannotTakeIt) {
  World::Setting setting = TwoTenants(8, kNoQuota);
  setting.tenants.push_back({.name = "green", .quota_blocks = {kNoQuota, kNoQuota}});
  setting.blocks.primary_blocks = 256;
  setting.options.max_running_sequences = 6;
  setting.options.max_step_tokens = 64;
  setting.options.probe_pause = absl::Milliseconds(2);
  World world(setting);
  std::vector<GenerateRequest> requests;
  std::vector<Outcome*> outcomes;
  const auto add = [&](const std::string& tenant, int32_t priority, uint32_t max_new_tokens) {
    requests.push_back(Of(tenant, RandomRequest(requests.size(), 40, max_new_tokens)));
    requests.back().priority = priority;
    return outcomes.emplace_back(&world.Add(requests.back()));
  };
  add("red", 1, 24);
  for (int i = 0; i < 5; ++i) add("blue", 0, 150);
  world.RunSteps(6);
  ASSERT_EQ(world.stats().running_sequences, 6u);
  for (int i = 0; i < 8; ++i) add("red", 1, 24);
  const auto run_slowly = [&] {
    absl::SleepFor(absl::Milliseconds(2));  // So that each step queries the capacity for red.
    world.RunSteps(1);
  };
  const uint64_t asked = world.client().capacity_queries();
  for (int i = 0; i < 8; ++i) run_slowly();
  EXPECT_GE(world.client().capacity_queries() - asked, 8u);
  ASSERT_FALSE(outcomes[0]->ended);
  EXPECT_EQ(world.stats().preemptions, 0u);
  EXPECT_EQ(world.stats().running_sequences, 6u);
  const Outcome* const green = add("green", 1, 5);
  for (int i = 0; i < 40 && !green->ended; ++i) run_slowly();
  EXPECT_TRUE(green->ended);
  EXPECT_FALSE(outcomes[1]->ended);
  EXPECT_LE(world.stats().preemptions, 2u) << "green's, and perhaps one of red's by now";
  world.RunUntilIdle();
  for (size_t i = 0; i < requests.size(); ++i) world.ExpectSoloAnswer(requests[i], *outcomes[i]);
  EXPECT_LE(world.stats().preemptions, 9u) << "one for each that came after";
  EXPECT_TRUE(world.cache().NothingHeld());
}

// There are as many slots as tokens per step: a preempted sequence frees its token.
TEST(SlotsTest, AHigherPriorityTakesASlotWhereTheStepIsFull) {
  World world({.options = {.max_step_tokens = 2, .max_running_sequences = 2}});
  const std::vector<GenerateRequest> low = {RandomRequest(1, 10, 60), RandomRequest(2, 10, 60)};
  GenerateRequest high = RandomRequest(3, 10, 10);
  high.priority = 1;
  Outcome& one = world.Add(low[0]);
  Outcome& two = world.Add(low[1]);
  world.RunSteps(20);
  ASSERT_EQ(world.stats().running_sequences, 2u);
  Outcome& urgent = world.Add(high);
  world.RunUntilIdle();
  EXPECT_LT(urgent.ended_in_step, one.ended_in_step);
  EXPECT_EQ(world.stats().preemptions, 1u);
  world.ExpectSoloAnswer(low[0], one);
  world.ExpectSoloAnswer(low[1], two);
  world.ExpectSoloAnswer(high, urgent);
}

TEST(SlotsTest, SamplesCountAgainstTheSlots) {
  for (const uint32_t slots : {1u, 3u, 5u}) {
    World world({.blocks = {.primary_blocks = 128}, .options = {.max_running_sequences = slots}});
    GenerateRequest request = RandomRequest(5, 30, 25);
    request.num_samples = 8;
    request.sampling = {.temperature = 1.0f, .seed = 4};
    const GenerateRequest other = RandomRequest(6, 10, 10);
    Outcome& samples = world.Add(request);
    Outcome& alone = world.Add(other);
    while (!world.scheduler().idle()) {
      world.RunSteps(1);
      ASSERT_LE(world.stats().running_sequences, slots);
    }
    EXPECT_LE(world.model().most_sequences(), slots);
    world.ExpectSoloAnswer(request, samples);
    world.ExpectSoloAnswer(other, alone);
    EXPECT_EQ(samples.report->generated_tokens, 8u * 25u);
    EXPECT_TRUE(world.cache().NothingHeld());
  }
}

// --- Queries of the capacity ---

TEST(ProbesTest, NobodyIsAskedForWhileAPromptTakesTheWholeBudget) {
  World world({.blocks = {.primary_blocks = 256}, .options = {.max_step_tokens = 8}});
  std::vector<GenerateRequest> requests = {RandomRequest(1, 800, 1)};
  for (uint64_t i = 0; i < 20; ++i) requests.push_back(RandomRequest(2 + i, 20, 1));
  std::vector<Outcome*> outcomes;
  for (const GenerateRequest& request : requests) outcomes.push_back(&world.Add(request));
  world.RunSteps(90);
  ASSERT_FALSE(outcomes[0]->ended);
  EXPECT_LE(world.client().capacity_queries(), 9u) << "8 of those who came, and their quota";
  world.RunUntilIdle();
  for (size_t i = 0; i < requests.size(); ++i) world.ExpectSoloAnswer(requests[i], *outcomes[i]);
}

TEST(ProbesTest, ABlockedSequenceIsTriedWhenCapacityMayHaveChanged) {
  // Other clients free capacity: never known to the scheduler, or possibly with each step.
  for (const absl::Duration pause : {absl::InfiniteDuration(), absl::ZeroDuration()}) {
    World world({.blocks = {.primary_blocks = 40}, .options = {.probe_pause = pause}});
    const GenerateRequest running = RandomRequest(1, 20, 250);
    const GenerateRequest waiting = RandomRequest(2, 290, 5);
    Outcome& first = world.Add(running);
    world.RunSteps(2);
    Outcome& second = world.Add(waiting);
    const uint64_t before = world.client().capacity_queries();
    world.RunSteps(200);
    ASSERT_FALSE(first.ended);
    const uint64_t asked = world.client().capacity_queries() - before;
    if (pause == absl::ZeroDuration()) {
      EXPECT_GE(asked, 199u);
      EXPECT_LE(asked, 201u);
    } else {
      EXPECT_GE(asked, 1u);
      EXPECT_LE(asked, 3u) << "when it came";
    }
    world.RunUntilIdle();
    world.ExpectSoloAnswer(running, first);
    world.ExpectSoloAnswer(waiting, second);
    EXPECT_LE(second.ended_in_step, first.ended_in_step + 10) << "it came when room was there";
  }
}

// Answers that were not read yet are dropped.
TEST(ProbesTest, AreForgottenWhenTheClientFails) {
  World world({.options = {.max_step_tokens = 8, .max_running_sequences = 2}});
  std::vector<Outcome*> outcomes;
  for (uint64_t i = 0; i < 5; ++i) outcomes.push_back(&world.Add(RandomRequest(i, 12, 30)));
  world.RunSteps(4);
  world.client().FailWith(absl::UnavailableError("planted"));
  world.RunSteps(1);
  for (const Outcome* outcome : outcomes) {
    ASSERT_TRUE(outcome->ended);
    EXPECT_EQ(outcome->report.status().message(), "planted");
  }
  world.client().FailWith(absl::OkStatus());
  const GenerateRequest next = RandomRequest(9, 12, 30);
  Outcome& outcome = world.Add(next);
  world.RunUntilIdle();
  world.ExpectSoloAnswer(next, outcome);
  EXPECT_TRUE(world.cache().NothingHeld()) << "what was open before is freed";
}

}  // namespace
}  // namespace pagoda
