// gpu_engine_bench [--smoke] [ID...]
// The engine's model on a GPU, one JSON object per line, each figure next to a yardstick of the
// same run: a Qwen3-0.6B with random bf16 weights, KV in bf16, each step from tokens to logits on
// the host. ID: the beginning of the wanted figures' names; without any, all figures. --smoke: a
// tiny model. gpu_engine_graphs_* also compare the tokens with and without CUDA graphs, and the
// program fails if they differ. Exit status 77 without a device or without cuBLASLt.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/engine_options.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/model/layers/transformer.h"
#include "engine/words/gpu_graphs.h"
#include "tests/base/require.h"
#include "tests/bench/engine/random_model.h"
#include "tests/bench/figure.h"
#include "tests/engine/cuda/test_backend.h"
#include "tests/gpu/cuda_check.h"
#include "tests/gpu/gpu_timer.h"
#include "tests/gpu/yardsticks.h"
#include "tests/kernels/cuda/device_memory.h"

namespace pagoda::bench {
namespace {

using kernels::cuda::DeviceArray;
using kernels::cuda::GraphSeconds;
using kernels::cuda::Stream;

constexpr uint32_t kTokensPerBlock = 16;
constexpr uint32_t kBatch = 64;
constexpr uint32_t kChunkTokens = 512;

struct Options {
  bool smoke = false;
  std::vector<std::string> ids;
};

double ReadGbs() {
  constexpr uint64_t kBytes = uint64_t{2} << 30;
  const DeviceArray<std::byte> memory(kBytes);
  const DeviceArray<uint32_t> sink(1);
  PAGODA_CUDA_CHECK(cudaMemset(memory.data(), 1, kBytes));
  return 1e-9 * kBytes / GraphSeconds(4, [&](Stream stream, int) {
           PAGODA_CHECK(kernels::cuda::LaunchRead(memory.data(), kBytes, sink.data(), stream) == 0,
                        "the yardstick starts");
         });
}

double MmaTflops() {
  cudaDeviceProp properties;
  PAGODA_CUDA_CHECK(cudaGetDeviceProperties(&properties, 0));
  const auto multiprocessors = static_cast<uint32_t>(properties.multiProcessorCount);
  const DeviceArray<float> sink(1);
  const double seconds = GraphSeconds(4, [&](Stream stream, int) {
    PAGODA_CHECK(kernels::cuda::LaunchProducts(multiprocessors, sink.data(), stream) == 0,
                 "the yardstick starts");
  });
  return 1e-12 * static_cast<double>(kernels::cuda::ProductOperations(multiprocessors)) / seconds;
}

// Some sequences with separate KV, in random blocks.
class Model {
 public:
  // `files` has a model of this shape.
  Model(const RandomModel& files, const RandomModelShape& shape, uint32_t sequences,
        uint32_t most_tokens, GpuGraphs graphs, const FusedChoice& fused = {})
      : memory_(MakeTestKvMemory()), tables_(sequences) {
    model_ = Require(Transformer::Create(Require(LoadModelConfig(files.dir())),
                                         Require(Checkpoint::Open(files.dir())),
                                         MakeTestBackend(ComputeType::kAuto, graphs, fused)));
    const uint32_t blocks = (most_tokens + kTokensPerBlock - 1) / kTokensPerBlock;
    std::mt19937 random(1);
    std::vector<SlotIndex> slots;
    for (uint32_t slot = 0; slot < sequences * blocks; ++slot) slots.push_back(SlotIndex(slot));
    std::shuffle(slots.begin(), slots.end(), random);
    for (uint32_t s = 0; s < sequences; ++s) {
      tables_[s].assign(slots.begin() + s * blocks, slots.begin() + (s + 1) * blocks);
    }
    const uint64_t head = uint64_t{2} * shape.head_dim * kTokensPerBlock;
    const uint64_t slot_bytes = 2 * head * shape.num_kv_heads;
    for (uint32_t layer = 0; layer < shape.num_layers; ++layer) {
      std::byte* const bytes = memory_->Allocate(slots.size() * slot_bytes);
      layers_.push_back({.keys = bytes,
                         .values = bytes + slot_bytes / 2,
                         .type = kernels::ElementType::kBFloat16,
                         .num_slots = static_cast<uint32_t>(slots.size()),
                         .num_kv_heads = shape.num_kv_heads,
                         .tokens_per_block = kTokensPerBlock,
                         .head_dim = shape.head_dim,
                         .slot_stride_bytes = slot_bytes,
                         .head_stride_bytes = head,
                         .token_stride_bytes = uint64_t{2} * shape.head_dim});
    }
    for (uint32_t i = 0; i < most_tokens; ++i) tokens_.push_back(random() % shape.vocab_size);
  }

