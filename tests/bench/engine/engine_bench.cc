// The speed of the engine's model on the CPU, compared with the most that the machine can do.
// deploy/bench.sh engine runs it.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "kernels/execution/isa.h"
#include "kernels/execution/thread_pool.h"
#include "tests/bench/engine/engine_requests.h"
#include "tests/bench/engine/model_sequences.h"
#include "tests/bench/engine/random_model.h"
#include "tests/bench/figure.h"
#include "tests/bench/kernels/machine_peaks.h"

namespace pagoda::bench {
namespace {

constexpr uint32_t kBatch = 16;

struct Options {
  uint32_t threads = 2;
  bool smoke = false;
  std::string peer;  // A command that measures another engine: transformers_peer.py.
  std::string prefix;
};

class EngineBench {
 public:
  EngineBench(const Options& options, const RandomModelShape& shape)
      : options_(options),
        shape_(shape),
        files_(shape),
        model_(LoadOnCpu(files_.dir(), options.threads)),
        context_(options.smoke ? 64 : 512),
        prompt_(options.smoke ? 64 : 2048),
        sequences_(*model_, kBatch, prompt_) {
    std::fprintf(stderr, "%s\n", model_->backend().description().c_str());
  }

  void Run() {
    if (Wanted("decode_b1")) DecodeOne();
    if (Wanted("decode_waits") || Wanted("decode_serial")) DecodeWaits();
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

  double DecodeSeconds(uint32_t batch) {
    return Seconds([&] { sequences_.Step(batch, context_ - 1, 1, 1); });
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

  // What a step of one sequence loses to the ends of the threads' common work, and to what only one
  // thread does.
  void DecodeWaits() {
    constexpr int kSteps = 16;
    using kernels::cpu::ThreadPool;
    DecodeSeconds(1);
    std::vector<double> waits, serials;
    for (int i = 0; i < kSteps; ++i) {
      const ThreadPool::CallerTimes before = ThreadPool::OfThisThread();
      const double step = DecodeSeconds(1);
      const ThreadPool::CallerTimes after = ThreadPool::OfThisThread();
      const auto seconds = [](std::chrono::nanoseconds time) {
        return std::chrono::duration<double>(time).count();
      };
      waits.push_back(seconds(after.waiting - before.waiting) / step);
      serials.push_back(1 - seconds(after.in_runs - before.in_runs) / step);
      if (i == 0)
        std::fprintf(stderr, "%lu rounds of the threads in a step\n",
                     static_cast<unsigned long>(after.runs - before.runs));
    }
    const auto print = [&](const std::string& id, std::vector<double> shares) {
      if (!Wanted(id)) return;
      Print({.id = id,
             .value = Percentile(std::move(shares), 0.5),
             .unit = "of a step",
             .yardstick = "a step",
             .yardstick_value = 1});
    };
    print("decode_waits", std::move(waits));
    print("decode_serial", std::move(serials));
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

  double PrefillSeconds() {
    return Seconds([&] { sequences_.Prefill(prompt_); });
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
  ModelSequences sequences_;
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
