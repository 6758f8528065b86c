// LoRA adapters through the whole engine: the answers are those of Hugging Face's peft, however the
// cache is used, and no KV is shared between adapters.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/notification.h"
#include "base/error.h"
#include "engine/basic_cache/basic_cache_client.h"
#include "engine/engine.h"
#include "tests/engine/fixtures/golden.h"
#include "tests/engine/fixtures/scratch_model.h"
#include "tests/engine/fixtures/test_cache.h"

namespace pagoda {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kTokensPerBlock = 16;
constexpr float kTolerance = 1e-4f;

constexpr char kAll[] = "adapters/qwen3_all";
constexpr char kAttention[] = "adapters/qwen3_attention";
constexpr char kOutputs[] = "adapters/gemma3_outputs";

// A prompt with peft's answer. `adapter` is empty for the model alone.
struct Case {
  std::string adapter;
  Golden golden;
};

struct Answer {
  absl::StatusOr<GenerateReport> report = absl::UnknownError("not ended");
  std::vector<TokenId> ids;
  float worst_logit_difference = 0;
};

std::vector<Case> CasesOf(const char* model, const std::string& adapter) {
  std::vector<Case> cases;
  for (Golden& golden : ReadGoldenCases({model, adapter.empty() ? model : adapter.c_str()})) {
    cases.push_back({adapter, std::move(golden)});
  }
  return cases;
}

GenerateRequest RequestFor(const Case& one) {
  GenerateRequest request{.prompt = one.golden.prompt,
                          .max_new_tokens = static_cast<uint32_t>(one.golden.ids.size())};
  request.adapter = one.adapter;
  return request;
}

bool TakeToken(const Case& one, const GeneratedToken& token, Answer& answer) {
  if (answer.ids.size() < one.golden.logits.size()) {
    const std::vector<float>& expected = one.golden.logits[answer.ids.size()];
    for (size_t t = 0; t < expected.size(); ++t) {
      const float difference = std::abs(token.logits[t] - expected[t]);
      // NaN counts as the worst error.
      if (!(difference <= answer.worst_logit_difference)) {
        answer.worst_logit_difference = difference;
      }
    }
  }
  answer.ids.push_back(token.token);
  return true;
}

// Submits all of them so that they run at once, however slow the submission is.
std::vector<Answer> GenerateAll(Engine& engine, const std::vector<Case>& cases) {
  std::vector<Answer> answers(cases.size());
  absl::BlockingCounter left(static_cast<int>(cases.size()));
  absl::Notification all_submitted;
  for (size_t i = 0; i < cases.size(); ++i) {
    const absl::Status submitted = engine.Submit(
        RequestFor(cases[i]),
        [&, i](const GeneratedToken& token) {
          all_submitted.WaitForNotification();
          return TakeToken(cases[i], token, answers[i]);
        },
        [&answer = answers[i], &left](absl::StatusOr<GenerateReport> report) {
          answer.report = std::move(report);
          left.DecrementCount();
        });
    EXPECT_TRUE(submitted.ok()) << submitted;
    if (!submitted.ok()) left.DecrementCount();
  }
  all_submitted.Notify();
  left.Wait();
  return answers;
}

// While the first one generates, the second one arrives with a higher priority.
std::vector<Answer> GenerateInterrupted(Engine& engine, const Case& first, const Case& second) {
  std::vector<Answer> answers(2);
  absl::BlockingCounter left(2);
  const auto submit = [&](const Case& one, int32_t priority, Answer& answer,
                          const std::function<void()>& on_fifth) {
    GenerateRequest request = RequestFor(one);
    request.priority = priority;
    const absl::Status submitted = engine.Submit(
        std::move(request),
        [&one, &answer, on_fifth](const GeneratedToken& token) {
          if (answer.ids.size() == 5 && on_fifth != nullptr) on_fifth();
          return TakeToken(one, token, answer);
        },
        [&answer, &left](absl::StatusOr<GenerateReport> report) {
          answer.report = std::move(report);
          left.DecrementCount();
        });
    EXPECT_TRUE(submitted.ok()) << submitted;
  };
  submit(first, 0, answers[0], [&] { submit(second, 1, answers[1], nullptr); });
  left.Wait();
  return answers;
}

void ExpectGolden(const Case& one, const Answer& answer) {
  SCOPED_TRACE(testing::Message() << one.adapter << ", a prompt of " << one.golden.prompt.size());
  ASSERT_TRUE(answer.report.ok()) << answer.report.status();
  EXPECT_EQ(answer.ids, one.golden.ids);
  EXPECT_LE(answer.worst_logit_difference, kTolerance);
}

std::vector<Answer> ExpectGoldens(Engine& engine, const std::vector<Case>& cases) {
  std::vector<Answer> answers = GenerateAll(engine, cases);
  for (size_t i = 0; i < cases.size(); ++i) ExpectGolden(cases[i], answers[i]);
  return answers;
}

std::vector<Answer> ExpectGoldensInTurn(Engine& engine, const std::vector<Case>& cases) {
  std::vector<Answer> answers;
  for (const Case& one : cases) answers.push_back(ExpectGoldens(engine, {one}).front());
  return answers;
}

std::vector<AdapterFolder> FoldersOf(const std::vector<std::string>& adapters) {
  std::vector<AdapterFolder> folders;
  for (const std::string& adapter : adapters) folders.push_back({adapter, GoldenDir(adapter)});
  return folders;
}

Engine::Options OptionsFor(const char* model, const std::vector<AdapterFolder>& adapters) {
  Engine::Options options{.model_dir = GoldenDir(model),
                          .cpu = {.num_threads = 1, .compute = ComputeType::kFloat32}};
  options.adapters = adapters;
  return options;
}

std::unique_ptr<TestCache> CacheFor(const char* model, TestCache::Sizes sizes) {
  return std::make_unique<TestCache>(
      *Engine::CacheSpecForModel(GoldenDir(model), kTokensPerBlock, DType::kFloat32), sizes);
}

std::unique_ptr<Engine> EngineOver(TestCache& cache, const Engine::Options& options) {
  absl::StatusOr<std::unique_ptr<Engine>> engine = Engine::Create(options, cache.OpenClient());
  EXPECT_TRUE(engine.ok()) << engine.status();
  return *std::move(engine);
}

// --- One adapter ---

struct Adapted {
  const char* model;
  const char* adapter;
};

class AdapterGoldenTest : public testing::TestWithParam<Adapted> {
 protected:
  Engine::Options Options() const {
    return OptionsFor(GetParam().model, FoldersOf({GetParam().adapter}));
  }
  const std::vector<Case> cases_ = CasesOf(GetParam().model, GetParam().adapter);
};
INSTANTIATE_TEST_SUITE_P(Adapters, AdapterGoldenTest,
                         testing::Values(Adapted{kTinyModel, kAll}, Adapted{kTinyModel, kAttention},
                                         Adapted{"gemma3_tiny", kOutputs}),
                         [](const auto& param) {
                           return std::string(param.param.adapter).substr(sizeof("adapters"));
                         });

TEST_P(AdapterGoldenTest, AloneAndAgainFromTheCache) {
  const auto cache = CacheFor(GetParam().model, {.primary_blocks = 128});
  const auto engine = EngineOver(*cache, Options());
  ExpectGoldensInTurn(*engine, cases_);
  const std::vector<Answer> again = ExpectGoldensInTurn(*engine, cases_);
  for (size_t i = 0; i < cases_.size(); ++i) {
    EXPECT_EQ(again[i].report->reused_tokens, cases_[i].golden.prompt.size() - 1);
  }
  EXPECT_TRUE(cache->NothingHeld());
}

TEST_P(AdapterGoldenTest, InChunksOfSevenTokens) {
  const auto cache = CacheFor(GetParam().model, {.primary_blocks = 128});
  Engine::Options options = Options();
  options.scheduler.max_step_tokens = 7;
  const auto engine = EngineOver(*cache, options);
  ExpectGoldensInTurn(*engine, cases_);
}

TEST_P(AdapterGoldenTest, PreemptedAndComputedAgain) {
  const auto cache = CacheFor(GetParam().model, {.primary_blocks = 18});
  Engine::Options options = Options();
  options.scheduler.max_running_sequences = 1;
  options.scheduler.preemption = Preemption::kRecompute;
  const auto engine = EngineOver(*cache, options);
  const std::vector<Answer> answers = GenerateInterrupted(*engine, cases_[3], cases_[2]);
  ExpectGolden(cases_[3], answers[0]);
  ExpectGolden(cases_[2], answers[1]);
  EXPECT_EQ(answers[0].report->preemptions, 1u);
  EXPECT_TRUE(cache->NothingHeld());
}

TEST_P(AdapterGoldenTest, WithTheBasicCacheAndTheReferenceBackend) {
  Engine::Options options = Options();
  for (const EngineBackend backend : {EngineBackend::kAuto, EngineBackend::kReference}) {
    options.backend = backend;
    auto client = MakeBasicCacheClient(
        {.spec = *Engine::CacheSpecForModel(options.model_dir, kTokensPerBlock, DType::kFloat32),
         .max_sequences = 4,
         .max_sequence_tokens = 256});
    ASSERT_TRUE(client.ok()) << client.status();
    const auto engine = Engine::Create(options, *std::move(client));
    ASSERT_TRUE(engine.ok()) << engine.status();
    ExpectGoldens(**engine, cases_);
  }
}

// Draft tokens from the text change only the number of steps.
TEST_P(AdapterGoldenTest, WithDraftTokens) {
  const auto cache = CacheFor(GetParam().model, {.primary_blocks = 128});
  const auto engine = EngineOver(*cache, Options());
  for (const Case& one : cases_) {
    GenerateRequest request = RequestFor(one);
    request.max_draft_tokens = 5;
    std::vector<TokenId> ids;
    const auto report = engine->Generate(request, [&](const GeneratedToken& token) {
      ids.push_back(token.token);
      return true;
    });
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(ids, one.golden.ids);
  }
}

// --- Several adapters ---

class AdaptersTest : public testing::Test {
 protected:
  std::unique_ptr<Engine> Serve(const std::vector<AdapterFolder>& adapters) {
    return EngineOver(*cache_, OptionsFor(kTinyModel, adapters));
  }
  // How many prompt tokens of the request were in the cache.
  static uint32_t Reused(Engine& engine, const GenerateRequest& request) {
    const auto report = engine.Generate(request, [](const GeneratedToken&) { return true; });
    EXPECT_TRUE(report.ok()) << report.status();
    return report.ok() ? report->reused_tokens : 0;
  }
  GenerateRequest Ask(const std::string& adapter) const {
    GenerateRequest request{.prompt = prompt_, .max_new_tokens = 1};
    request.adapter = adapter;
    return request;
  }

