// The engine over a real manager and real pools. The tiny checkpoints give the expected answers.
#include "engine/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "base/error.h"
#include "engine/check_request.h"
#include "tests/engine/fixtures/golden.h"
#include "tests/engine/fixtures/test_cache.h"

namespace pagoda {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kTokensPerBlock = 16;

struct EngineSettings {
  uint32_t num_blocks = 32;
  uint32_t max_step_tokens = 512;
  DType kv_dtype = DType::kFloat32;
  uint32_t lower_blocks = 0;
  std::function<absl::Status(const Order&)> before_copy = nullptr;
};

struct Answer {
  absl::StatusOr<GenerateReport> report;
  std::vector<TokenId> ids;
  std::vector<std::vector<float>> logits;
};

// A cache, an engine on it, and the expected answers.
class EngineOn {
 public:
  explicit EngineOn(const std::string& model, EngineSettings settings = {})
      : golden_(ReadGolden(model)),
        cache_(*Engine::CacheSpecForModel(golden_.model_dir, kTokensPerBlock, settings.kv_dtype),
               {.primary_blocks = settings.num_blocks, .lower_blocks = settings.lower_blocks},
               settings.before_copy),
        engine_(*Engine::Create({.model_dir = golden_.model_dir,
                                 .cpu = {.compute = ComputeType::kFloat32},
                                 .scheduler = {.max_step_tokens = settings.max_step_tokens,
                                               .capacity_timeout = absl::Milliseconds(20)}},
                                cache_.OpenClient())) {}

  const Golden& golden() const { return golden_; }
  TestCache& cache() { return cache_; }
  Engine& engine() { return *engine_; }

  GenerateRequest Request() const {
    return {.prompt = golden_.prompt, .max_new_tokens = static_cast<uint32_t>(golden_.ids.size())};
  }

  Answer Generate(const GenerateRequest& request) {
    std::vector<TokenId> ids;
    std::vector<std::vector<float>> logits;
    auto report = engine_->Generate(request, [&](const GeneratedToken& token) {
      ids.push_back(token.token);
      logits.emplace_back(token.logits.begin(), token.logits.end());
      return true;
    });
    return {std::move(report), std::move(ids), std::move(logits)};
  }

  // Every block is free or cached, no sequence is left, and the core is sound.
  void ExpectNothingHeld() {
    cache_.manager().Read(&BlockManager::CheckInvariants);
    EXPECT_EQ(cache_.manager().Read(&BlockManager::Stats).sequences, 0u);
    EXPECT_EQ(cache_.occupancy().active, 0u);
    EXPECT_EQ(cache_.occupancy().free + cache_.occupancy().cached, cache_.occupancy().capacity);
  }

 private:
  const Golden golden_;
  TestCache cache_;
  std::unique_ptr<Engine> engine_;
};

void ExpectGolden(const Golden& golden, const Answer& answer, float tolerance) {
  ASSERT_TRUE(answer.report.ok()) << answer.report.status();
  EXPECT_EQ(answer.ids, golden.ids);
  ASSERT_EQ(answer.logits.size(), golden.logits.size());
  float worst = 0;
  for (size_t step = 0; step < golden.logits.size(); ++step) {
    ASSERT_EQ(answer.logits[step].size(), golden.logits[step].size());
    for (size_t i = 0; i < golden.logits[step].size(); ++i) {
      ASSERT_NEAR(answer.logits[step][i], golden.logits[step][i], tolerance) << "step " << step;
      worst = std::max(worst, std::abs(answer.logits[step][i] - golden.logits[step][i]));
    }
  }
  testing::Test::RecordProperty("worst_logit_difference", std::to_string(worst));
}

class GoldenTest : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Models, GoldenTest, testing::Values(kTinyModel, kUntiedModel));

