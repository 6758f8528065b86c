#include "tests/bench/engine/engine_requests.h"

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include "absl/synchronization/blocking_counter.h"
#include "absl/time/time.h"
#include "base/check.h"
#include "engine/engine.h"
#include "tests/base/require.h"
#include "tests/bench/figure.h"
#include "tests/engine/fixtures/test_cache.h"

namespace pagoda::bench {
namespace {

constexpr uint32_t kTokensPerBlock = 32;
constexpr uint32_t kBatch = 16;
constexpr uint32_t kUncachedTokens = 16;  // Behind the cached ones.

bool TakeToken(const GeneratedToken&) { return true; }

std::vector<TokenId> RandomTokens(uint64_t seed, uint32_t count, uint32_t vocab_size) {
  std::mt19937_64 random(seed);
  std::vector<TokenId> tokens(count);
  for (TokenId& token : tokens) token = static_cast<TokenId>(random() % vocab_size);
  return tokens;
}

}  // namespace

EngineRequests::EngineRequests(const Options& options, const RandomModelShape& shape,
                               const std::string& dir)
    : options_(options), vocab_size_(shape.vocab_size) {
  const CacheSpec spec = Require(Engine::CacheSpecForModel(dir, kTokensPerBlock, DType::kBFloat16));
  cache_ = std::make_unique<TestCache>(
      spec, TestCache::Sizes{.primary_blocks = 640, .lower_blocks = 128});
  engine_ = Require(Engine::Create({.model_dir = dir, .cpu = {.num_threads = options.threads}},
                                   cache_->OpenClient()));
}

EngineRequests::~EngineRequests() = default;

void EngineRequests::PrintTimesToFirstToken(bool cached, bool host) {
  const uint32_t length = options_.smoke ? 128 : 2048;
  const auto fresh = [&] { return RandomTokens(++prompts_, length, vocab_size_); };
  const auto time_to_first_token = [&](std::vector<TokenId> prompt, uint32_t reused,
                                       uint32_t lower) {
    const GenerateReport report =
        Require(engine_->Generate({.prompt = std::move(prompt), .max_new_tokens = 1}, TakeToken));
    PAGODA_CHECK(report.reused_tokens == reused && report.reused_lower_tokens == lower,
                 "the prompt is cached as far as it was meant to be");
    return absl::ToDoubleSeconds(report.time_to_first_token);
  };
  // The same beginning with another end.
  const auto continued = [&](std::vector<TokenId> prompt) {
    const auto end = RandomTokens(++prompts_, kUncachedTokens, vocab_size_);
    std::copy(end.begin(), end.end(), prompt.end() - kUncachedTokens);
    return prompt;
  };
  // If the common beginning ends inside a block, that block is copied.
  const uint32_t reused = length - kUncachedTokens;
  std::vector<TokenId> prompt = fresh();
  time_to_first_token(prompt, 0, 0);
  if (cached) {
    const auto [value, yardstick] =
        InterleavedMedians([&] { return time_to_first_token(continued(prompt), reused, 0); },
                           [&] { return time_to_first_token(fresh(), 0, 0); });
    Print({.id = "ttft_cached_over_uncached",
           .value = value * 1e3,
           .unit = "ms",
           .yardstick = "a prompt of which nothing is cached",
           .yardstick_value = yardstick * 1e3});
  }
  if (!host) return;
  const std::unique_ptr<CacheClient> other = cache_->OpenClient();
  const auto from_host = [&] {
    // The whole prompt is offloaded, so the blocks below it are invalidated first.
    Require(RunOne<InvalidatedPrefix>(*other, InvalidatePrefix{}));
    time_to_first_token(prompt, 0, 0);
    Require(RunOne<OffloadedPrefix>(*other, OffloadPrefix{.tokens = prompt}));
    cache_->WaitForCopies();
    return time_to_first_token(continued(prompt), reused, reused);
  };
  const auto [value, yardstick] =
      InterleavedMedians(from_host, [&] { return time_to_first_token(fresh(), 0, 0); });
  Print({.id = "ttft_host_over_uncached",
         .value = value * 1e3,
         .unit = "ms",
         .yardstick = "a prompt of which nothing is cached",
         .yardstick_value = yardstick * 1e3});
}

void EngineRequests::RunBatch(const SamplingParams& sampling, uint32_t new_tokens) {
  absl::BlockingCounter left(kBatch);
  for (uint32_t i = 0; i < kBatch; ++i) {
    const absl::Status submitted =
        engine_->Submit({.prompt = RandomTokens(++prompts_, 64, vocab_size_),
                         .max_new_tokens = new_tokens,
                         .sampling = sampling},
                        TakeToken, [&](const absl::StatusOr<GenerateReport>& report) {
                          PAGODA_CHECK(report.ok(), report.status().ToString().c_str());
                          left.DecrementCount();
                        });
    PAGODA_CHECK(submitted.ok(), submitted.ToString().c_str());
  }
  left.Wait();
}

EngineRequests::StepParts EngineRequests::MeasureSteps(const SamplingParams& sampling) {
  RunBatch(sampling, 4);
  std::vector<double> bookkeeping, chosen, step;
  for (int i = 0; i < kRepetitions; ++i) {
    const EngineStats before = engine_->Stats();
    RunBatch(sampling, options_.smoke ? 4 : 32);
    const EngineStats after = engine_->Stats();
    const auto per_step = [&](absl::Duration EngineStats::*time) {
      const auto steps = static_cast<double>(after.steps - before.steps);
      return absl::ToDoubleMicroseconds(after.*time - before.*time) / steps;
    };
    chosen.push_back(per_step(&EngineStats::sampling_time));
    step.push_back(per_step(&EngineStats::step_time));
    bookkeeping.push_back(step.back() - chosen.back() - per_step(&EngineStats::model_time));
  }
  return {Percentile(bookkeeping, 0.5), Percentile(chosen, 0.5), Percentile(step, 0.5)};
}

void EngineRequests::PrintBookkeeping() {
  const StepParts parts = MeasureSteps({});
  Print({.id = "bookkeeping_share",
         .value = parts.bookkeeping_us,
         .unit = "us",
         .yardstick = "the whole step of 16 sequences",
         .yardstick_value = parts.step_us});
}

void EngineRequests::PrintSampling() {
  const StepParts parts = MeasureSteps({.temperature = 0.8f, .top_k = 50, .top_p = 0.95f});
  Print({.id = "sampling_share",
         .value = parts.sampling_us,
         .unit = "us",
         .yardstick = "the rest of a step of 16 sequences at temperature 0.8, top-k 50, top-p 0.95",
         .yardstick_value = parts.step_us - parts.sampling_us});
}

void EngineRequests::PrintWaste() {
  std::mt19937_64 random(7);
  absl::BlockingCounter left(kBatch);
  // The engine's thread counts, and reads the occupancy when the last request has begun. After
  // that, no request needs to continue.
  uint64_t held_tokens = 0, reserved_tokens = 0;
  uint32_t begun = 0;
  for (uint32_t i = 0; i < kBatch; ++i) {
    const uint32_t length = options_.smoke ? 40 + i : 200 + static_cast<uint32_t>(random() % 1600);
    const absl::Status submitted = engine_->Submit(
        {.prompt = RandomTokens(++prompts_, length, vocab_size_), .max_new_tokens = 200},
        [&, length, first = true](const GeneratedToken&) mutable {
          if (reserved_tokens > 0) return false;
          begun += first ? 1 : 0;
          held_tokens += std::exchange(first, false) ? length : 1;
          if (begun == kBatch)
            reserved_tokens = uint64_t{cache_->occupancy().active} * kTokensPerBlock;
          return true;
        },
        [&](const absl::StatusOr<GenerateReport>& report) {
          PAGODA_CHECK(report.ok() || absl::IsCancelled(report.status()),
                       report.status().ToString().c_str());
          left.DecrementCount();
        });
    PAGODA_CHECK(submitted.ok(), submitted.ToString().c_str());
  }
  left.Wait();
  PAGODA_CHECK(reserved_tokens > held_tokens, "all requests ran at once");
  Print({.id = "kv_waste_share",
         .value = static_cast<double>(reserved_tokens - held_tokens),
         .unit = "token",
         .yardstick = "the room of 16 requests of 200 to 1,800 tokens",
         .yardstick_value = static_cast<double>(reserved_tokens)});
}

}  // namespace pagoda::bench
