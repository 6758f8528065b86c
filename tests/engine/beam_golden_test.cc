// Beam searches through the whole engine: ids and scores are those of Hugging Face transformers,
// however the cache is used.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "base/error.h"
#include "engine/basic_cache/basic_cache_client.h"
#include "engine/engine.h"
#include "tests/engine/fixtures/golden.h"
#include "tests/engine/fixtures/golden_runs.h"
#include "tests/engine/fixtures/test_cache.h"

namespace pagoda {
namespace {

constexpr TestCache::Sizes kBlocks = {.primary_blocks = 256};
// Scores are sums of up to 16 logarithms, each within 1e-4.
constexpr float kTolerance = 2e-3f;

constexpr GoldenModel kBeamModels[] = {{"qwen3_tiny", ""},
                                       {"qwen3_tiny_untied_bf16", ""},
                                       {"pagoda_qwen3_tiny", ""},
                                       {"qwen2_tiny", ""},
                                       {"llama3_tiny", ""},
                                       {"mistral_tiny", ""},
                                       {"gemma2_tiny", ""},
                                       {"gemma3_tiny", ""},
                                       {"gemma3_tiny_bf16_gguf", ""},
                                       {"phi3_tiny", ""},
                                       {"phi3_longrope_tiny", ""},
                                       {"qwen3_moe_tiny", ""},
                                       {"qwen3_moe_tiny_gguf", ""},
                                       {"deepseek_v3_tiny", ""},
                                       {"deepseek_v2_tiny", ""},
                                       {"deepseek_v3_tiny_gguf", ""},
                                       {"deepseek_v2_tiny_gguf", ""},
                                       {"gpt_oss_tiny", ""},
                                       {"gpt_oss_tiny_mxfp4", ""},
                                       {"bloom_tiny", ""}};

struct BeamGolden {
  GenerateRequest request;
  std::vector<std::vector<TokenId>> ids;
  std::vector<float> scores;
};

std::vector<BeamGolden> ReadBeamGoldens(const std::string& model) {
  std::ifstream file(GoldenDir(model) + "/beams.json");
  const nlohmann::json document = nlohmann::json::parse(file);
  std::vector<BeamGolden> goldens;
  for (const nlohmann::json& entry : document["cases"]) {
    BeamGolden& golden = goldens.emplace_back();
    golden.ids = entry["ids"].get<std::vector<std::vector<TokenId>>>();
    golden.scores = entry["scores"].get<std::vector<float>>();
    golden.request = {.prompt = entry["prompt"].get<std::vector<TokenId>>(),
                      .max_new_tokens = entry["max_new_tokens"].get<uint32_t>(),
                      .stop_tokens = entry["stop_tokens"].get<std::vector<TokenId>>(),
                      .num_samples = static_cast<uint32_t>(golden.ids.size()),
                      .beam_width = entry["beam_width"].get<uint32_t>(),
                      .length_penalty = entry["length_penalty"].get<float>(),
                      .early_stopping = entry["early_stopping"].get<bool>()};
  }
  return goldens;
}

struct Answer {
  absl::StatusOr<GenerateReport> report = absl::UnknownError("not ended");
  std::vector<std::vector<TokenId>> ids;
};

// Submits the requests so that they run at once, and waits for all of them.
class Requests {
 public:
  explicit Requests(Engine* engine) : engine_(*engine) {}

  Answer& Submit(GenerateRequest request) {
    Answer& answer = *answers_.emplace_back(std::make_unique<Answer>());
    answer.ids.resize(request.num_samples);
    auto ended = std::make_shared<absl::Notification>();
    ends_.push_back(ended);
    const absl::Status submitted = engine_.Submit(
        std::move(request),
        [&answer](const GeneratedToken& token) {
          answer.ids[token.sample].push_back(token.token);
          return true;
        },
        [&answer, ended](absl::StatusOr<GenerateReport> report) {
          answer.report = std::move(report);
          ended->Notify();
        });
    EXPECT_TRUE(submitted.ok()) << submitted;
    if (!submitted.ok()) ended->Notify();
    return answer;
  }
  // Requests can come while it waits.
  void Wait() {
    for (size_t i = 0; i < ends_.size(); ++i) ends_[i]->WaitForNotification();
  }