TEST_P(GoldenTest, GivesTheIdsAndLogitsOfTransformers) {
  EngineOn on(GetParam());
  const Answer answer = on.Generate(on.Request());
  ExpectGolden(on.golden(), answer, 1e-4f);
  EXPECT_EQ(answer.report->finish_reasons.front(), FinishReason::kLength);
  EXPECT_EQ(answer.report->prompt_tokens, 64u);
  EXPECT_EQ(answer.report->reused_tokens, 0u);
  EXPECT_EQ(answer.report->generated_tokens, 20u);
  EXPECT_GT(answer.report->time_to_first_token, answer.report->queue_time);
  EXPECT_GT(answer.report->total_time, answer.report->time_to_first_token);
  on.ExpectNothingHeld();
}

TEST_P(GoldenTest, ComputesOnlyWhatIsNotCached) {
  EngineOn on(GetParam());
  ASSERT_TRUE(on.Generate(on.Request()).report.ok());
  // The last token of an answer is never computed.
  EXPECT_EQ(on.engine().Stats().computed_tokens, 64u + 19u);
  const Answer again = on.Generate(on.Request());
  ExpectGolden(on.golden(), again, 1e-4f);
  // All tokens except the last, whose logits are needed: three blocks, and a copy of 15 tokens of
  // the fourth.
  EXPECT_EQ(again.report->reused_tokens, 63u);
  const EngineStats stats = on.engine().Stats();
  EXPECT_EQ(stats.computed_tokens, 2 * (64u + 19u) - 63u);
  EXPECT_EQ(stats.prompt_tokens, 128u);
  EXPECT_EQ(stats.reused_tokens, 63u);
  EXPECT_EQ(stats.generated_tokens, 40u);
  on.ExpectNothingHeld();
}

TEST_P(GoldenTest, ChunkedPrefillGivesTheSame) {
  EngineOn on(GetParam(), {.max_step_tokens = 7});
  ExpectGolden(on.golden(), on.Generate(on.Request()), 1e-4f);
  ExpectGolden(on.golden(), on.Generate(on.Request()), 1e-4f);
  on.ExpectNothingHeld();
}

// Rounded K and V change the logits, but by less than the distance to the nearest rival.
TEST_P(GoldenTest, HalfPrecisionKvGivesTheSameIds) {
  EngineOn on(GetParam(), {.kv_dtype = DType::kFloat16});
  ExpectGolden(on.golden(), on.Generate(on.Request()), 2e-2f);
}

// The prompt's blocks, moved from the primary tier together with their children of the answer. The
// slots that they leave are poisoned.
void OffloadPrompt(EngineOn& on, const std::vector<TokenId>& answer = {}) {
  const std::unique_ptr<CacheClient> other = on.cache().OpenClient();
  std::vector<TokenId> tokens = on.golden().prompt;
  tokens.insert(tokens.end(), answer.begin(), answer.end());
  const auto offloaded =
      RunOne<OffloadedPrefix>(*other, OffloadPrefix{.name_space = {}, .tokens = std::move(tokens)});
  ASSERT_TRUE(offloaded.ok()) << offloaded.status();
  EXPECT_GE(offloaded->blocks, 4u);
  on.cache().WaitForCopies();
  on.cache().PoisonPrimary();
}

// Rounded to 3 bits of fraction, K and V can lead to other tokens than fp32. Reused blocks keep
// their scales, also through the lower tier. The scales of a slot are NaN before its use.
TEST(EngineTest, Float8KvIsReusedWithItsScales) {
  EngineOn on(kTinyModel, {.kv_dtype = DType::kFloat8E4M3, .lower_blocks = 32});
  const Answer first = on.Generate(on.Request());
  ASSERT_TRUE(first.report.ok()) << first.report.status();
  ASSERT_FALSE(first.ids.empty());
  for (const std::vector<float>& logits : first.logits) {
    for (const float logit : logits) ASSERT_TRUE(std::isfinite(logit));
  }
  OffloadPrompt(on, first.ids);
  const Answer again = on.Generate(on.Request());
  ASSERT_TRUE(again.report.ok()) << again.report.status();
  EXPECT_GT(again.report->reused_tokens, 0u);
  // The logits behind the prompt: all of its blocks except the last were onboarded.
  ASSERT_EQ(again.logits.at(0).size(), first.logits.at(0).size());
  for (size_t i = 0; i < first.logits[0].size(); ++i) {
    ASSERT_NEAR(again.logits[0][i], first.logits[0][i], 5e-2f) << i;
  }
  on.ExpectNothingHeld();
}

