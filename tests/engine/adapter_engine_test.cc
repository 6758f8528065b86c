// LoRA adapters through the whole engine: the answers are those of Hugging Face's peft, however the
// cache is used, and no KV is shared between adapters.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "engine/basic_cache/basic_cache_client.h"
#include "engine/engine.h"
#include "tests/base/require.h"
#include "tests/engine/fixtures/golden.h"
#include "tests/engine/fixtures/golden_runs.h"
#include "tests/engine/fixtures/scratch_model.h"
#include "tests/engine/fixtures/test_cache.h"

namespace pagoda {
namespace {

using ::testing::HasSubstr;

constexpr float kTolerance = 1e-4f;

constexpr char kAll[] = "adapters/qwen3_all";
constexpr char kAttention[] = "adapters/qwen3_attention";
constexpr char kOutputs[] = "adapters/gemma3_outputs";

// The model's prompts with peft's answers. `adapter` is empty for the model alone.
std::vector<Golden> GoldensOf(const char* model, const std::string& adapter) {
  std::vector<Golden> goldens = ReadGoldenCases({model, adapter.empty() ? model : adapter.c_str()});
  for (Golden& golden : goldens) golden.adapter = adapter;
  return goldens;
}

void ExpectGolden(const Golden& golden, const GoldenAnswer& answer) {
  SCOPED_TRACE(testing::Message() << golden.adapter << ", a prompt of " << golden.prompt.size());
  ASSERT_TRUE(answer.report.ok()) << answer.report.status();
  EXPECT_EQ(answer.ids, golden.ids);
  EXPECT_LE(answer.worst_logit_difference, kTolerance);
}

void ExpectGoldens(Engine& engine, const std::vector<Golden>& goldens) {
  const std::vector<GoldenAnswer> answers = GenerateAll(engine, goldens);
  for (size_t i = 0; i < goldens.size(); ++i) ExpectGolden(goldens[i], answers[i]);
}

std::vector<GoldenAnswer> ExpectGoldensInTurn(Engine& engine, const std::vector<Golden>& goldens) {
  std::vector<GoldenAnswer> answers = GenerateInTurn(engine, goldens);
  for (size_t i = 0; i < goldens.size(); ++i) ExpectGolden(goldens[i], answers[i]);
  return answers;
}

std::vector<AdapterFolder> FoldersOf(const std::vector<std::string>& adapters) {
  std::vector<AdapterFolder> folders;
  for (const std::string& adapter : adapters) folders.push_back({adapter, GoldenDir(adapter)});
  return folders;
}

// --- One adapter ---

struct Adapted {
  const char* model;
  const char* adapter;
};

class AdapterGoldenTest : public testing::TestWithParam<Adapted> {
 protected:
  static GoldenModel model() { return {GetParam().model, GetParam().adapter}; }
  static ServedModel Serve(EngineSetting setting) {
    setting.adapters = FoldersOf({GetParam().adapter});
    return pagoda::Serve(model(), setting);
  }
  const std::vector<Golden> goldens_ = GoldensOf(GetParam().model, GetParam().adapter);
};
INSTANTIATE_TEST_SUITE_P(Adapters, AdapterGoldenTest,
                         testing::Values(Adapted{kTinyModel, kAll}, Adapted{kTinyModel, kAttention},
                                         Adapted{"gemma3_tiny", kOutputs}),
                         [](const auto& param) {
                           return std::string(param.param.adapter).substr(sizeof("adapters"));
                         });

TEST_P(AdapterGoldenTest, AloneAndAgainFromTheCache) {
  const ServedModel served = Serve({});
  ExpectGoldensInTurn(*served.engine, goldens_);
  const std::vector<GoldenAnswer> again = ExpectGoldensInTurn(*served.engine, goldens_);
  for (size_t i = 0; i < goldens_.size(); ++i) {
    EXPECT_EQ(again[i].report->reused_tokens, goldens_[i].prompt.size() - 1);
  }
  EXPECT_TRUE(served.cache->NothingHeld());
}

TEST_P(AdapterGoldenTest, InChunksOfSevenTokens) {
  ExpectGoldensInTurn(*Serve({.max_step_tokens = 7}).engine, goldens_);
}

TEST_P(AdapterGoldenTest, PreemptedAndComputedAgain) {
  const ServedModel served = Serve({.blocks = {.primary_blocks = 18},
                                    .max_running_sequences = 1,
                                    .preemption = Preemption::kRecompute});
  const std::vector<GoldenAnswer> answers =
      GenerateInterrupted(*served.engine, goldens_[3], goldens_[2]);
  ExpectGolden(goldens_[3], answers[0]);
  ExpectGolden(goldens_[2], answers[1]);
  EXPECT_EQ(answers[0].report->preemptions, 1u);
  EXPECT_TRUE(served.cache->NothingHeld());
}

TEST_P(AdapterGoldenTest, WithTheBasicCacheAndTheReferenceBackend) {
  for (const EngineBackend backend : {EngineBackend::kAuto, EngineBackend::kReference}) {
    const Engine::Options options = EngineOptionsFor(
        model(), {.backend = backend, .adapters = FoldersOf({GetParam().adapter})});
    auto client =
        MakeBasicCacheClient({.spec = *Engine::CacheSpecForModel(
                                  options.model_dir, kGoldenTokensPerBlock, DType::kFloat32),
                              .max_sequences = 4,
                              .max_sequence_tokens = 256});
    ASSERT_TRUE(client.ok()) << client.status();
    const auto engine = Engine::Create(options, *std::move(client));
    ASSERT_TRUE(engine.ok()) << engine.status();
    ExpectGoldens(**engine, goldens_);
  }
}

// Draft tokens from the text change only the number of steps.
TEST_P(AdapterGoldenTest, WithDraftTokens) {
  const ServedModel served = Serve({});
  for (const Golden& golden : goldens_) {
    GenerateRequest request = RequestFor(golden);
    request.max_draft_tokens = 5;
    const GoldenAnswer answer = GenerateAll(*served.engine, {request}).front();
    ASSERT_TRUE(answer.report.ok()) << answer.report.status();
    EXPECT_EQ(answer.ids, golden.ids);
  }
}

// --- Several adapters ---

constexpr GoldenModel kTiny = {kTinyModel, kTinyModel};

class AdaptersTest : public testing::Test {
 protected:
  std::unique_ptr<Engine> Serve(const EngineSetting& setting) {
    return Require(Engine::Create(EngineOptionsFor(kTiny, setting), cache_->OpenClient()));
  }
  std::unique_ptr<Engine> Serve(const std::vector<AdapterFolder>& adapters) {
    return Serve(EngineSetting{.adapters = adapters});
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
  const std::unique_ptr<TestCache> cache_ = std::make_unique<TestCache>(
      Require(
          Engine::CacheSpecForModel(GoldenDir(kTinyModel), kGoldenTokensPerBlock, DType::kFloat32)),
      TestCache::Sizes{.primary_blocks = 256});
};

// Rows of two adapters and of the model alone in each step, prompts in chunks next to sequences
// that generate.
TEST_F(AdaptersTest, SixteenRequestsOfTwoAdaptersAndNoneInOneBatch) {
  const auto engine =
      Serve(EngineSetting{.max_step_tokens = 40, .adapters = FoldersOf({kAll, kAttention})});
  std::vector<Golden> goldens;
  const std::vector<Golden> kinds[] = {GoldensOf(kTinyModel, ""), GoldensOf(kTinyModel, kAll),
                                       GoldensOf(kTinyModel, kAttention),
                                       GoldensOf(kTinyModel, kAll)};
  for (size_t prompt = 0; prompt < 4; ++prompt) {
    for (const std::vector<Golden>& kind : kinds) goldens.push_back(kind[prompt]);
  }
  ExpectGoldens(*engine, goldens);
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
  const Golden golden = GoldensOf(kTinyModel, kAll)[1];
  GenerateRequest request = RequestFor(golden);
  request.num_samples = 3;
  std::vector<std::vector<TokenId>> ids(3);
  const auto report = engine->Generate(request, [&](const GeneratedToken& token) {
    ids[token.sample].push_back(token.token);
    return true;
  });
  ASSERT_TRUE(report.ok()) << report.status();
  for (const std::vector<TokenId>& sample : ids) EXPECT_EQ(sample, golden.ids);
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
    return Engine::Create(EngineOptionsFor(kTiny, {.adapters = adapters}), cache_->OpenClient())
        .status();
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