  const std::vector<TokenId> prompt_ = ReadGolden(kTinyModel).prompt;
  const std::unique_ptr<TestCache> cache_ = CacheFor(kTinyModel, {.primary_blocks = 256});
};

// Rows of two adapters and of the model alone in each step, prompts in chunks next to sequences
// that generate.
TEST_F(AdaptersTest, SixteenRequestsOfTwoAdaptersAndNoneInOneBatch) {
  Engine::Options options = OptionsFor(kTinyModel, FoldersOf({kAll, kAttention}));
  options.scheduler.max_step_tokens = 40;
  const auto engine = EngineOver(*cache_, options);
  std::vector<Case> cases;
  const std::vector<Case> kinds[] = {CasesOf(kTinyModel, ""), CasesOf(kTinyModel, kAll),
                                     CasesOf(kTinyModel, kAttention), CasesOf(kTinyModel, kAll)};
  for (size_t prompt = 0; prompt < 4; ++prompt) {
    for (const std::vector<Case>& kind : kinds) cases.push_back(kind[prompt]);
  }
  ExpectGoldens(*engine, cases);
  // One after the other, they would need one step per generated token.
  EXPECT_LT(engine->Stats().steps, 16 * 20u / 4);
  EXPECT_TRUE(cache_->NothingHeld());
}

TEST_F(AdaptersTest, EachAdapterMatchesOnlyItsOwnPrefixes) {
  const auto engine = Serve(FoldersOf({kAll, kAttention}));
  const auto all = static_cast<uint32_t>(prompt_.size()) - 1;
  for (const std::string adapter : {"", kAll, kAttention}) {
    EXPECT_EQ(Reused(*engine, Ask(adapter)), 0u) << adapter;
  }
  for (const std::string adapter : {"", kAll, kAttention}) {
    EXPECT_EQ(Reused(*engine, Ask(adapter)), all) << adapter;
  }
  // A salt separates an adapter's prompts as it separates the model's.
  GenerateRequest salted = Ask(kAll);
  salted.name_space.cache_salt = "s";
  EXPECT_EQ(Reused(*engine, salted), 0u);
  EXPECT_EQ(Reused(*engine, salted), all);
}

// The cache outlives the engine.
TEST_F(AdaptersTest, TheContentOfAnAdapterNamesItsPrefixesNotItsName) {
  const auto all = static_cast<uint32_t>(prompt_.size()) - 1;
  const ScratchModel copy(kAll);
  EXPECT_EQ(Reused(*Serve({{"a", copy.dir()}}), Ask("a")), 0u);
  EXPECT_EQ(Reused(*Serve({{"other", GoldenDir(kAll)}}), Ask("other")), all) << "the same content";
  // Nothing but the scale.
  copy.EditJson("adapter_config.json", [](nlohmann::json& config) { config["lora_alpha"] = 7; });
  EXPECT_EQ(Reused(*Serve({{"a", copy.dir()}}), Ask("a")), 0u) << "another scale";
  // Nothing but one bit of one number.
  copy.EditJson("adapter_config.json", [](nlohmann::json& config) { config["lora_alpha"] = 6; });
  std::string tensors = copy.Read("adapter_model.safetensors");
  tensors.back() = static_cast<char>(tensors.back() ^ 1);
  copy.Write("adapter_model.safetensors", tensors);
  EXPECT_EQ(Reused(*Serve({{"a", copy.dir()}}), Ask("a")), 0u) << "another number";
}

TEST_F(AdaptersTest, TheSamplesOfARequestHaveItsAdapter) {
  const auto engine = Serve(FoldersOf({kAll}));
  const Case one = CasesOf(kTinyModel, kAll)[1];
  GenerateRequest request = RequestFor(one);
  request.num_samples = 3;
  std::vector<std::vector<TokenId>> ids(3);
  const auto report = engine->Generate(request, [&](const GeneratedToken& token) {
    ids[token.sample].push_back(token.token);
    return true;
  });
  ASSERT_TRUE(report.ok()) << report.status();
  for (const std::vector<TokenId>& sample : ids) EXPECT_EQ(sample, one.golden.ids);
}

TEST_F(AdaptersTest, AnUnknownNameIsRefused) {
  const auto engine = Serve(FoldersOf({kAll}));
  for (const std::string name : {"nothing", "adapters", "ADAPTERS/QWEN3_ALL"}) {
    const absl::Status refused = engine->Submit(Ask(name), nullptr, nullptr);
    EXPECT_EQ(ReasonOf(refused), Reason::kUnknownAdapter) << refused;
    EXPECT_THAT(std::string(refused.message()), HasSubstr(name));
  }
  GenerateRequest both = Ask(kAll);
  both.name_space.lora_id = 1;
  EXPECT_EQ(ReasonOf(engine->Submit(both, nullptr, nullptr)), Reason::kFieldNotServed);
  ASSERT_EQ(engine->adapters().size(), 1u);
  EXPECT_EQ(engine->adapters()[0].name, kAll);
}

TEST_F(AdaptersTest, BadListsAreRefused) {
  const auto refuse = [&](const std::vector<AdapterFolder>& adapters) {
    return Engine::Create(OptionsFor(kTinyModel, adapters), cache_->OpenClient()).status();
  };
  EXPECT_EQ(ReasonOf(refuse({{"", GoldenDir(kAll)}})), Reason::kInvalidArgument);
  EXPECT_EQ(ReasonOf(refuse({{"a", ""}})), Reason::kInvalidArgument);
  const absl::Status twice = refuse({{"a", GoldenDir(kAll)}, {"a", GoldenDir(kAttention)}});
  EXPECT_EQ(ReasonOf(twice), Reason::kInvalidArgument);
  EXPECT_THAT(std::string(twice.message()), HasSubstr("two adapters 'a'"));
  // Another model's adapter.
  const absl::Status other = refuse({{"big", GoldenDir(kOutputs)}});
  EXPECT_EQ(ReasonOf(other), Reason::kInvalidCheckpoint);
  EXPECT_THAT(std::string(other.message()), HasSubstr("adapter 'big'"));
}

}  // namespace
}  // namespace pagoda
