// Requests whose prefix is on disk: which of them wait for it, how long, and the effect on other
// requests.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tests/engine/schedule/fake_disk.h"
#include "tests/engine/schedule/scheduler_world.h"

namespace pagoda {
namespace {

using World = SchedulerWorld;
using Outcome = SchedulerWorld::Outcome;

constexpr uint32_t kBlockTokens = World::kTokensPerBlock;
// The model's time per token in tests in which computing must be slower than the disk.
constexpr absl::Duration kSlowToken = absl::Milliseconds(2);

// A world with a disk below two tiers of memory. 16 blocks can be fetched at once.
World::Setting WithDisk(absl::Duration time_per_token = {}) {
  return {.blocks = {.primary_blocks = 40, .lower_blocks = 64, .disk_blocks = 400},
          .time_per_token = time_per_token};
}

class DiskAdmissionTest : public testing::Test {
 protected:
  void Make(World::Setting setting) {
    disk_.reset();  // The disk belongs to the old world.
    world_ = std::make_unique<World>(std::move(setting));
    disk_ = std::make_unique<FakeDisk>(&world_->cache());
    world_->SetBetweenSteps([this] { disk_->Run(); });
  }

  void RunToEnd(const GenerateRequest& request) {
    const Outcome& outcome = world_->Add(request);
    world_->RunUntilIdle();
    world_->ExpectSoloAnswer(request, outcome);
  }

  MatchedPrefix Match(const GenerateRequest& request) {
    return *RunOne<MatchedPrefix>(
        world_->client(), MatchPrefix{.name_space = request.name_space, .tokens = request.prompt});
  }

  // Runs the request, then others until none of its prompt is in memory.
  void PutOnDisk(const GenerateRequest& request) {
    RunToEnd(request);
    for (int i = 0; Match(request).matched_tokens >= kBlockTokens; ++i) {
      ASSERT_LT(i, 40);
      RunToEnd(RandomRequest(1000 + next_filler_++, 160, 1));
    }
    const MatchedPrefix match = Match(request);
    ASSERT_GE(match.cached_tokens + kBlockTokens, request.prompt.size());
    ASSERT_GE(match.tokens_by_tier.back() + kBlockTokens, request.prompt.size());
  }

  void ExpectNothingLeft() {
    disk_->HoldFetches(false);
    disk_->Run();
    EXPECT_TRUE(world_->scheduler().idle());
    EXPECT_FALSE(world_->scheduler().is_fetching());
    EXPECT_TRUE(world_->cache().NothingHeld());
    EXPECT_EQ(world_->model().unwritten_reads(), 0u);
  }