TEST(EngineTest, AContinuedConversationReusesItsAnswer) {
  EngineOn on(kTinyModel);
  const Answer first = on.Generate(on.Request());
  ASSERT_TRUE(first.report.ok());
  GenerateRequest longer = on.Request();
  longer.prompt.insert(longer.prompt.end(), first.ids.begin(), first.ids.end());
  longer.prompt.push_back(3);
  const Answer with_reuse = on.Generate(longer);
  ASSERT_TRUE(with_reuse.report.ok());
  // 64 tokens of prompt and the 19 computed ones of the answer; the tail block is matched too.
  EXPECT_EQ(with_reuse.report->reused_tokens, 83u);

  EngineOn fresh(kTinyModel);
  const Answer without = fresh.Generate(longer);
  ASSERT_TRUE(without.report.ok());
  EXPECT_EQ(without.report->reused_tokens, 0u);
  EXPECT_EQ(with_reuse.ids, without.ids);
}

TEST(EngineTest, WaitsForWhatComesUpFromALowerTier) {
  const auto slowly = [](const Order&) {
    absl::SleepFor(absl::Milliseconds(20));
    return absl::OkStatus();
  };
  EngineOn on(kTinyModel, {.lower_blocks = 32, .before_copy = slowly});
  ASSERT_TRUE(on.Generate(on.Request()).report.ok());
  // The continuation is offloaded with the prompt, because its blocks are children of the prompt's.
  GenerateRequest whole = on.Request();
  whole.prompt.insert(whole.prompt.end(), on.golden().ids.begin(), on.golden().ids.end());
  const std::unique_ptr<CacheClient> other = on.cache().OpenClient();
  ASSERT_TRUE(
      RunOne<OffloadedPrefix>(*other, OffloadPrefix{.name_space = {}, .tokens = whole.prompt})
          .ok());
  on.cache().WaitForCopies();
  on.cache().PoisonPrimary();
  const Answer again = on.Generate(on.Request());
  ExpectGolden(on.golden(), again, 1e-4f);
  EXPECT_EQ(again.report->reused_tokens, 63u);
  on.ExpectNothingHeld();
}

TEST(EngineTest, ComputesAgainWhatACopyHasLost) {
  std::atomic<bool> fail = false;
  std::atomic<int> failed = 0;
  const auto sometimes = [&](const Order& order) {
    // The second block of the prompt is not onboarded.
    if (!fail || order.target.tier != kPrimaryTier || ++failed != 2) return absl::OkStatus();
    return absl::DataLossError("planted");
  };
  EngineOn on(kTinyModel, {.lower_blocks = 32, .before_copy = sometimes});
  GenerateRequest request = on.Request();
  request.max_new_tokens = 1;
  ASSERT_TRUE(on.Generate(request).report.ok());
  OffloadPrompt(on);
  fail = true;
  const Answer again = on.Generate(on.Request());
  ExpectGolden(on.golden(), again, 1e-4f);
  EXPECT_GT(failed, 1);
  EXPECT_LT(again.report->reused_tokens, 48u);
  on.ExpectNothingHeld();
  // The descendants of a lost block are no longer cached under it; those of the next request are.
  const Answer next = on.Generate(on.Request());
  ExpectGolden(on.golden(), next, 1e-4f);
  EXPECT_LT(next.report->reused_tokens, 48u);
  const Answer whole = on.Generate(on.Request());
  ExpectGolden(on.golden(), whole, 1e-4f);
  EXPECT_EQ(whole.report->reused_tokens, 63u);
}

