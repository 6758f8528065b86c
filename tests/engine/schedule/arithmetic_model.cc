#include "tests/engine/schedule/arithmetic_model.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "engine/sampling/sampling.h"

namespace pagoda {
namespace {

uint64_t Mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15;
  return hash ^ (hash >> 29);
}

// The positions that a token at `position` sees.
int64_t FirstSeen(WindowSize window, int64_t position) {
  if (window == kFullAttention) return 0;
  return std::max<int64_t>(0, position + 1 - int64_t{window.value()});
}

// A few likely tokens, so that draws differ and draft tokens are sometimes chosen.
void LogitsOf(uint64_t hash, int64_t position, uint32_t period, absl::Span<float> logits) {
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = -4.0f;
  for (int rank = 0; rank < 4; ++rank) {
    hash = Mix(hash, 0x5851f42d4c957f2d);
    logits[(hash >> 20) % logits.size()] = 2.0f - static_cast<float>(rank);
  }
  if (period != 0 && (hash >> 40) % 8 != 0) logits[static_cast<size_t>(position % period)] = 8.0f;
}

}  // namespace

CacheSpec ArithmeticModel::Spec(absl::Span<const WindowSize> windows, uint32_t tokens_per_block) {
  CacheSpec spec;
  spec.model_fingerprint = "arithmetic";
  spec.tokens_per_block = tokens_per_block;
  for (const WindowSize window : windows) {
    spec.layers.push_back(
        {.window = window, .num_kv_heads = 1, .head_dim = 2, .dtype = DType::kFloat32});
  }
  return spec;
}

std::vector<float> ArithmeticModel::LogitsBehind(absl::Span<const TokenId> tokens,
                                                 absl::Span<const WindowSize> windows,
                                                 uint32_t period) {
  uint64_t hash = 0;
  const auto last = static_cast<int64_t>(tokens.size()) - 1;
  for (const WindowSize window : windows) {
    for (int64_t i = FirstSeen(window, last); i <= last; ++i) {
      hash = Mix(Mix(hash, tokens[static_cast<size_t>(i)]), static_cast<uint64_t>(i));
    }
  }
  std::vector<float> logits(kVocabSize);
  LogitsOf(hash, last, period, absl::MakeSpan(logits));
  return logits;
}

std::vector<std::vector<TokenId>> ArithmeticModel::ExpectedAnswer(
    const GenerateRequest& request, absl::Span<const WindowSize> windows, uint32_t period) {
  std::vector<std::vector<TokenId>> samples;
  Sampler sampler;
  for (uint32_t sample = 0; sample < request.num_samples; ++sample) {
    SamplingParams sampling = request.sampling;
    sampling.seed += sample;
    std::vector<TokenId> tokens = request.prompt;
    std::vector<TokenId>& answer = samples.emplace_back();
    while (answer.size() < request.max_new_tokens) {
      const std::vector<float> logits = LogitsBehind(tokens, windows, period);
      answer.push_back(*sampler.Choose(sampling, logits, tokens));
      tokens.push_back(answer.back());
      const auto& stops = request.stop_tokens;
      if (std::find(stops.begin(), stops.end(), answer.back()) != stops.end()) break;
    }
  }
  return samples;
}

ArithmeticModel::ArithmeticModel(CacheClient& client, std::vector<WindowSize> windows,
                                 uint32_t tokens_per_block, uint32_t period)
    : windows_(std::move(windows)),
      tokens_per_block_(tokens_per_block),
      period_(period),
      pools_(windows_.size()) {
  auto mapped = client.MapPools(MemoryAccess::kReadWrite);
  PAGODA_CHECK(mapped.ok(), mapped.status().ToString().c_str());
  for (std::unique_ptr<MappedPool>& pool : *mapped) {
    if (pool->mapping().tier != kPrimaryTier) continue;
    const auto window = std::find(windows_.begin(), windows_.end(), pool->mapping().window);
    pools_[static_cast<size_t>(window - windows_.begin())] = std::move(pool);
  }
}

ArithmeticModel::Entry& ArithmeticModel::At(size_t window, int64_t token_slot) {
  const auto slot = static_cast<uint32_t>(token_slot / tokens_per_block_);
  const auto offset = static_cast<uint32_t>(token_slot % tokens_per_block_);
  MappedPool& pool = *pools_[window];
  return *reinterpret_cast<Entry*>(pool.slot(SlotIndex(slot)).data() +
                                   offset * pool.mapping().layout.token_stride_bytes());
}

absl::StatusOr<absl::Span<const float>> ArithmeticModel::Forward(const ModelInput& input) {
  PAGODA_CHECK(!input.tokens.empty(), "a step has tokens");
  most_tokens_ = std::max(most_tokens_, static_cast<uint32_t>(input.tokens.size()));
  most_sequences_ = std::max(most_sequences_, static_cast<uint32_t>(input.context_lengths.size()));
  for (size_t w = 0; w < windows_.size(); ++w) {
    for (size_t i = 0; i < input.tokens.size(); ++i) {
      At(w, input.windows[w].token_slots[i]) = {static_cast<float>(input.tokens[i]),
                                                static_cast<float>(input.positions[i])};
    }
  }
  logits_.resize(input.logit_rows.size() * kVocabSize);
  size_t sequence = 0;
  for (size_t row = 0; row < input.logit_rows.size(); ++row) {
    const auto token = static_cast<int32_t>(input.logit_rows[row]);
    while (input.query_starts[sequence + 1] <= token) ++sequence;
    const int32_t position = input.positions[static_cast<size_t>(token)];
    LogitsOf(Hash(input, sequence, position), position, period_,
             absl::MakeSpan(logits_).subspan(row * kVocabSize, kVocabSize));
  }
  return logits_;
}

uint64_t ArithmeticModel::Hash(const ModelInput& input, size_t sequence, int64_t position) {
  uint64_t hash = 0;
  for (size_t w = 0; w < windows_.size(); ++w) {
    const ModelInput::Window& window = input.windows[w];
    for (int64_t i = FirstSeen(windows_[w], position); i <= position; ++i) {
      const int32_t slot = window.block_tables[sequence * window.block_table_stride +
                                               static_cast<uint64_t>(i) / tokens_per_block_];
      PAGODA_CHECK(slot >= 0, "what a token sees has a slot");
      const Entry& entry = At(w, int64_t{slot} * tokens_per_block_ + i % tokens_per_block_);
      if (!(entry.position == static_cast<float>(i))) {
        ++unwritten_reads_;
        hash = Mix(hash, 0xdead);
        continue;
      }
      hash = Mix(Mix(hash, static_cast<uint64_t>(entry.token)), static_cast<uint64_t>(i));
    }
  }
  return hash;
}

}  // namespace pagoda
