// The speed of the engine's model on the CPU, compared with the most that the machine can do.
// deploy/bench.sh engine runs it.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/model/cpu_backend.h"
#include "engine/model/transformer.h"
#include "kernels/cpu/isa.h"
#include "tests/base/require.h"
#include "tests/bench/engine_requests.h"
#include "tests/bench/figure.h"
#include "tests/bench/machine_peaks.h"
#include "tests/bench/random_model.h"

namespace pagoda::bench {
namespace {

constexpr uint32_t kTokensPerBlock = 32;
constexpr uint32_t kBatch = 16;
constexpr uint32_t kChunkTokens = 512;  // The engine's own default.

struct Options {
  uint32_t threads = 2;
  bool smoke = false;
  std::string peer;  // A command that measures another engine: transformers_peer.py.
  std::string prefix;
};

std::unique_ptr<Transformer> LoadModel(const std::string& dir, uint32_t threads) {
  ModelConfig config = Require(LoadModelConfig(dir));
  Checkpoint checkpoint = Require(Checkpoint::Open(dir));
  std::unique_ptr<Backend> backend = Require(MakeCpuBackend({.num_threads = threads}));
  return Require(Transformer::Create(std::move(config), std::move(checkpoint), std::move(backend)));
}

// KV in bf16 for some sequences of equal capacity. Each sequence has its own blocks.
class Sequences {
 public:
  Sequences(const RandomModelShape& shape, uint32_t count, uint32_t most_tokens)
      : blocks_((most_tokens + kTokensPerBlock - 1) / kTokensPerBlock),
        layer_bytes_(uint64_t{count} * blocks_ * SlotBytes(shape)),
        memory_(layer_bytes_ * shape.num_layers) {
    for (uint32_t layer = 0; layer < shape.num_layers; ++layer) {
      kernels::KvLayer kv{.type = kernels::ElementType::kBFloat16,
                          .num_slots = count * blocks_,
                          .num_kv_heads = shape.num_kv_heads,
                          .tokens_per_block = kTokensPerBlock,
                          .head_dim = shape.head_dim,
                          .slot_stride_bytes = SlotBytes(shape),
                          .head_stride_bytes = uint64_t{shape.head_dim} * 2 * kTokensPerBlock,
                          .token_stride_bytes = uint64_t{shape.head_dim} * 2};
      kv.keys = memory_.bytes().data() + layer * layer_bytes_;
      kv.values = kv.keys + kv.slot_stride_bytes / 2;
      layers_.push_back(kv);
    }
    tables_.resize(count);
    for (uint32_t s = 0; s < count; ++s) {
      for (uint32_t block = 0; block < blocks_; ++block) {
        tables_[s].push_back(SlotIndex(s * blocks_ + block));
      }
    }
  }

  absl::Span<const kernels::KvLayer> layers() const { return layers_; }
  absl::Span<const SlotIndex> table(uint32_t sequence) const { return tables_[sequence]; }

 private:
  static uint64_t SlotBytes(const RandomModelShape& shape) {
    return uint64_t{2} * shape.num_kv_heads * shape.head_dim * 2 * kTokensPerBlock;
  }

  const uint32_t blocks_;  // Of a sequence.
  const uint64_t layer_bytes_;
  ColdMemory memory_;
  std::vector<kernels::KvLayer> layers_;
  std::vector<std::vector<SlotIndex>> tables_;
};

class EngineBench {
 public:
  EngineBench(const Options& options, const RandomModelShape& shape)
      : options_(options),
        shape_(shape),
        files_(shape),
        model_(LoadModel(files_.dir(), options.threads)),
        context_(options.smoke ? 64 : 512),
        prompt_(options.smoke ? 64 : 2048),
        sequences_(shape, kBatch, prompt_) {
    std::fprintf(stderr, "%s\n", model_->backend().description().c_str());
    std::mt19937 random(1);
    for (uint32_t i = 0; i < prompt_; ++i) tokens_.push_back(random() % shape.vocab_size);
  }

