// The graph of every architecture, compared with Hugging Face transformers' answers, and its writes
// to the cache.
#include "engine/model/layers/transformer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/model/cpu/cpu_backend.h"
#include "kernels/execution/isa.h"
#include "tests/engine/fixtures/golden.h"
#include "tests/engine/model/model_runner.h"

namespace pagoda {
namespace {

using kernels::ElementType;

// The model's own answers are fp32; so is everything here.
constexpr float kTolerance = 1e-4f;
// One thread: tiny steps gain nothing from more threads, and wait for them on a busy machine.
constexpr CpuBackendOptions kExact{.num_threads = 1, .compute = ComputeType::kFloat32};

std::unique_ptr<Transformer> LoadModel(const std::string& model_dir,
                                       const CpuBackendOptions& options) {
  return pagoda::LoadModel(model_dir, *MakeCpuBackend(options));
}

void ExpectLogits(const std::vector<float>& actual, const std::vector<float>& expected,
                  TokenId chosen, float tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  EXPECT_EQ(std::max_element(actual.begin(), actual.end()) - actual.begin(), chosen);
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_NEAR(actual[i], expected[i], tolerance) << "logit " << i;
  }
}

class TransformerGoldenTest : public testing::TestWithParam<GoldenModel> {};
INSTANTIATE_TEST_SUITE_P(Models, TransformerGoldenTest, testing::ValuesIn(kGoldenModels),
                         [](const auto& model) { return std::string(model.param.name); });

TEST_P(TransformerGoldenTest, InOneShotAndTokenByToken) {
  const auto model = LoadModel(GoldenDir(GetParam().name), kExact);
  for (const Golden& golden : ReadGoldenCases(GetParam())) {
    SCOPED_TRACE(golden.prompt.size());
    ModelRunner runner(*model, {});
    const size_t sequence = runner.AddSequence(golden.computed_tokens());
    auto logits = runner.Run({{{.sequence = sequence, .tokens = golden.prompt, .num_logits = 1}}});
    for (size_t i = 0; i < golden.ids.size(); ++i) {
      ASSERT_EQ(logits.size(), 1u);
      ExpectLogits(logits[0], golden.logits[i], golden.ids[i], kTolerance);
      if (HasFatalFailure()) return;
      logits = runner.Run({{{.sequence = sequence, .tokens = {golden.ids[i]}, .num_logits = 1}}});
    }
  }
}

// Prompt and answer as one text, with known logits for every token behind the prompt. The answer
// runs in one pass, as in speculative decoding.
TEST_P(TransformerGoldenTest, InChunksOfSeven) {
  const auto model = LoadModel(GoldenDir(GetParam().name), kExact);
  for (const Golden& golden : ReadGoldenCases(GetParam())) {
    SCOPED_TRACE(golden.prompt.size());
    ModelRunner runner(*model, {.tokens_per_block = 8, .num_slots = 64});
    const size_t sequence = runner.AddSequence(golden.computed_tokens());
    std::vector<TokenId> text = golden.prompt;
    text.insert(text.end(), golden.ids.begin(), golden.ids.end() - 1);
    size_t answered = 0;
    for (size_t first = 0; first < text.size(); first += 7) {
      const size_t end = std::min(first + 7, text.size());
      const size_t known = golden.prompt.size() - 1;  // The first token with known logits.
      const auto logits = runner.Run(
          {{{.sequence = sequence,
             .tokens = {text.begin() + first, text.begin() + end},
             .num_logits = static_cast<uint32_t>(end - std::min(end, std::max(first, known)))}}});
      for (const std::vector<float>& row : logits) {
        ExpectLogits(row, golden.logits[answered], golden.ids[answered], kTolerance);
        if (HasFatalFailure()) return;
        ++answered;
      }
    }
    EXPECT_EQ(answered, golden.ids.size());
  }
}

// All cases at once, each at a different position: prompts in chunks next to sequences that decode.
TEST_P(TransformerGoldenTest, InRaggedBatches) {
  const auto model = LoadModel(GoldenDir(GetParam().name), kExact);
  const std::vector<Golden> cases = ReadGoldenCases(GetParam());
  ModelRunner runner(*model, {.num_slots = 64, .seed = 3});
  std::mt19937 random(5);
  std::vector<std::vector<TokenId>> texts;
  for (const Golden& golden : cases) {
    runner.AddSequence(golden.computed_tokens());
    texts.push_back(golden.prompt);
    texts.back().insert(texts.back().end(), golden.ids.begin(), golden.ids.end() - 1);
  }
  int mixed_steps = 0;
  for (bool left = true; left;) {
    left = false;
    std::vector<ModelRunner::Share> shares;
    for (size_t s = 0; s < cases.size(); ++s) {
      const uint32_t begin = runner.num_tokens(s);
      if (begin == texts[s].size() || random() % 4 == 0) continue;
      const size_t prompt_left =
          cases[s].prompt.size() - std::min<size_t>(begin, cases[s].prompt.size());
      const size_t count = std::min<size_t>(prompt_left, 1 + random() % 60);
      const auto first = texts[s].begin() + begin;
      const auto end = first + static_cast<ptrdiff_t>(std::max<size_t>(1, count));
      const bool wanted = end - texts[s].begin() >= ptrdiff_t(cases[s].prompt.size());
      shares.push_back({.sequence = s, .tokens = {first, end}, .num_logits = wanted ? 1u : 0u});
    }
    for (size_t s = 0; s < cases.size(); ++s) left |= runner.num_tokens(s) < texts[s].size();
    if (shares.empty()) continue;
    const auto logits = runner.Run(shares);
    size_t row = 0;
    bool decodes = false, prefills = false;
    for (const ModelRunner::Share& share : shares) {
      (share.tokens.size() == 1 ? decodes : prefills) = true;
      if (share.num_logits == 0) continue;
      const Golden& golden = cases[share.sequence];
      const size_t answer = runner.num_tokens(share.sequence) - golden.prompt.size();
      ExpectLogits(logits[row++], golden.logits[answer], golden.ids[answer], kTolerance);
      if (HasFatalFailure()) return;
    }
    mixed_steps += decodes && prefills;
  }
  EXPECT_GT(mixed_steps, 0);
}

// Each matrix by the fastest type that is as exact as the file: prompts by many rows, and answers
// token by token. With quantised weights, few rows multiply integers.
TEST_P(TransformerGoldenTest, InTheDefaultTypeWithinItsRounding) {
  const auto model = LoadModel(GoldenDir(GetParam().name), {.num_threads = 1});
  if (model->config().experts.has_value()) GTEST_SKIP() << "rounding can choose other experts";
  double squares = 0, errors = 0;
  for (const Golden& golden : ReadGoldenCases(GetParam())) {
    ModelRunner runner(*model, {});
    const size_t sequence = runner.AddSequence(golden.computed_tokens());
    auto logits = runner.Run({{{.sequence = sequence, .tokens = golden.prompt, .num_logits = 1}}});
    for (size_t i = 0; i < golden.ids.size(); ++i) {
      ASSERT_EQ(logits.size(), 1u);
      for (size_t t = 0; t < logits[0].size(); ++t) {
        errors += std::pow(double{logits[0][t]} - golden.logits[i][t], 2);
        squares += std::pow(double{golden.logits[i][t]}, 2);
      }
      logits = runner.Run({{{.sequence = sequence, .tokens = {golden.ids[i]}, .num_logits = 1}}});
    }
  }
  const double relative = std::sqrt(errors / squares);
  RecordProperty("relative_error", std::to_string(relative));
  EXPECT_LT(relative, 0.05);
}

// The error of a tiny model's logits, of a few units, if numbers have 8 bits of digits.
TEST_P(TransformerGoldenTest, InBFloat16WithinItsRounding) {
  if (kernels::cpu::BestIsa() != kernels::cpu::Isa::kAvx512Bf16) GTEST_SKIP() << "no bf16 products";
  const auto model =
      LoadModel(GoldenDir(GetParam().name), {.num_threads = 1, .compute = ComputeType::kBFloat16});
  double squares = 0, errors = 0;
  // Compared with transformers in bf16, if the reference has it.
  double their_errors = 0, between = 0;
  for (const Golden& golden : ReadGoldenCases(GetParam())) {
    ModelRunner runner(*model, {.kv_type = ElementType::kBFloat16});
    const size_t sequence = runner.AddSequence(golden.computed_tokens());
    std::vector<TokenId> text = golden.prompt;
    text.insert(text.end(), golden.ids.begin(), golden.ids.end() - 1);
    const auto logits = runner.Run({{{.sequence = sequence,
                                      .tokens = text,
                                      .num_logits = static_cast<uint32_t>(golden.ids.size())}}});
    for (size_t row = 0; row < logits.size(); ++row) {
      for (size_t i = 0; i < logits[row].size(); ++i) {
        errors += std::pow(double{logits[row][i]} - golden.logits[row][i], 2);
        squares += std::pow(double{golden.logits[row][i]}, 2);
        if (golden.lower_precision_logits.empty()) continue;
        const double theirs = golden.lower_precision_logits[row][i];
        their_errors += std::pow(theirs - golden.logits[row][i], 2);
        between += std::pow(theirs - logits[row][i], 2);
      }
    }
  }
  const double relative = std::sqrt(errors / squares);
  RecordProperty("relative_error", std::to_string(relative));
  // A rounded router chooses other experts here and there.
  EXPECT_LT(relative, model->config().experts.has_value() ? 0.1 : 0.03);
  EXPECT_GT(relative, 1e-5) << "it is not computed in bf16";
  if (their_errors == 0) return;
  // Another order of roundings, of about the same size.
  const double theirs = std::sqrt(their_errors / squares);
  EXPECT_LT(relative, 1.5 * theirs);
  EXPECT_LT(std::sqrt(between / squares), relative + theirs);
}

// The cache gets the right numbers: behind a prompt of L tokens each layer has L different tokens,
// and the next token goes behind them.
TEST_P(TransformerGoldenTest, EachLayerWritesEachTokenOnce) {
  const auto model = LoadModel(GoldenDir(GetParam().name), kExact);
  const ModelConfig& config = model->config();
  const Golden golden = ReadGoldenCases(GetParam())[2];
  const auto length = static_cast<uint32_t>(golden.prompt.size());
  ModelRunner runner(*model, {});
  const size_t sequence = runner.AddSequence(golden.computed_tokens());
  const auto logits =
      runner.Run({{{.sequence = sequence, .tokens = golden.prompt, .num_logits = 1}}});
  EXPECT_EQ(runner.num_tokens(sequence), length);
  EXPECT_EQ(runner.input().context_lengths, std::vector<int32_t>{int32_t(length)});
  // All other bytes are NaN, so attention read only written ones.
  for (const float logit : logits[0]) ASSERT_TRUE(std::isfinite(logit));

  std::set<std::string> seen;
  std::vector<std::string> last;
  for (uint32_t layer = 0; layer < config.layers.size(); ++layer) {
    const uint64_t kv_factor = config.layers[layer].kind == KvKind::kKeyAndValue ? 2 : 1;
    const uint64_t token_bytes =
        kv_factor * config.layers[layer].num_kv_heads * config.head_dim * sizeof(float);
    EXPECT_EQ(runner.WrittenBytes(layer), length * token_bytes) << "layer " << layer;
    std::string all;
    for (uint32_t position = 0; position < length; ++position) {
      const auto bytes = runner.TokenBytes(sequence, layer, position);
      EXPECT_EQ(bytes.size(), token_bytes);
      all += bytes;
    }
    last.push_back(runner.TokenBytes(sequence, layer, length - 1));
    EXPECT_TRUE(seen.insert(all).second) << "layer " << layer << " has another layer's bytes";
  }

  runner.Run({{{.sequence = sequence, .tokens = {golden.ids[0]}}}});
  for (uint32_t layer = 0; layer < config.layers.size(); ++layer) {
    EXPECT_EQ(runner.TokenBytes(sequence, layer, length - 1), last[layer]);
    EXPECT_NE(runner.TokenBytes(sequence, layer, length), last[layer]);
  }
}

// At a prefill, attention reads exactly the slots that the same step writes.
TEST_P(TransformerGoldenTest, APrefillReadsTheSlotsThatItWrites) {
  constexpr uint32_t kTokensPerBlock = 8;
  const auto model = LoadModel(GoldenDir(GetParam().name), kExact);
  const Golden golden = ReadGoldenCases(GetParam())[2];
  const auto length = static_cast<int32_t>(golden.prompt.size());
  ModelRunner runner(*model, {.tokens_per_block = kTokensPerBlock});
  const size_t sequence = runner.AddSequence();
  runner.Run({{{.sequence = sequence, .tokens = golden.prompt, .num_logits = 1}}});
  const ModelInput& input = runner.input();
  ASSERT_EQ(input.context_lengths, std::vector<int32_t>{length});
  for (const ModelInput::Window& window : input.windows) {
    std::vector<int64_t> read;
    for (int32_t position = 0; position < length; ++position) {
      const int32_t slot = window.block_tables.at(static_cast<size_t>(position) / kTokensPerBlock);
      ASSERT_GE(slot, 0);
      read.push_back(int64_t{slot} * kTokensPerBlock + position % kTokensPerBlock);
    }
    EXPECT_EQ(window.token_slots, read) << "window " << WindowName(window.window);
  }
}

// The output of the process, on standard output and standard error, while `work` runs.
std::string Printed(const std::function<void()>& work) {
  std::fflush(nullptr);
  std::FILE* const file = std::tmpfile();
  int saved[2];
  for (const int fd : {1, 2}) {
    saved[fd - 1] = dup(fd);
    dup2(fileno(file), fd);
  }
  work();
  std::fflush(nullptr);
  for (const int fd : {1, 2}) {
    dup2(saved[fd - 1], fd);
    close(saved[fd - 1]);
  }
  std::string text(static_cast<size_t>(std::ftell(file)), ' ');
  std::rewind(file);
  text.resize(std::fread(text.data(), 1, text.size(), file));
  std::fclose(file);
  return text;
}

TEST_P(TransformerGoldenTest, AForwardPassPrintsNothing) {
  ASSERT_EQ(Printed([] { std::fputs("seen", stderr); }), "seen");
  const auto model = LoadModel(GoldenDir(GetParam().name), {.num_threads = 2});
  const Golden golden = ReadGoldenCases(GetParam())[1];
  ModelRunner runner(*model, {});
  const size_t sequence = runner.AddSequence();
  EXPECT_EQ(Printed([&] {
              runner.Run({{{.sequence = sequence, .tokens = golden.prompt, .num_logits = 1}}});
              runner.Run({{{.sequence = sequence, .tokens = {golden.ids[0]}, .num_logits = 1}}});
            }),
            "");
}

TEST_P(TransformerGoldenTest, AnyNumberOfThreadsGivesTheSameBits) {
  const Golden golden = ReadGoldenCases(GetParam())[1];
  std::vector<std::vector<float>> before;
  for (const uint32_t threads : {1u, 2u, 3u}) {
    const auto model = LoadModel(GoldenDir(GetParam().name),
                                 {.num_threads = threads, .compute = ComputeType::kFloat32});
    ModelRunner runner(*model, {});
    const size_t sequence = runner.AddSequence();
    auto logits = runner.Run({{{.sequence = sequence, .tokens = golden.prompt, .num_logits = 2}}});
    logits.push_back(
        runner.Run({{{.sequence = sequence, .tokens = {golden.ids[0]}, .num_logits = 1}}})[0]);
    if (threads > 1) {
      EXPECT_EQ(logits, before);
    }
    before = logits;
  }
}

}  // namespace
}  // namespace pagoda