  uint64_t next_filler_ = 0;
  std::unique_ptr<World> world_;
  std::unique_ptr<FakeDisk> disk_;
};

TEST_F(DiskAdmissionTest, WaitsForWhatIsOnDiskAndComputesTheRest) {
  Make(WithDisk(kSlowToken));
  const GenerateRequest request = RandomRequest(1, 100, 5);
  PutOnDisk(request);
  const SchedulerStats before = world_->stats();
  GenerateRequest longer = request;
  for (TokenId token = 0; token < 20; ++token) longer.prompt.push_back(token);
  const Outcome& outcome = world_->Add(longer);
  world_->RunUntilIdle();
  world_->ExpectSoloAnswer(longer, outcome);
  EXPECT_GE(outcome.report->reused_tokens, 96u);
  EXPECT_GE(outcome.report->fetched_tokens, 96u);
  EXPECT_LE(outcome.report->fetched_tokens, outcome.report->reused_tokens);
  const SchedulerStats& after = world_->stats();
  EXPECT_LE(after.computed_tokens - before.computed_tokens, 120u - 96u + 4u);
  EXPECT_EQ(after.fetches - before.fetches, 1u);
  EXPECT_EQ(after.fetched_tokens - before.fetched_tokens, outcome.report->fetched_tokens);
  EXPECT_EQ(after.late_fetches, before.late_fetches);
  EXPECT_GE(disk_->blocks_read(), 12u);
  // It is in memory now.
  const uint64_t read = disk_->blocks_read();
  RunToEnd(longer);
  EXPECT_EQ(disk_->blocks_read(), read);
  ExpectNothingLeft();
}

TEST_F(DiskAdmissionTest, OthersPassOneThatWaits) {
  Make(WithDisk(kSlowToken));
  const GenerateRequest request = RandomRequest(1, 100, 5);
  PutOnDisk(request);
  disk_->HoldFetches(true);
  const Outcome& waits = world_->Add(request);
  world_->RunSteps(1);
  EXPECT_TRUE(world_->scheduler().is_fetching());
  const GenerateRequest other = RandomRequest(2, 10, 3);
  const Outcome& passes = world_->Add(other);
  world_->RunSteps(6);
  EXPECT_TRUE(passes.ended);
  EXPECT_FALSE(waits.ended);
  EXPECT_EQ(disk_->held_fetches(), 12u);
  disk_->HoldFetches(false);
  world_->RunUntilIdle();
  world_->ExpectSoloAnswer(other, passes);
  world_->ExpectSoloAnswer(request, waits);
  EXPECT_GE(waits.report->fetched_tokens, 96u);
  ExpectNothingLeft();
}

// The engine's thread can sleep meanwhile.
TEST_F(DiskAdmissionTest, NothingIsDoneWhileAllWait) {
  Make(WithDisk(kSlowToken));
  const GenerateRequest request = RandomRequest(1, 100, 5);
  PutOnDisk(request);
  disk_->HoldFetches(true);
  const Outcome& waits = world_->Add(request);
  Scheduler& scheduler = world_->scheduler();
  ASSERT_EQ(scheduler.Step(), Scheduler::Progress::kNone);
  const uint64_t batches = world_->client().batches();
  const uint64_t asked = world_->client().capacity_queries();
  for (int i = 0; i < 20; ++i) ASSERT_EQ(scheduler.Step(), Scheduler::Progress::kNone);
  EXPECT_EQ(world_->client().batches() - batches, 20u) << "each asks what has been fetched";
  EXPECT_EQ(world_->client().capacity_queries(), asked);
  disk_->HoldFetches(false);
  world_->RunUntilIdle();
  world_->ExpectSoloAnswer(request, waits);
  ExpectNothingLeft();
}

TEST_F(DiskAdmissionTest, ASlowDiskIsNotWaitedForBeyondTheDeadline) {
  Make(WithDisk());
  const GenerateRequest request = RandomRequest(1, 100, 5), next = RandomRequest(2, 100, 5);
  PutOnDisk(next);
  PutOnDisk(request);
  disk_->HoldFetches(true);
  const SchedulerStats before = world_->stats();
  const absl::Time begin = absl::Now();
  RunToEnd(request);
  EXPECT_GE(absl::Now() - begin, FetchForecast::kLeastPatience);
  EXPECT_LE(absl::Now() - begin, absl::Seconds(20)) << "the disk brings nothing";
  EXPECT_EQ(world_->stats().late_fetches - before.late_fetches, 1u);
  EXPECT_EQ(world_->stats().fetched_tokens, before.fetched_tokens);
  // The next request does not use that disk.
  const Outcome& outcome = world_->Add(next);
  world_->RunUntilIdle();
  world_->ExpectSoloAnswer(next, outcome);
  EXPECT_EQ(outcome.report->fetched_tokens, 0u);
  EXPECT_EQ(world_->stats().fetches - before.fetches, 1u);
  EXPECT_EQ(world_->stats().fetches_not_worth - before.fetches_not_worth, 1u);
  ExpectNothingLeft();
}

TEST_F(DiskAdmissionTest, NoFetchIsOrderedWhereComputingIsFaster) {
  Make(WithDisk());
  const GenerateRequest first = RandomRequest(1, 100, 5), second = RandomRequest(2, 100, 5);
  PutOnDisk(first);
  PutOnDisk(second);
  // The fetch ends in time, but is much slower than this model.
  world_->SetBetweenSteps([this] {
    if (disk_->held_fetches() > 0) absl::SleepFor(absl::Milliseconds(5));
    disk_->Run();
  });
  const SchedulerStats before = world_->stats();
  const Outcome& fetched = world_->Add(first);
  world_->RunUntilIdle();
  world_->ExpectSoloAnswer(first, fetched);
  EXPECT_EQ(world_->stats().fetches - before.fetches, 1u);
  EXPECT_GE(fetched.report->fetched_tokens, 88u);
  const uint64_t read = disk_->blocks_read();
  const Outcome& computed = world_->Add(second);
  world_->RunUntilIdle();
  world_->ExpectSoloAnswer(second, computed);
  EXPECT_EQ(computed.report->fetched_tokens, 0u);
  EXPECT_EQ(computed.report->reused_tokens, 0u);
  EXPECT_EQ(world_->stats().fetches - before.fetches, 1u);
  EXPECT_EQ(world_->stats().fetches_not_worth - before.fetches_not_worth, 1u);
  EXPECT_EQ(disk_->blocks_read(), read);
  ExpectNothingLeft();
}

TEST_F(DiskAdmissionTest, WhatAFetchHasLostIsComputed) {
  Make(WithDisk(kSlowToken));
  const GenerateRequest request = RandomRequest(1, 100, 5);
  PutOnDisk(request);
  int fetches = 0;
  disk_->SetFetchOutcome(
      [&] { return ++fetches == 5 ? absl::DataLossError("planted") : absl::OkStatus(); });
  const Outcome& outcome = world_->Add(request);
  world_->RunUntilIdle();
  world_->ExpectSoloAnswer(request, outcome);
  EXPECT_GE(fetches, 5);
  EXPECT_GE(outcome.report->fetched_tokens, 32u) << "what came before it";
  EXPECT_LT(outcome.report->fetched_tokens, 40u);
  EXPECT_EQ(world_->stats().late_fetches, 0u);
  // Nothing comes at all.
  const GenerateRequest next = RandomRequest(2, 100, 5);
  disk_->SetFetchOutcome([] { return absl::OkStatus(); });
  PutOnDisk(next);
  disk_->SetFetchOutcome([] { return absl::DataLossError("planted"); });
  const Outcome& lost = world_->Add(next);
  world_->RunUntilIdle();
  world_->ExpectSoloAnswer(next, lost);
  EXPECT_EQ(lost.report->fetched_tokens, 0u);
  ExpectNothingLeft();
}

// 4 blocks of each window at a time. With a sliding window, the first ones match nothing.
class SeveralFetchesTest : public DiskAdmissionTest,
                           public testing::WithParamInterface<std::vector<WindowSize>> {};
INSTANTIATE_TEST_SUITE_P(Windows, SeveralFetchesTest,
                         testing::Values(std::vector<WindowSize>{kFullAttention},
                                         std::vector<WindowSize>{WindowSize(20), kFullAttention}),
                         [](const auto& param) {
                           return param.index == 0 ? "Full" : "SlidingAndFull";
                         });

TEST_P(SeveralFetchesTest, BringALongPrefix) {
  World::Setting setting = WithDisk(kSlowToken);
  setting.blocks.lower_blocks = 16;
  setting.windows = GetParam();
  Make(setting);
  const GenerateRequest request = RandomRequest(1, 100, 5);
  PutOnDisk(request);
  const SchedulerStats before = world_->stats();
  const Outcome& outcome = world_->Add(request);
  world_->RunUntilIdle();
  world_->ExpectSoloAnswer(request, outcome);
  EXPECT_GE(world_->stats().fetches - before.fetches, 3u);
  EXPECT_GE(outcome.report->fetched_tokens, 88u);
  EXPECT_EQ(world_->stats().late_fetches, 0u);
  ExpectNothingLeft();
}

TEST_F(DiskAdmissionTest, RequestsOfOnePrefixWaitForOneFetch) {
  Make(WithDisk(kSlowToken));
  const GenerateRequest request = RandomRequest(1, 100, 5);
  PutOnDisk(request);
  const uint64_t read = disk_->blocks_read();
  std::vector<GenerateRequest> requests(4, request);
  for (size_t i = 0; i < requests.size(); ++i) {
    for (TokenId token = 0; token < 9; ++token) {
      requests[i].prompt.push_back(token + static_cast<TokenId>(i));
    }
  }
  std::vector<const Outcome*> outcomes;
  for (const GenerateRequest& one : requests) outcomes.push_back(&world_->Add(one));
  world_->RunUntilIdle();
  uint32_t fetched = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    world_->ExpectSoloAnswer(requests[i], *outcomes[i]);
    EXPECT_GE(outcomes[i]->report->reused_tokens, 96u);
    fetched += outcomes[i]->report->fetched_tokens;
  }
  EXPECT_GE(fetched, 96u);
  EXPECT_LE(fetched, 108u) << "each token once";
  EXPECT_LE(disk_->blocks_read() - read, 13u);
  ExpectNothingLeft();
}

TEST_F(DiskAdmissionTest, OneThatWaitsCanBeCancelled) {
  Make(WithDisk(kSlowToken));
  GenerateRequest request = RandomRequest(1, 100, 5);
  PutOnDisk(request);
  disk_->HoldFetches(true);
  bool cancelled = false;
  request.cancelled = [&] { return cancelled; };
  const Outcome& outcome = world_->Add(request);
  world_->RunSteps(3);
  EXPECT_TRUE(world_->scheduler().is_fetching());
  cancelled = true;
  world_->RunSteps(2);
  EXPECT_TRUE(outcome.ended);
  EXPECT_TRUE(absl::IsCancelled(outcome.report.status()));
  ExpectNothingLeft();
}

TEST_F(DiskAdmissionTest, OneThatWaitsGoesOnInAnotherSession) {
  Make(WithDisk(kSlowToken));
  const GenerateRequest request = RandomRequest(1, 100, 5);
  PutOnDisk(request);
  disk_->HoldFetches(true);
  const Outcome& outcome = world_->Add(request);
  world_->RunSteps(3);
  EXPECT_TRUE(world_->scheduler().is_fetching());
  const std::unique_ptr<CacheClient> next = world_->cache().OpenClient();
  world_->scheduler().Attach(next.get());
  EXPECT_FALSE(world_->scheduler().is_fetching());
  disk_->HoldFetches(false);
  world_->RunUntilIdle();
  world_->ExpectSoloAnswer(request, outcome);
  world_->scheduler().Attach(&world_->client());
  ExpectNothingLeft();
}

TEST_F(DiskAdmissionTest, WithoutADiskNobodyAsksForOne) {
  World world({.blocks = {.primary_blocks = 16, .lower_blocks = 16}});
  std::vector<GenerateRequest> requests;
  for (uint64_t i = 0; i < 10; ++i) requests.push_back(RandomRequest(i % 4, 60, 5));
  world.ExpectSoloAnswers(requests);
  EXPECT_EQ(world.client().match_queries(), 0u);
  EXPECT_EQ(world.stats().fetches + world.stats().fetches_not_worth, 0u);
}

// Conversations that come back, preemptions, cancellations, and a disk that is sometimes late and
// sometimes loses a block.
TEST_F(DiskAdmissionTest, AnswersDoNotDependOnTheDisk) {
  for (const bool sliding : {false, true}) {
    SCOPED_TRACE(sliding ? "with a sliding window" : "full attention");
    World::Setting setting = WithDisk();
    setting.blocks = {.primary_blocks = 60, .lower_blocks = 48, .disk_blocks = 250};
    if (sliding) setting.windows = {WindowSize(20), kFullAttention};
    setting.options = {.max_step_tokens = 40, .max_running_sequences = 6};
    setting.time_per_token = absl::Microseconds(200);
    Make(setting);
    std::mt19937_64 random(sliding ? 7 : 8);
    disk_->SetFetchOutcome(
        [&] { return random() % 200 == 0 ? absl::DataLossError("planted") : absl::OkStatus(); });
    uint64_t stalled = 0;
    world_->SetBetweenSteps([&] {
      if (stalled == 0 && random() % 100 == 0) stalled = random() % 40;
      if (stalled > 0) --stalled;
      disk_->HoldFetches(stalled > 0);
      disk_->Run();
    });
    std::vector<GenerateRequest> requests;
    std::vector<const Outcome*> outcomes;
    for (int round = 0; round < 25; ++round) {
      for (int i = 0; i < 5; ++i) {
        GenerateRequest request = RandomRequest(random() % 30, 60 + random() % 3 * 20, 10);
        request.num_samples = 1 + random() % 2;
        requests.push_back(request);
        if (random() % 10 == 0) {
          request.cancelled = [step = 0]() mutable { return ++step > 5; };
        }
        outcomes.push_back(&world_->Add(request));
      }
      if (random() % 2 == 0) world_->RunUntilIdle();
      world_->cache().manager().Read(&BlockManager::CheckInvariants);
    }
    world_->RunUntilIdle();
    size_t answered = 0;
    for (size_t i = 0; i < requests.size(); ++i) {
      ASSERT_TRUE(outcomes[i]->ended);
      if (absl::IsCancelled(outcomes[i]->report.status())) continue;
      SCOPED_TRACE(testing::Message() << "request " << i);
      world_->ExpectSoloAnswer(requests[i], *outcomes[i]);
      ++answered;
    }
    EXPECT_GE(answered, 90u);
    EXPECT_GE(world_->stats().fetches, 1u) << "how many depends on how fast this machine is";
    ExpectNothingLeft();
  }
}

}  // namespace
}  // namespace pagoda