  void Run() {
    if (Wanted("decode_b1")) DecodeOne();
    if (Wanted("decode_b16_over_b1")) DecodeBatch();
    if (Wanted("prefill_2048")) Prefill();
    if (!options_.peer.empty() && Wanted("peer")) Peer();
    // Loads its own copy of the weights, so it is made only if a figure needs it.
    const bool cached = Wanted("ttft_cached_over_uncached");
    const bool host = Wanted("ttft_host_over_uncached");
    const bool bookkeeping = Wanted("bookkeeping_share");
    const bool sampling = Wanted("sampling_share");
    const bool waste = Wanted("kv_waste_share");
    if (!cached && !host && !bookkeeping && !sampling && !waste) return;
    EngineRequests requests({.threads = options_.threads, .smoke = options_.smoke}, shape_,
                            files_.dir());
    if (cached || host) requests.PrintTimesToFirstToken(cached, host);
    if (bookkeeping) requests.PrintBookkeeping();
    if (sampling) requests.PrintSampling();
    if (waste) requests.PrintWaste();
  }

 private:
  bool Wanted(std::string_view id) const { return id.starts_with(options_.prefix); }

  // One step in which each of `batch` sequences has `count` new tokens after `first` earlier ones.
  void Step(uint32_t batch, uint32_t first, uint32_t count, uint32_t num_logits) {
    std::vector<absl::Span<const SlotIndex>> tables;
    for (uint32_t s = 0; s < batch; ++s) tables.push_back(sequences_.table(s));
    std::vector<SequenceInput> inputs;
    for (uint32_t s = 0; s < batch; ++s) {
      inputs.push_back({.tokens = absl::MakeConstSpan(tokens_).subspan(first, count),
                        .first_position = first,
                        .tables = {&tables[s], 1},
                        .num_logits = num_logits});
    }
    MakeInput(inputs, model_->windows(), kTokensPerBlock, input_);
    PAGODA_CHECK(model_->Forward(input_, sequences_.layers()).ok(), "a benchmark's step is right");
  }

  double DecodeSeconds(uint32_t batch) {
    return Seconds([&] { Step(batch, context_ - 1, 1, 1); });
  }

  // The bytes that a decode step reads: every weight once, and the contexts' K and V.
  double StepBytes(uint32_t batch) const {
    const uint64_t weights = shape_.layer_weights() + shape_.head_weights();
    const uint64_t kv =
        uint64_t{batch} * context_ * shape_.num_layers * 2 * shape_.num_kv_heads * shape_.head_dim;
    return 2.0 * static_cast<double>(weights + kv);
  }

  void DecodeOne() {
    const ColdMemory cold(options_.smoke ? 8 << 20 : 1 << 30);
    const double bytes = StepBytes(1);
    DecodeSeconds(1);
    const auto [value, yardstick] =
        InterleavedMedians([&] { return bytes / DecodeSeconds(1); },
                           [&] { return ReadBytesPerSecond(cold.bytes(), options_.threads); });
    Print({.id = "decode_b1",
           .value = value / 1e9,
           .unit = "GB/s",
           .yardstick = absl::StrCat("a read of memory by ", options_.threads, " threads"),
           .yardstick_value = yardstick / 1e9});
  }

  void DecodeBatch() {
    DecodeSeconds(kBatch);
    DecodeSeconds(1);
    const auto [value, yardstick] = InterleavedMedians(
        [&] { return kBatch / DecodeSeconds(kBatch); }, [&] { return 1 / DecodeSeconds(1); });
    Print({.id = "decode_b16_over_b1",
           .value = value,
           .unit = "token/s",
           .yardstick = "one sequence",
           .yardstick_value = yardstick});
  }

  // In the engine's chunks. The last chunk has the logits of one token.
  double PrefillSeconds() {
    return Seconds([&] {
      for (uint32_t first = 0; first < prompt_; first += kChunkTokens) {
        const uint32_t count = std::min(kChunkTokens, prompt_ - first);
        Step(1, first, count, first + count == prompt_ ? 1 : 0);
      }
    });
  }

  static double Median(const std::function<double()>& measure) {
    std::vector<double> values;
    for (int i = 0; i < kRepetitions; ++i) values.push_back(measure());
    return Percentile(std::move(values), 0.5);
  }

