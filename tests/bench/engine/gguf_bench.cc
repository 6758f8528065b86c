// The speed and the memory of a GGUF file's model on the CPU. tests/bench/engine/gguf_peer.py runs
// it beside llama.cpp.
#include <sys/stat.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "tests/bench/engine/model_sequences.h"
#include "tests/bench/figure.h"

namespace pagoda::bench {
namespace {

constexpr uint32_t kContext = 512;
constexpr uint32_t kDecodeSteps = 8;  // In one measurement.

struct Options {
  std::string path;
  uint32_t threads = 2;
  int rounds = 5;
  uint32_t longest_prompt = 2048;
};

// The most memory that this process has had at a time, with the file's pages that it maps.
uint64_t PeakBytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::strtoull(line.c_str() + 6, nullptr, 10) * 1024;
  }
  return 0;
}

// Tokens per second, and per second of processor time of all threads: the second figure is
// steadier on a busy machine.
template <class Work>
void Measure(const Options& options, const std::string& name, double tokens, const Work& work,
             nlohmann::json& line) {
  work();
  std::vector<double> rates, cpu_rates;
  for (int i = 0; i < options.rounds; ++i) {
    const double before = CpuSeconds();
    rates.push_back(tokens / Seconds(work));
    cpu_rates.push_back(tokens * options.threads / (CpuSeconds() - before));
  }
  line[name] = Percentile(std::move(rates), 0.5);
  line[name + "_cpu"] = Percentile(std::move(cpu_rates), 0.5);
}

int Run(const Options& options) {
  struct stat file = {};
  PAGODA_CHECK(stat(options.path.c_str(), &file) == 0, "the file exists");
  const auto model = LoadOnCpu(options.path, options.threads);
  ModelSequences sequences(*model, 1, std::max(options.longest_prompt, kContext + kDecodeSteps));
  std::fprintf(stderr, "%s\n", model->backend().description().c_str());
  nlohmann::json line;
  for (const uint32_t prompt : std::set<uint32_t>{kContext, options.longest_prompt}) {
    Measure(
        options, "prefill_" + std::to_string(prompt), prompt, [&] { sequences.Prefill(prompt); },
        line);
  }
  const auto decode = [&] {
    for (uint32_t i = 0; i < kDecodeSteps; ++i) sequences.Step(1, kContext + i, 1, 1);
  };
  Measure(options, "decode", kDecodeSteps, decode, line);
  line["file_bytes"] = file.st_size;
  line["bytes_beside_kv"] = PeakBytes() - sequences.kv_bytes();
  std::printf("%s\n", line.dump().c_str());
  return 0;
}

// False if the arguments are not options.
bool Parse(int argc, char** argv, Options& options) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--threads" && i + 1 < argc) {
      options.threads = static_cast<uint32_t>(std::max(1, std::atoi(argv[++i])));
    } else if (argument == "--rounds" && i + 1 < argc) {
      options.rounds = std::max(1, std::atoi(argv[++i]));
    } else if (argument == "--longest-prompt" && i + 1 < argc) {
      options.longest_prompt = static_cast<uint32_t>(std::max(1, std::atoi(argv[++i])));
    } else if (options.path.empty() && !argument.starts_with('-')) {
      options.path = argument;
    } else {
      return false;
    }
  }
  return !options.path.empty();
}

}  // namespace
}  // namespace pagoda::bench

int main(int argc, char** argv) {
  pagoda::bench::Options options;
  if (!pagoda::bench::Parse(argc, argv, options)) {
    std::fprintf(stderr,
                 "usage: %s FILE.gguf [--threads N] [--rounds N] [--longest-prompt TOKENS]: prints "
                 "tokens per second and bytes as one JSON object\n",
                 argv[0]);
    return 2;
  }
  return pagoda::bench::Run(options);
}