// A client that reports, once, a loss that no cache with full attention has.
class LosingClient final : public CacheClient {
 public:
  explicit LosingClient(std::unique_ptr<CacheClient> client) : client_(std::move(client)) {}

  const CacheInfo& info() const override { return client_->info(); }

  using CacheClient::Execute;
  absl::StatusOr<BatchResult> Execute(absl::Span<const Operation> operations,
                                      StepRange steps) override {
    absl::StatusOr<BatchResult> batch = client_->Execute(operations, steps);
    const auto* step = std::get_if<AppendStep>(&operations.front());
    if (step != nullptr && ++appends_ == 5) {
      batch->shortened = {{.sequence = step->sequences[0], .losses = 1, .must_be_freed = true}};
    }
    return batch;
  }

  absl::StatusOr<std::vector<std::unique_ptr<MappedPool>>> MapPools(MemoryAccess access) override {
    return client_->MapPools(access);
  }

 private:
  const std::unique_ptr<CacheClient> client_;
  int appends_ = 0;
};

TEST(EngineTest, ASequenceThatCanOnlyBeFreedIsComputedAgain) {
  EngineOn on(kTinyModel);
  const auto engine = Engine::Create(
      {.model_dir = on.golden().model_dir, .cpu = {.compute = ComputeType::kFloat32}},
      std::make_unique<LosingClient>(on.cache().OpenClient()));
  ASSERT_TRUE(engine.ok()) << engine.status();
  std::vector<TokenId> ids;
  const auto report = (*engine)->Generate(on.Request(), [&](const GeneratedToken& token) {
    ids.push_back(token.token);
    return true;
  });
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(ids, on.golden().ids);
  on.ExpectNothingHeld();
}

// A client whose batches can fail as a whole, like the client of a daemon in another process.
class FailingClient final : public CacheClient {
 public:
  enum class Failure { kNone, kNotRun, kAnswerLost, kSessionOver };
  // `plan` is called for each batch, with its number.
  using Plan = std::function<Failure(int batch)>;

  FailingClient(std::unique_ptr<CacheClient> client, Plan plan)
      : client_(std::move(client)), plan_(std::move(plan)) {}

  const CacheInfo& info() const override { return client_->info(); }

  using CacheClient::Execute;
  absl::StatusOr<BatchResult> Execute(absl::Span<const Operation> operations,
                                      StepRange steps) override {
    const Failure failure = plan_(batches_++);
    if (failure == Failure::kSessionOver) return MakeError(Reason::kStaleSession, "over");
    if (failure == Failure::kNotRun) return absl::UnavailableError("not there");
    absl::StatusOr<BatchResult> batch = client_->Execute(operations, steps);
    if (failure == Failure::kAnswerLost) return absl::UnavailableError("lost");
    return batch;
  }

  absl::StatusOr<std::vector<std::unique_ptr<MappedPool>>> MapPools(MemoryAccess access) override {
    return client_->MapPools(access);
  }

 private:
  const std::unique_ptr<CacheClient> client_;
  const Plan plan_;
  int batches_ = 0;
};
using Failure = FailingClient::Failure;

std::unique_ptr<Engine> EngineWith(EngineOn& on, FailingClient::Plan plan) {
  return *Engine::Create({.model_dir = on.golden().model_dir, .scheduler = {.max_step_tokens = 16}},
                         std::make_unique<FailingClient>(on.cache().OpenClient(), std::move(plan)));
}

absl::Status StatusOf(Engine& engine, const GenerateRequest& request) {
  return engine.Generate(request, [](const GeneratedToken&) { return true; }).status();
}

TEST(EngineTest, ARequestEndsWithItsClientsErrorAndIsFreed) {
  EngineOn on(kTinyModel);
  bool failed = true;
  // Batch 0 asks for the pools. The last batch that is tried frees the sequence.
  for (int batch = 1; failed; ++batch) {
    ASSERT_LT(batch, 100);
    for (const Failure failure : {Failure::kNotRun, Failure::kAnswerLost}) {
      const auto engine =
          EngineWith(on, [&](int number) { return number == batch ? failure : Failure::kNone; });
      const absl::Status status = StatusOf(*engine, on.Request());
      failed = !status.ok();
      if (failed) {
        EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
        on.ExpectNothingHeld();
      }
    }
  }
}