  std::string description() const { return model_->backend().description(); }
  StepGraphCounts graph_counts() const { return model_->backend().graph_counts(); }

  // `batch` sequences have `count` new tokens each, after `first` earlier ones. With `draw`, the
  // device chooses a token for each of the logits, if it can.
  void Step(uint32_t batch, uint32_t first, uint32_t count, uint32_t num_logits,
            const TokenDraw& draw = {}) {
    Run(std::vector(batch, absl::MakeConstSpan(tokens_).subspan(first, count)), first, num_logits,
        draw);
  }

  // The tokens of `batch` sequences behind prompts of their own of this length, by step.
  std::vector<std::vector<TokenId>> Continue(uint32_t batch, uint32_t prompt, uint32_t steps) {
    std::vector<absl::Span<const TokenId>> next;
    for (uint32_t s = 0; s < batch; ++s) {
      next.push_back(absl::MakeConstSpan(tokens_).subspan(s, prompt));
    }
    std::vector<std::vector<TokenId>> all;
    for (uint32_t step = 0; step < steps; ++step) {
      all.push_back(
          Run(next, step == 0 ? 0 : prompt + step - 1, 1, {.kind = TokenDraw::Kind::kToken}));
      for (uint32_t s = 0; s < batch; ++s) next[s] = {&all.back()[s], 1};
    }
    return all;
  }

 private:
  // One step, at the same position for all sequences. Returns the tokens that the device chose.
  std::vector<TokenId> Run(const std::vector<absl::Span<const TokenId>>& tokens, uint32_t first,
                           uint32_t num_logits, const TokenDraw& draw) {
    std::vector<absl::Span<const SlotIndex>> tables(tables_.begin(),
                                                    tables_.begin() + tokens.size());
    std::vector<SequenceInput> inputs;
    for (uint32_t s = 0; s < tokens.size(); ++s) {
      inputs.push_back({.tokens = tokens[s],
                        .first_position = first,
                        .tables = {&tables[s], 1},
                        .num_logits = num_logits});
    }
    MakeInput(inputs, model_->windows(), kTokensPerBlock, input_);
    input_.draws.assign(input_.logit_rows.size(), draw);
    const absl::StatusOr<ModelOutput> output = model_->ForwardWithDraws(input_, layers_);
    PAGODA_CHECK(output.ok(), output.status().ToString().c_str());
    return {output->tokens.begin(), output->tokens.end()};
  }