  void Prefill() {
    const double pairs = 0.5 * prompt_ * (prompt_ + 1.0);
    const double attention = 4.0 * pairs * shape_.num_layers * shape_.num_heads * shape_.head_dim;
    const double products = 2.0 * (static_cast<double>(shape_.layer_weights()) * prompt_ +
                                   static_cast<double>(shape_.head_weights()));
    const auto run = [&] { return PrefillSeconds(); };
    run();
    const bool dots = kernels::cpu::BestIsa() == kernels::cpu::Isa::kAvx512Bf16;
    const auto [value, yardstick] =
        InterleavedMedians([&] { return (attention + products) / run(); },
                           [&] {
                             return dots ? Bf16DotFlops(options_.threads)
                                         : Float32Flops(kernels::cpu::BestIsa(), options_.threads);
                           });
    Print({.id = "prefill_2048",
           .value = value / 1e9,
           .unit = "GFLOP/s",
           .yardstick = dots ? "dot products of bf16 pairs" : "fused multiplications of fp32",
           .yardstick_value = yardstick / 1e9});
  }

  // Tokens per second, compared with another engine on the same checkpoint. The two run one after
  // the other.
  void Peer() {
    DecodeSeconds(1);
    const double decode = 1 / Median([&] { return DecodeSeconds(1); });
    const double prefill = prompt_ / Median([&] { return PrefillSeconds(); });
    const std::string command =
        absl::StrCat(options_.peer, " ", files_.dir(), " --threads ", options_.threads,
                     " --context ", context_, " --prompt ", prompt_);
    std::FILE* const output = popen(command.c_str(), "r");
    PAGODA_CHECK(output != nullptr, "the peer can be started");
    std::string text;
    for (int c = std::fgetc(output); c != EOF; c = std::fgetc(output)) text += static_cast<char>(c);
    PAGODA_CHECK(pclose(output) == 0, "the peer measures");
    const nlohmann::json told = nlohmann::json::parse(text);
    std::fprintf(stderr, "peer: %s\n", told["versions"].get<std::string>().c_str());
    Print({.id = "peer_decode_b1",
           .value = decode,
           .unit = "token/s",
           .yardstick = "transformers in bf16",
           .yardstick_value = told["decode_tokens_per_second"].get<double>()});
    Print({.id = "peer_prefill_2048",
           .value = prefill,
           .unit = "token/s",
           .yardstick = "transformers in bf16",
           .yardstick_value = told["prefill_tokens_per_second"].get<double>()});
  }

  const Options options_;
  const RandomModelShape shape_;
  const RandomModel files_;
  const std::unique_ptr<Transformer> model_;
  const uint32_t context_;  // Tokens of a sequence that decodes, including the new one.
  const uint32_t prompt_;
  Sequences sequences_;
  std::vector<TokenId> tokens_;
  ModelInput input_;
};

// False if the arguments are not options.
bool Parse(int argc, char** argv, Options& options) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--smoke") {
      options.smoke = true;
    } else if (argument == "--threads" && i + 1 < argc) {
      options.threads = static_cast<uint32_t>(std::max(1, std::atoi(argv[++i])));
    } else if (argument == "--peer" && i + 1 < argc) {
      options.peer = argv[++i];
    } else if (options.prefix.empty() && !argument.starts_with('-')) {
      options.prefix = argument;
    } else {
      return false;
    }
  }
  return true;
}

}  // namespace
}  // namespace pagoda::bench

int main(int argc, char** argv) {
  pagoda::bench::Options options;
  if (!pagoda::bench::Parse(argc, argv, options)) {
    std::fprintf(
        stderr,
        "usage: %s [--smoke] [--threads N] [--peer COMMAND] [FIGURE]: all figures, or those whose "
        "ids begin so; --smoke: a tiny model, to see that they are there; --peer: what measures "
        "another engine on the same checkpoint, beside which peer_... stand\n",
        argv[0]);
    return 2;
  }
  pagoda::bench::RandomModelShape shape;
  if (options.smoke) shape = pagoda::bench::RandomModelShape::Tiny();
  pagoda::bench::EngineBench(options, shape).Run();
}