TEST(EngineTest, WhatCouldNotBeFreedIsFreedBeforeTheNextRequest) {
  EngineOn on(kTinyModel);
  const auto engine = EngineWith(on, [](int number) {
    return number == 3 || number == 4 ? Failure::kNotRun : Failure::kNone;
  });
  EXPECT_EQ(StatusOf(*engine, on.Request()).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(on.cache().manager().Read(&BlockManager::Stats).sequences, 1u);
  EXPECT_TRUE(StatusOf(*engine, on.Request()).ok());
  on.ExpectNothingHeld();
}

TEST(EngineTest, AnEngineGoesOnInAnotherSession) {
  EngineOn on(kTinyModel);
  const auto engine = EngineWith(
      on, [](int number) { return number < 3 ? Failure::kNone : Failure::kSessionOver; });
  EXPECT_EQ(ReasonOf(StatusOf(*engine, on.Request())), Reason::kStaleSession);
  EXPECT_EQ(ReasonOf(StatusOf(*engine, on.Request())), Reason::kStaleSession);
  ASSERT_TRUE(engine->Attach(on.cache().OpenClient()).ok());
  on.ExpectNothingHeld();
  std::vector<TokenId> ids;
  const auto report = engine->Generate(on.Request(), [&](const GeneratedToken& token) {
    ids.push_back(token.token);
    return true;
  });
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(ids, on.golden().ids);
}

TEST(EngineTest, AnEngineDoesNotGoOnWithACacheOfAnotherModel) {
  EngineOn on(kTinyModel);
  TestCache other(
      *Engine::CacheSpecForModel(GoldenDir(kUntiedModel), kTokensPerBlock, DType::kFloat32),
      {.primary_blocks = 4});
  const absl::Status refused = on.engine().Attach(other.OpenClient());
  EXPECT_EQ(ReasonOf(refused), Reason::kModelMismatch);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("the engine's model is"));
  EXPECT_EQ(other.manager().Read(&BlockManager::Stats).sessions, 0u);
  ExpectGolden(on.golden(), on.Generate(on.Request()), 1e-4f);
}

TEST(EngineTest, NamespacesDoNotShare) {
  EngineOn on(kTinyModel);
  ASSERT_TRUE(on.Generate(on.Request()).report.ok());
  GenerateRequest other = on.Request();
  other.name_space.cache_salt = "another tenant";
  const Answer answer = on.Generate(other);
  ExpectGolden(on.golden(), answer, 1e-4f);
  EXPECT_EQ(answer.report->reused_tokens, 0u);
}

TEST(EngineTest, StopsAtAStopToken) {
  EngineOn on(kTinyModel);
  GenerateRequest request = on.Request();
  request.stop_tokens = {511, on.golden().ids[3]};
  const Answer answer = on.Generate(request);
  ASSERT_TRUE(answer.report.ok());
  EXPECT_EQ(answer.report->finish_reasons.front(), FinishReason::kStopToken);
  EXPECT_EQ(answer.ids, std::vector<TokenId>(on.golden().ids.begin(), on.golden().ids.begin() + 4));
  EXPECT_EQ(answer.report->generated_tokens, 4u);
  on.ExpectNothingHeld();
}

TEST(EngineTest, ACancelledRequestGivesEverythingBack) {
  EngineOn on(kTinyModel);
  for (const int stop_after : {1, 2, 20}) {
    int calls = 0;
    const auto report = on.engine().Generate(
        on.Request(), [&](const GeneratedToken&) { return ++calls < stop_after; });
    EXPECT_EQ(report.status().code(), absl::StatusCode::kCancelled);
    EXPECT_EQ(calls, stop_after);
    on.ExpectNothingHeld();
  }
  ExpectGolden(on.golden(), on.Generate(on.Request()), 1e-4f);
}