  const std::unique_ptr<KvMemory> memory_;
  std::unique_ptr<Transformer> model_;
  std::vector<std::vector<SlotIndex>> tables_;
  std::vector<kernels::KvLayer> layers_;
  std::vector<TokenId> tokens_;
  ModelInput input_;
};

double MedianOfSteps(const std::function<void()>& step) {
  step();
  return MedianSeconds([&] { return Seconds(step); });
}

// Decode steps with and without CUDA graphs: that their tokens are equal, and both times.
void CompareGraphs(const RandomModel& files, const RandomModelShape& shape, bool smoke,
                   const std::function<bool(const std::string&)>& wanted) {
  constexpr uint32_t kPrompt = 60;
  constexpr uint32_t kSteps = 40;  // Over the borders of blocks. At most kBatch.
  const uint32_t context = smoke ? 64 : 512;
  std::unique_ptr<Model> plain, graphed;
  for (const uint32_t batch : {1u, 8u, 64u}) {
    const std::string id = absl::StrCat("gpu_engine_graphs_b", batch);
    if (!wanted(id)) continue;
    if (plain == nullptr) {
      const uint32_t most_tokens = std::max(context, kPrompt + kBatch);
      plain = std::make_unique<Model>(files, shape, kBatch, most_tokens, GpuGraphs::kOff);
      graphed = std::make_unique<Model>(files, shape, kBatch, most_tokens, GpuGraphs::kAuto);
    }
    PAGODA_CHECK(
        plain->Continue(batch, kPrompt, kSteps) == graphed->Continue(batch, kPrompt, kSteps),
        "graphs change no token");
    const auto seconds = [&](Model& model) {
      // The first step of a shape runs without a graph, and so does the second one if a buffer
      // grew in the first one. The third one is captured at the latest.
      for (int i = 0; i < 3; ++i) model.Step(batch, context - 1, 1, 1);
      return Seconds([&] { model.Step(batch, context - 1, 1, 1); });
    };
    const uint64_t replayed = graphed->graph_counts().replayed;
    const auto [with, without] =
        InterleavedMedians([&] { return seconds(*graphed); }, [&] { return seconds(*plain); });
    const StepGraphCounts counts = graphed->graph_counts();
    PAGODA_CHECK(counts.failures == 0, counts.problem.c_str());
    PAGODA_CHECK(counts.replayed > replayed, "the timed steps are replayed");
    std::fprintf(stderr, "%u sequences: a step takes %.1f us with graphs, %.1f us without\n", batch,
                 1e6 * with, 1e6 * without);
    Print({.id = id,
           .value = batch / with,
           .unit = "token/s",
           .yardstick = "without graphs",
           .yardstick_value = batch / without});
  }
}

// Decode steps with fused products and with cuBLASLt's, each with and without CUDA graphs.
void CompareProducts(const RandomModel& files, const RandomModelShape& shape, bool smoke,
                     const std::function<bool(const std::string&)>& wanted) {
  const uint32_t context = smoke ? 64 : 512;
  for (const auto& [graphs, name] : {std::pair(GpuGraphs::kOff, "gpu_engine_products_b"),
                                     std::pair(GpuGraphs::kAuto, "gpu_engine_products_graphs_b")}) {
    if (!wanted(absl::StrCat(name, 1)) && !wanted(absl::StrCat(name, 4)) &&
        !wanted(absl::StrCat(name, 8))) {
      continue;
    }
    Model fused(files, shape, /*sequences=*/8, context, graphs);
    Model apart(files, shape, /*sequences=*/8, context, graphs, {.products = false});
    for (const uint32_t batch : {1u, 4u, 8u}) {
      const std::string id = absl::StrCat(name, batch);
      if (!wanted(id)) continue;
      const auto seconds = [&](Model& model) {
        // The first step of a shape runs without a graph, and so does the second one if a buffer
        // grew in the first one. The third one is captured at the latest.
        for (int i = 0; i < 3; ++i) model.Step(batch, context - 1, 1, 1);
        return Seconds([&] { model.Step(batch, context - 1, 1, 1); });
      };
      const auto [with, without] =
          InterleavedMedians([&] { return seconds(fused); }, [&] { return seconds(apart); });
      std::fprintf(
          stderr, "%u sequences: a step takes %.1f us with fused products, %.1f us with cuBLASLt\n",
          batch, 1e6 * with, 1e6 * without);
      Print({.id = id,
             .value = batch / with,
             .unit = "token/s",
             .yardstick = "products by cuBLASLt",
             .yardstick_value = batch / without});
    }
  }
}

void Run(const Options& options, const RandomModelShape& shape) {
  const auto wanted = [&](const std::string& id) {
    return options.ids.empty() ||
           std::any_of(options.ids.begin(), options.ids.end(),
                       [&](const std::string& begin) { return absl::StartsWith(id, begin); });
  };
  const uint32_t context = options.smoke ? 64 : 512;
  const uint32_t prompt = options.smoke ? 64 : 2048;
  const RandomModel files(shape);
  CompareGraphs(files, shape, options.smoke, wanted);
  CompareProducts(files, shape, options.smoke, wanted);
  const auto is_wanted = [&](const char* id) { return wanted(id); };
  const auto others = {"gpu_engine_decode_b1", "gpu_engine_decode_b64", "gpu_engine_greedy_b64",
                       "gpu_engine_drawn_b64", "gpu_engine_prefill_2048"};
  if (std::none_of(others.begin(), others.end(), is_wanted)) return;
  Model model(files, shape, kBatch, prompt, GpuGraphs::kOff);
  std::fprintf(stderr, "%s\n", model.description().c_str());
  const auto decode = [&](uint32_t batch) {
    return MedianOfSteps([&] { model.Step(batch, context - 1, 1, 1); });
  };
  const double weights = static_cast<double>(shape.layer_weights() + shape.head_weights());
  if (wanted("gpu_engine_decode_b1")) {
    const double kv = 2.0 * context * shape.num_layers * shape.num_kv_heads * shape.head_dim;
    Print({.id = "gpu_engine_decode_b1",
           .value = 2e-9 * (weights + kv) / decode(1),
           .unit = "GB/s",
           .yardstick = "a kernel that only reads",
           .yardstick_value = ReadGbs()});
  }
  if (wanted("gpu_engine_decode_b64")) {
    Print({.id = absl::StrCat("gpu_engine_decode_b", kBatch),
           .value = kBatch / decode(kBatch),
           .unit = "token/s",
           .yardstick = "one sequence",
           .yardstick_value = 1 / decode(1)});
  }
  // The device chooses the tokens: the most likely ones, and by draws.
  TokenDraw draw = {.kind = TokenDraw::Kind::kToken};
  for (const char* name : {"gpu_engine_greedy_b64", "gpu_engine_drawn_b64"}) {
    if (wanted(name)) {
      Print({.id = name,
             .value = kBatch / MedianOfSteps([&] { model.Step(kBatch, context - 1, 1, 1, draw); }),
             .unit = "token/s",
             .yardstick = "with all logits on the host",
             .yardstick_value = kBatch / decode(kBatch)});
    }
    draw = {.kind = TokenDraw::Kind::kToken, .temperature = 0.8f, .top_k = 40, .uniform = 0.4};
  }
  if (wanted("gpu_engine_prefill_2048")) {
    const double pairs = 0.5 * prompt * (prompt + 1.0);
    const double attention = 4.0 * pairs * shape.num_layers * shape.num_heads * shape.head_dim;
    const double products = 2.0 * (static_cast<double>(shape.layer_weights()) * prompt +
                                   static_cast<double>(shape.head_weights()));
    const double seconds = MedianOfSteps([&] {
      for (uint32_t first = 0; first < prompt; first += kChunkTokens) {
        const uint32_t count = std::min(kChunkTokens, prompt - first);
        model.Step(1, first, count, first + count == prompt ? 1 : 0);
      }
    });
    Print({.id = "gpu_engine_prefill_2048",
           .value = 1e-12 * (attention + products) / seconds,
           .unit = "TFLOP/s",
           .yardstick = "mma.sync out of registers",
           .yardstick_value = MmaTflops()});
  }
}

}  // namespace
}  // namespace pagoda::bench

int main(int argc, char** argv) {
  pagoda::bench::Options options;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--smoke") == 0) {
      options.smoke = true;
    } else {
      options.ids.emplace_back(argv[i]);
    }
  }
  for (const std::string& why : {pagoda::kernels::cuda::WhyNoDevice(), pagoda::WhyNoBackend()}) {
    if (why.empty()) continue;
    std::printf("skipped: %s\n", why.c_str());
    return 77;
  }
  pagoda::bench::RandomModelShape shape;
  if (options.smoke) shape = pagoda::bench::RandomModelShape::Tiny();
  pagoda::bench::Run(options, shape);
}