 private:
  Engine& engine_;
  std::vector<std::unique_ptr<Answer>> answers_;
  std::vector<std::shared_ptr<absl::Notification>> ends_;
};

void ExpectGolden(const BeamGolden& golden, const Answer& answer) {
  SCOPED_TRACE(testing::Message() << golden.request.beam_width << " beams, penalty "
                                  << golden.request.length_penalty << ", "
                                  << golden.request.stop_tokens.size() << " stop tokens");
  ASSERT_TRUE(answer.report.ok()) << answer.report.status();
  EXPECT_EQ(answer.ids, golden.ids);
  ASSERT_EQ(answer.report->beam_scores.size(), golden.scores.size());
  for (size_t i = 0; i < golden.scores.size(); ++i) {
    EXPECT_NEAR(answer.report->beam_scores[i], golden.scores[i], kTolerance);
    const std::vector<TokenId>& stops = golden.request.stop_tokens;
    const bool stopped = std::find(stops.begin(), stops.end(), golden.ids[i].back()) != stops.end();
    EXPECT_EQ(answer.report->finish_reasons[i],
              stopped ? FinishReason::kStopToken : FinishReason::kLength);
  }
}

void ExpectNothingHeld(TestCache& cache) {
  cache.WaitForCopies();  // A copy holds its blocks.
  EXPECT_TRUE(cache.NothingHeld());
}

class BeamGoldenTest : public testing::TestWithParam<GoldenModel> {
 protected:
  void SetUp() override { ASSERT_EQ(goldens_.size(), 9u); }

  ServedModel Serve(const EngineSetting& setting,
                    std::function<absl::Status(const Order&)> before_copy = nullptr) {
    return pagoda::Serve(GetParam(), setting, std::move(before_copy));
  }

  Answer Alone(Engine& engine, const BeamGolden& golden) {
    Requests requests(&engine);
    Answer& answer = requests.Submit(golden.request);
    requests.Wait();
    ExpectGolden(golden, answer);
    return answer;
  }

  // In the eighth step of a search with eight beams, a request of a higher priority takes its
  // place.
  Answer Interrupted(Engine& engine) {
    const BeamGolden& golden = goldens_[7];
    EXPECT_EQ(golden.request.beam_width, 8u);
    Requests requests(&engine);
    GenerateRequest request = golden.request;
    int steps = 0;
    std::unique_ptr<Requests> second = std::make_unique<Requests>(&engine);
    Answer* other = nullptr;
    request.cancelled = [&] {
      if (++steps != 8) return false;
      GenerateRequest high = goldens_[5].request;
      high.priority = 1;
      other = &second->Submit(high);
      return false;
    };
    Answer& answer = requests.Submit(request);
    requests.Wait();
    second->Wait();
    ExpectGolden(golden, answer);
    EXPECT_NE(other, nullptr) << "the search has more than eight steps";
    if (other != nullptr) ExpectGolden(goldens_[5], *other);
    return answer;
  }

