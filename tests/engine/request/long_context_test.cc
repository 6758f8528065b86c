// LongRoPE through the whole engine: which factors a request has, and that K of the one range never
// serves the other. golden_engine_test compares both ranges with transformers.
#include "engine/request/long_context.h"

#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "engine/engine.h"
#include "tests/base/require.h"
#include "tests/engine/fixtures/golden.h"
#include "tests/engine/fixtures/golden_runs.h"
#include "tests/engine/fixtures/scratch_model.h"

namespace pagoda {
namespace {

using nlohmann::json;

constexpr GoldenModel kLongRope = {"phi3_longrope_tiny", "phi3_longrope_tiny"};
constexpr uint32_t kShortTokens = 32;  // original_max_position_embeddings.

GenerateRequest Request(size_t prompt_tokens, uint32_t new_tokens) {
  std::vector<TokenId> prompt = ReadGoldenCases(kLongRope)[3].prompt;
  prompt.resize(prompt_tokens);
  return {.prompt = prompt, .max_new_tokens = new_tokens};
}

struct Answer {
  uint32_t reused = 0;
  std::vector<std::vector<float>> logits;
};

Answer AnswerOf(Engine& engine, const GenerateRequest& request) {
  Answer answer;
  const GenerateReport report = Require(engine.Generate(request, [&](const GeneratedToken& token) {
    answer.logits.emplace_back(token.logits.begin(), token.logits.end());
    return true;
  }));
  answer.reused = report.reused_tokens;
  return answer;
}

// The engine on a copy of the model, edited.
struct Edited {
  explicit Edited(const ScratchModel::Edit& edit) : model(kLongRope.name) {
    model.EditJson("config.json", edit);
    cache = std::make_unique<TestCache>(
        Require(Engine::CacheSpecForModel(model.dir(), kGoldenTokensPerBlock, DType::kFloat32)),
        TestCache::Sizes{.primary_blocks = 64});
    Engine::Options options = EngineOptionsFor(kLongRope, {});
    options.model_dir = model.dir();
    engine = Require(Engine::Create(options, cache->OpenClient()));
  }
  ScratchModel model;
  std::unique_ptr<TestCache> cache;
  std::unique_ptr<Engine> engine;
};

TEST(LongContextTest, TheLastTokenWhoseKeyIsNeededDecides) {
  const ModelConfig model = Require(LoadModelConfig(GoldenDir(kLongRope.name)));
  GenerateRequest request = Request(kShortTokens, 1);
  ApplyRotaryRange(model, request);
  EXPECT_EQ(request.rotary_range, RotaryRange::kShort);
  EXPECT_EQ(request.name_space.lora_id, std::nullopt);
  for (const uint32_t prompt : {1u, 12u, kShortTokens}) {
    request = Request(prompt, kShortTokens - prompt + 2);
    ApplyRotaryRange(model, request);
    EXPECT_EQ(request.rotary_range, RotaryRange::kLong) << prompt;
    EXPECT_EQ(request.name_space.lora_id, LongContextLoraId(std::nullopt));
  }
  // Other models have one range.
  request = Request(100, 300);
  ApplyRotaryRange(Require(LoadModelConfig(GoldenDir("phi3_tiny"))), request);
  EXPECT_EQ(request.rotary_range, RotaryRange::kShort);
  EXPECT_EQ(request.name_space.lora_id, std::nullopt);
}

TEST(LongContextTest, EachAdapterHasItsOwnId) {
  EXPECT_NE(LongContextLoraId(std::nullopt), 0u);
  EXPECT_NE(LongContextLoraId(5), 5u);
  EXPECT_NE(LongContextLoraId(5), LongContextLoraId(6));
  EXPECT_NE(LongContextLoraId(5), LongContextLoraId(std::nullopt));
  GenerateRequest request = Request(40, 2);
  request.name_space.lora_id = 7;
  ApplyRotaryRange(Require(LoadModelConfig(GoldenDir(kLongRope.name))), request);
  EXPECT_EQ(request.name_space.lora_id, LongContextLoraId(7));
}

// The same 20 tokens, once for an answer that stays short and once for one that may not.
TEST(LongContextTest, NoPrefixIsSharedBetweenTheRanges) {
  ServedModel served = Serve(kLongRope, {});
  const GenerateRequest brief = Request(20, 5);
  const GenerateRequest lengthy = Request(20, 20);
  const Answer first = AnswerOf(*served.engine, brief);
  const Answer second = AnswerOf(*served.engine, lengthy);
  EXPECT_EQ(first.reused, 0u);
  EXPECT_EQ(second.reused, 0u);
  EXPECT_NE(first.logits[0], second.logits[0]);
  const Answer first_again = AnswerOf(*served.engine, brief);
  const Answer second_again = AnswerOf(*served.engine, lengthy);
  EXPECT_EQ(first_again.reused, 19u);
  EXPECT_EQ(second_again.reused, 19u);
  EXPECT_EQ(first_again.logits[0].size(), first.logits[0].size());
  for (size_t i = 0; i < first.logits[0].size(); ++i) {
    EXPECT_NEAR(first_again.logits[0][i], first.logits[0][i], 1e-4f);
    EXPECT_NEAR(second_again.logits[0][i], second.logits[0][i], 1e-4f);
  }
}

// The one case that transformers computes otherwise: it changes the factors at the boundary. Here
// the answer is that of a model which has only the long factors, from its first token on.
TEST(LongContextTest, AnAnswerAcrossTheBoundaryHasTheLongFactorsFromItsStart) {
  ServedModel served = Serve(kLongRope, {});
  Edited only_long([](json& config) {
    config["rope_parameters"]["short_factor"] = config["rope_parameters"]["long_factor"];
  });
  Edited only_short([](json& config) {
    config["rope_parameters"]["long_factor"] = config["rope_parameters"]["short_factor"];
  });
  const GenerateRequest request = Request(20, 30);
  const Answer answer = AnswerOf(*served.engine, request);
  const Answer expected = AnswerOf(*only_long.engine, request);
  ASSERT_EQ(answer.logits.size(), 30u);
  EXPECT_EQ(answer.logits, expected.logits);
  EXPECT_NE(answer.logits, AnswerOf(*only_short.engine, request).logits);
}

}  // namespace
}  // namespace pagoda