TEST(EngineTest, ARequestIsCancelledBeforeItsTurnAndBetweenTheChunksOfItsPrompt) {
  constexpr uint32_t kChunk = 7;
  for (const uint32_t answer_yes_at : {1, 2, 6, 10}) {
    SCOPED_TRACE(testing::Message()
                 << "cancelled when asked for the " << answer_yes_at << ". time");
    EngineOn on(kTinyModel, {.max_step_tokens = kChunk});
    GenerateRequest request = on.Request();
    uint32_t asked = 0;
    request.cancelled = [&] { return ++asked == answer_yes_at; };
    const Answer answer = on.Generate(request);
    EXPECT_EQ(answer.report.status().code(), absl::StatusCode::kCancelled);
    EXPECT_EQ(asked, answer_yes_at);
    EXPECT_TRUE(answer.ids.empty());
    const uint32_t computed_tokens = (answer_yes_at - 1) * kChunk;
    EXPECT_EQ(on.engine().Stats().computed_tokens, computed_tokens);
    on.ExpectNothingHeld();

    const Answer again = on.Generate(on.Request());
    ExpectGolden(on.golden(), again, 1e-4f);
    EXPECT_EQ(again.report->reused_tokens, computed_tokens);
    on.ExpectNothingHeld();
  }
}

TEST(EngineTest, WhatTheCacheCanNeverHoldIsRefusedAtOnce) {
  // Four blocks for the prompt's 64 tokens, none for the first generated one.
  EngineOn on(kTinyModel, {.num_blocks = 4});
  const Answer answer = on.Generate(on.Request());
  EXPECT_EQ(ReasonOf(answer.report.status()), Reason::kInvalidCount);
  EXPECT_TRUE(answer.ids.empty());
  GenerateRequest fits = on.Request();
  fits.max_new_tokens = 1;
  EXPECT_TRUE(on.Generate(fits).report.ok());
  on.ExpectNothingHeld();
}

TEST(EngineTest, TheEndOfAnEngineIsTheEndOfItsRequests) {
  EngineOn on(kTinyModel, {.num_blocks = 512});
  auto engine = *Engine::Create({.model_dir = on.golden().model_dir}, on.cache().OpenClient());
  std::atomic<int> cancelled = 0;
  GenerateRequest request = on.Request();
  request.max_new_tokens = 4000;
  for (int i = 0; i < 40; ++i) {
    ASSERT_TRUE(engine
                    ->Submit(
                        request, [](const GeneratedToken&) { return true; },
                        [&](const absl::StatusOr<GenerateReport>& report) {
                          cancelled += absl::IsCancelled(report.status());
                        })
                    .ok());
  }
  engine.reset();
  EXPECT_EQ(cancelled, 40);
  on.ExpectNothingHeld();
}

TEST(EngineTest, ACacheThatOthersHoldIsExhausted) {
  EngineOn on(kTinyModel, {.num_blocks = 8});
  const std::unique_ptr<CacheClient> other = on.cache().OpenClient();
  ASSERT_TRUE(RunOne<AllocatedBlocks>(*other, AllocateBlocks{.count = 5}).ok());
  const Answer answer = on.Generate(on.Request());
  EXPECT_EQ(ReasonOf(answer.report.status()), Reason::kBlocksExhausted) << answer.report.status();
  EXPECT_EQ(on.cache().occupancy().active, 5u);
  EXPECT_EQ(on.cache().occupancy().free, 3u);
}