  const std::vector<BeamGolden> goldens_ = ReadBeamGoldens(GetParam().name);
};
INSTANTIATE_TEST_SUITE_P(Models, BeamGoldenTest, testing::ValuesIn(kBeamModels),
                         [](const auto& param) { return std::string(param.param.name); });

TEST_P(BeamGoldenTest, AloneAndAgainFromTheCache) {
  ServedModel served = Serve({.blocks = kBlocks});
  for (const BeamGolden& golden : goldens_) {
    Alone(*served.engine, golden);
    const Answer again = Alone(*served.engine, golden);
    EXPECT_EQ(again.report->reused_tokens, golden.request.prompt.size() - 1);
  }
  ExpectNothingHeld(*served.cache);
}

TEST_P(BeamGoldenTest, InChunksOfSevenTokens) {
  ServedModel served = Serve({.blocks = kBlocks, .max_step_tokens = 7});
  for (const BeamGolden& golden : goldens_) Alone(*served.engine, golden);
  ExpectNothingHeld(*served.cache);
}

TEST_P(BeamGoldenTest, PreemptedAndComputedAgain) {
  ServedModel served =
      Serve({.blocks = kBlocks, .max_running_sequences = 8, .preemption = Preemption::kRecompute});
  EXPECT_EQ(Interrupted(*served.engine).report->preemptions, 1u);
  ExpectNothingHeld(*served.cache);
}

// Many searches on a pool that is too small for them, which pushes their prefixes to the second
// tier.
TEST_P(BeamGoldenTest, OffloadedAndBroughtUpInTheMiddle) {
  std::atomic<int> brought_up = 0;
  ServedModel served =
      Serve({.blocks = {.primary_blocks = 22, .lower_blocks = 256}}, [&](const Order& order) {
        brought_up += order.source.tier == Tier(1);
        return absl::OkStatus();
      });
  uint32_t preemptions = 0;
  // What runs at the same time depends on the threads, so there can be several rounds.
  for (int round = 0; round < 8 && (preemptions == 0 || brought_up == 0); ++round) {
    Requests requests(served.engine.get());
    std::vector<Answer*> answers;
    for (const BeamGolden& golden : goldens_) answers.push_back(&requests.Submit(golden.request));
    requests.Wait();
    for (size_t i = 0; i < goldens_.size(); ++i) {
      ExpectGolden(goldens_[i], *answers[i]);
      if (answers[i]->report.ok()) preemptions += answers[i]->report->preemptions;
    }
  }
  EXPECT_GT(preemptions, 0u);
  EXPECT_GT(brought_up, 0);
  ExpectNothingHeld(*served.cache);
}

TEST_P(BeamGoldenTest, InABatchWithOtherRequests) {
  ServedModel served = Serve({.blocks = kBlocks, .max_step_tokens = 80});
  Requests requests(served.engine.get());
  std::vector<Answer*> answers;
  for (const BeamGolden& golden : goldens_) {
    answers.push_back(&requests.Submit(golden.request));
    requests.Submit({.prompt = golden.request.prompt,
                     .max_new_tokens = 20,
                     .sampling = {.temperature = 1, .seed = 3},
                     .num_samples = 2});
  }
  requests.Wait();
  for (size_t i = 0; i < goldens_.size(); ++i) ExpectGolden(goldens_[i], *answers[i]);
  ExpectNothingHeld(*served.cache);
}

TEST_P(BeamGoldenTest, WithTheBasicCache) {
  const Engine::Options options = EngineOptionsFor(GetParam(), {});
  auto engine = Engine::Create(
      options,
      *MakeBasicCacheClient({.spec = *Engine::CacheSpecForModel(
                                 options.model_dir, kGoldenTokensPerBlock, DType::kFloat32),
                             .max_sequences = 9,
                             .max_sequence_tokens = 256}));
  ASSERT_TRUE(engine.ok()) << engine.status();
  for (const BeamGolden& golden : goldens_) Alone(**engine, golden);
}

// --- Refusals ---

constexpr GoldenModel kTinyModel = {"qwen3_tiny", ""};

GenerateRequest FourBeams() {
  return {.prompt = {1, 2, 3}, .max_new_tokens = 20, .num_samples = 2, .beam_width = 4};
}

TEST(BeamRequestTest, RefusesWhatDoesNotGoTogether) {
  TestCache cache(*Engine::CacheSpecForModel(GoldenDir(kTinyModel.name), kGoldenTokensPerBlock,
                                             DType::kFloat32),
                  {.primary_blocks = 64});
  const auto engine = Engine::Create(EngineOptionsFor(kTinyModel, {.max_running_sequences = 30}),
                                     cache.OpenClient());
  ASSERT_TRUE(engine.ok()) << engine.status();
  const auto refused = [&](const std::function<void(GenerateRequest&)>& change, Reason reason,
                           const std::string& message) {
    GenerateRequest request = FourBeams();
    change(request);
    const absl::Status status = (*engine)->Check(request);
    EXPECT_EQ(ReasonOf(status), reason) << status;
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr(message));
  };
  using Request = GenerateRequest;
  constexpr Reason kInvalid = Reason::kInvalidSampling;
  EXPECT_TRUE((*engine)->Check(FourBeams()).ok());
  refused([](Request& r) { r.beam_width = 33; }, kInvalid,
          "beam_width is 33; it must be at most 32");
  refused([](Request& r) { r.beam_width = 31; }, Reason::kInvalidCount,
          "beam_width is 31; the engine runs 30 sequences at once");
  refused([](Request& r) { r.num_samples = 5; }, kInvalid, "it must be at most beam_width, 4");
  for (const float penalty : {10.5f, -10.5f, std::nanf("")}) {
    refused([&](Request& r) { r.length_penalty = penalty; }, kInvalid, "must be from -10 to 10");
  }
  refused([](Request& r) { r.sampling.temperature = 0.5f; }, kInvalid,
          "temperature is set together");
  refused([](Request& r) { r.sampling.top_k = 3; }, kInvalid, "top_k is set together");
  refused([](Request& r) { r.sampling.top_p = 0.5f; }, kInvalid, "top_p is set together");
  refused([](Request& r) { r.sampling.repetition_penalty = 2; }, kInvalid, "repetition_penalty is");
  refused([](Request& r) { r.sampling.top_logprobs = 0; }, kInvalid, "top_logprobs is");
  refused([](Request& r) { r.max_draft_tokens = 2; }, kInvalid, "max_draft_tokens is");
  refused([](Request& r) { r.ends_sample = [](const GeneratedToken&) { return true; }; }, kInvalid,
          "ends_sample is");
  refused([](Request& r) { r.beam_width = 1, r.length_penalty = 2; }, kInvalid,
          "length_penalty needs beam_width");
  refused([](Request& r) { r.beam_width = 0, r.early_stopping = true; }, kInvalid,
          "early_stopping needs beam_width");
  // 62 blocks of common tokens and 4 more for the beams are too many for 64.
  refused([](Request& r) { r.prompt.resize(62 * kGoldenTokensPerBlock, 1); }, Reason::kInvalidCount,
          "in each of 4 beams");
}

}  // namespace
}  // namespace pagoda
