// Requests that wait in the queue before they are prepared, and the tenants beside them.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/schedule/waiting_places.h"
#include "tests/engine/schedule/scheduler_world.h"

namespace pagoda {
namespace {

using World = SchedulerWorld;
using Outcome = SchedulerWorld::Outcome;
using Preparation = SchedulerWorld::Preparation;

GenerateRequest Ask(const std::string& tenant, uint64_t seed, uint32_t max_new_tokens = 2) {
  GenerateRequest request = RandomRequest(seed, 10, max_new_tokens);
  request.tenant = tenant;
  return request;
}

World::Setting Sequences(uint32_t most) {
  return {.options = {.max_running_sequences = most},
          .tenants = {{.name = "red", .shares = true}, {.name = "blue", .shares = true}}};
}

void EndPreparation(World& world, const Outcome& outcome, absl::StatusOr<uint32_t> fetched = 0) {
  world.scheduler().Prepared(outcome.request.lock(), fetched);
}

TEST(PreparationTest, ATenantIsNotBehindAThousandRequestsOfAnother) {
  for (const Preparation preparation : {Preparation::kEnded, Preparation::kGoesOn}) {
    World world(Sequences(2));
    std::vector<Outcome*> red;
    for (uint64_t i = 0; i < 1000; ++i) red.push_back(&world.Add(Ask("red", i), preparation));
    world.RunSteps(3);
    const GenerateRequest request = Ask("blue", 2000);
    Outcome& blue = world.Add(request);
    world.RunSteps(10);
    world.ExpectSoloAnswer(request, blue);
    EXPECT_LE(std::count_if(red.begin(), red.end(), [](const Outcome* one) { return one->ended; }),
              preparation == Preparation::kEnded ? 12 : 0);
    if (preparation == Preparation::kEnded) continue;
    EXPECT_EQ(world.stats().waiting_requests, 1000u);
    for (Outcome* one : red) EndPreparation(world, *one);
    world.RunUntilIdle();
    for (uint64_t i = 0; i < 1000; ++i) world.ExpectSoloAnswer(Ask("red", i), *red[i]);
  }
}

TEST(PreparationTest, ARequestKeepsItsPositionAndReportsWhatWasFetched) {
  World world(Sequences(1));
  Outcome& first = world.Add(Ask("", 1), Preparation::kGoesOn);
  Outcome& second = world.Add(Ask("", 2), Preparation::kGoesOn);
  EXPECT_EQ(world.scheduler().Step(), Scheduler::Progress::kNone);
  EndPreparation(world, second);
  EndPreparation(world, first, 8);
  EXPECT_EQ(first.request.lock()->request.fetched_tokens, 8u);
  world.RunUntilIdle();
  EXPECT_LT(first.ended_in_step, second.ended_in_step);
}

// Both tenants then have work, so they take turns: red has saved nothing up.
TEST(PreparationTest, ATenantSavesNoServiceUpWhileItIsNotPrepared) {
  World world(Sequences(1));
  Outcome& waiting = world.Add(Ask("red", 1), Preparation::kGoesOn);
  world.Add(Ask("blue", 2, 300));
  world.RunSteps(400);
  EndPreparation(world, waiting);
  std::vector<Outcome*> red, blue;
  for (uint64_t i = 0; i < 20; ++i) {
    red.push_back(&world.Add(Ask("red", 100 + i)));
    blue.push_back(&world.Add(Ask("blue", 200 + i)));
  }
  world.RunUntilIdle();
  EXPECT_TRUE(red.back()->report.ok()) << red.back()->report.status();
  for (size_t i = 0; i + 3 < red.size(); ++i) {
    EXPECT_LT(blue[i]->ended_in_step, red[i + 3]->ended_in_step) << i;
  }
}

TEST(PreparationTest, ACancelledRequestGivesItsPlaceBackAtOnce) {
  World world({});
  WaitingPlaces places({.requests = 1}, {""});
  bool cancel = false;
  GenerateRequest request = Ask("", 1);
  request.cancelled = [&] { return cancel; };
  Outcome& outcome = world.Add(request, Preparation::kGoesOn);
  const std::shared_ptr<ActiveRequest> active = outcome.request.lock();
  active->place = *places.Take(request);
  world.RunSteps(2);
  EXPECT_EQ(ReasonOf(places.Take(request).status()), Reason::kQueueFull);
  cancel = true;
  world.RunSteps(1);
  EXPECT_TRUE(absl::IsCancelled(outcome.report.status())) << outcome.report.status();
  EXPECT_TRUE(places.Take(request).ok());
  world.scheduler().Prepared(active, 0);
  EXPECT_TRUE(world.scheduler().idle());
  EXPECT_EQ(world.stats().waiting_requests, 0u);
}

TEST(PreparationTest, AFailedPreparationEndsTheRequestWithItsError) {
  World world({});
  Outcome& outcome = world.Add(Ask("", 1), Preparation::kGoesOn);
  EndPreparation(world, outcome, absl::UnavailableError("no daemon"));
  world.RunUntilIdle();
  EXPECT_EQ(outcome.report.status(), absl::UnavailableError("no daemon"));
}

TEST(PreparationTest, AFailedClientEndsOnlyRequestsThatArePrepared) {
  World world({});
  Outcome& running = world.Add(Ask("", 1, 50));
  const GenerateRequest request = Ask("", 2);
  Outcome& waiting = world.Add(request, Preparation::kGoesOn);
  world.RunSteps(3);
  world.client().FailWith(absl::UnavailableError("the daemon is gone"));
  world.RunSteps(2);
  EXPECT_TRUE(absl::IsUnavailable(running.report.status())) << running.report.status();
  EXPECT_FALSE(waiting.ended);
  world.client().FailWith(absl::OkStatus());
  const uint64_t batches = world.client().batches();
  world.RunSteps(5);
  EXPECT_EQ(world.client().batches(), batches) << "it has nothing to do";
  EndPreparation(world, waiting);
  world.RunUntilIdle();
  world.ExpectSoloAnswer(request, waiting);
  EXPECT_TRUE(world.cache().NothingHeld());
}

TEST(PreparationTest, ARequestThatTheNextCacheCanNeverHoldEnds) {
  TestCache small(ArithmeticModel::Spec({kFullAttention}, World::kTokensPerBlock),
                  {.primary_blocks = 4});
  WatchedClient client(small.OpenClient());
  World world({});
  Outcome& fits = world.Add(Ask("", 1, 10), Preparation::kGoesOn);
  Outcome& is_too_long = world.Add(Ask("", 2, 100), Preparation::kGoesOn);
  world.RunSteps(1);
  world.scheduler().Attach(&client);
  world.RunSteps(1);
  EXPECT_EQ(ReasonOf(is_too_long.report.status()), Reason::kInvalidCount);
  EXPECT_FALSE(fits.ended);
  world.scheduler().Shutdown(absl::CancelledError("the end"));
  world.scheduler().ReportEnds();
  EXPECT_TRUE(absl::IsCancelled(fits.report.status())) << "whether it is prepared or not";
}

TEST(SlowTenantTest, IsLeftOutWhileOthersHaveWork) {
  World world(Sequences(4));
  const GenerateRequest slow = Ask("red", 1, 40), late = Ask("red", 2, 4),
                        other = Ask("blue", 3, 40);
  Outcome& red = world.Add(slow);
  Outcome& blue = world.Add(other);
  world.RunSteps(4);
  world.client().SetSlowTenants({"red"});
  Outcome& waiting = world.Add(late);
  const auto tokens = [](const Outcome& outcome) { return outcome.samples.at(0).size(); };
  const size_t red_before = tokens(red), blue_before = tokens(blue);
  world.RunSteps(10);
  EXPECT_EQ(tokens(red), red_before);
  EXPECT_EQ(tokens(blue), blue_before + 10);
  EXPECT_FALSE(waiting.ended);
  EXPECT_EQ(world.stats().waiting_requests, 1u);
  world.client().SetSlowTenants({});
  world.RunUntilIdle();
  world.ExpectSoloAnswer(slow, red);
  world.ExpectSoloAnswer(late, waiting);
  world.ExpectSoloAnswer(other, blue);
}

TEST(SlowTenantTest, IsServedIfNobodyElseHasWork) {
  World world(Sequences(4));
  world.client().SetSlowTenants({"red"});
  const GenerateRequest slow = Ask("red", 1, 20);
  Outcome& red = world.Add(slow);
  world.Add(Ask("blue", 2), Preparation::kGoesOn);
  world.RunSteps(40);
  world.ExpectSoloAnswer(slow, red);
}

TEST(SlowTenantTest, DoesNotKeepTheEngineBusyWhileOthersLackItsBlocks) {
  World::Setting setting = Sequences(4);
  setting.blocks = {.primary_blocks = 12};
  World world(setting);
  const GenerateRequest slow = Ask("red", 1, 70);
  Outcome& red = world.Add(slow);
  world.RunSteps(60);
  world.client().SetSlowTenants({"red"});
  GenerateRequest other = RandomRequest(2, 60, 4);
  other.tenant = "blue";
  Outcome& blue = world.Add(other);
  world.RunSteps(5);
  EXPECT_EQ(world.scheduler().Step(), Scheduler::Progress::kNone);
  world.client().SetSlowTenants({});
  world.RunUntilIdle();
  world.ExpectSoloAnswer(slow, red);
  world.ExpectSoloAnswer(other, blue);
}

TEST(SlowTenantTest, GivesBackBlocksThatOthersLack) {
  World::Setting setting = Sequences(4);
  setting.blocks = {.primary_blocks = 12};
  World world(setting);
  bool cancel = false;
  GenerateRequest slow = Ask("red", 1, 70);
  slow.cancelled = [&] { return cancel; };
  Outcome& red = world.Add(slow);
  world.RunSteps(60);
  world.client().SetSlowTenants({"red"});
  const GenerateRequest other = Ask("blue", 2, 40);
  Outcome& blue = world.Add(other);
  cancel = true;
  world.RunSteps(200);
  world.ExpectSoloAnswer(other, blue);
  world.client().SetSlowTenants({});
  world.RunUntilIdle();
  EXPECT_TRUE(absl::IsCancelled(red.report.status())) << red.report.status();
}

}  // namespace
}  // namespace pagoda