TEST(EngineTest, RefusesABadRequestByReason) {
  EngineOn on(kTinyModel);
  const auto refused = [&](std::vector<TokenId> prompt, uint32_t max_new_tokens, Reason reason,
                           const std::string& message) {
    const Answer answer =
        on.Generate({.prompt = std::move(prompt), .max_new_tokens = max_new_tokens});
    EXPECT_EQ(ReasonOf(answer.report.status()), reason) << answer.report.status();
    EXPECT_THAT(std::string(answer.report.status().message()), HasSubstr(message));
    EXPECT_TRUE(answer.ids.empty());
  };
  refused({}, 1, Reason::kInvalidPrompt, "no tokens");
  refused({1, 512}, 1, Reason::kInvalidPrompt, "prompt token 1 is 512");
  refused({1, 2}, 0, Reason::kInvalidCount, "max_new_tokens");
  refused(std::vector<TokenId>(4096), 1, Reason::kInvalidPrompt, "4096");
  refused({1}, 0xffffffff, Reason::kInvalidPrompt, "4294967295");
  on.ExpectNothingHeld();
}

TEST(EngineTest, LimitsTheNumberOfStopTokens) {
  EngineOn on(kTinyModel);
  GenerateRequest request = on.Request();
  request.stop_tokens.assign(kMaxStopTokens, 511);
  ExpectGolden(on.golden(), on.Generate(request), 1e-4f);
  request.stop_tokens.push_back(511);
  const Answer answer = on.Generate(request);
  EXPECT_EQ(ReasonOf(answer.report.status()), Reason::kInvalidCount);
  EXPECT_THAT(std::string(answer.report.status().message()), HasSubstr("262145 stop tokens"));
  on.ExpectNothingHeld();
}

TEST(EngineTest, RequestsOfSeveralThreadsAllGetTheirAnswer) {
  EngineOn on(kTinyModel);
  std::vector<Answer> answers(4, Answer{absl::UnknownError("not run"), {}, {}});
  std::vector<std::thread> threads;
  for (Answer& answer : answers) {
    threads.emplace_back([&] { answer = on.Generate(on.Request()); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Answer& answer : answers) ExpectGolden(on.golden(), answer, 1e-4f);
  EXPECT_EQ(on.engine().Stats().running_requests, 0u);
  EXPECT_EQ(on.engine().Stats().waiting_requests, 0u);
  on.ExpectNothingHeld();
}

TEST(EngineTest, RefusesACacheOfAnotherModel) {
  const std::string tiny = GoldenDir(kTinyModel);
  CacheSpec spec =
      *Engine::CacheSpecForModel(GoldenDir(kUntiedModel), kTokensPerBlock, DType::kFloat32);
  const auto create = [&] {
    TestCache cache(spec, {.primary_blocks = 4});
    return Engine::Create({.model_dir = tiny}, cache.OpenClient()).status();
  };
  EXPECT_EQ(ReasonOf(create()), Reason::kModelMismatch);
  EXPECT_THAT(std::string(create().message()), HasSubstr("is for the model"));
  // The right name does not help if the shape differs.
  spec.model_fingerprint =
      Engine::CacheSpecForModel(tiny, kTokensPerBlock, DType::kFloat32)->model_fingerprint;
  EXPECT_THAT(std::string(create().message()), HasSubstr("the model needs"));
  spec = *Engine::CacheSpecForModel(tiny, kTokensPerBlock, DType::kFloat32);
  spec.layers.pop_back();
  EXPECT_THAT(std::string(create().message()), HasSubstr("no pool holds layer 1"));
}

TEST(EngineTest, CacheSpecHasOneLayerForEachOfTheModels) {
  const absl::StatusOr<CacheSpec> spec =
      Engine::CacheSpecForModel(GoldenDir(kUntiedModel), 64, DType::kBFloat16);
  ASSERT_TRUE(spec.ok());
  const LayerSpec layer{.num_kv_heads = 1, .head_dim = 16, .dtype = DType::kBFloat16};
  EXPECT_EQ(spec->layers, std::vector<LayerSpec>(3, layer));
  EXPECT_EQ(spec->tokens_per_block, 64u);
  EXPECT_FALSE(spec->model_fingerprint.empty());
  EXPECT_EQ(ReasonOf(Engine::CacheSpecForModel("/nowhere", 64, DType::kFloat32).status()),
            Reason::kInvalidCheckpoint);
}

}  // namespace
}  // namespace pagoda
