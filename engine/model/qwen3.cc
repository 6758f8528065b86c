#include "engine/model/qwen3.h"

#include <algorithm>
#include <cmath>
#include <dnnl.hpp>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/cache.h"
#include "pools/check.h"

namespace pagoda {
namespace {

// A kernel's refusal is the engine's fault, not its caller's.
absl::Status AsInternal(const char* kernel, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::InternalError(absl::StrCat(kernel, ": ", status.message()));
}

}  // namespace

Qwen3::Qwen3(ModelConfig config, Qwen3Weights weights)
    : config_(std::move(config)),
      weights_(std::move(weights)),
      rotary_(config_.head_dim, config_.rotaries[0].theta) {}

absl::StatusOr<absl::Span<const float>> Qwen3::Forward(const ModelInput& input,
                                                       absl::Span<const kernels::KvLayer> kv) {
  PAGODA_CHECK(kv.size() == weights_.layers.size(), "one KV layer for each layer of the model");
  // oneDNN reports by exceptions; they end here.
  try {
    Embed(input);
    rotary_.SetPositions(input.positions);
    for (size_t i = 0; i < weights_.layers.size(); ++i) {
      const Qwen3Weights::Layer& layer = weights_.layers[i];
      if (absl::Status status = Attend(layer, input, kv[i]); !status.ok()) return status;
      ApplyMlp(layer);
    }
    ApplyHead(input);
  } catch (const dnnl::error& error) {
    return absl::InternalError(absl::StrCat("oneDNN: ", error.what()));
  }
  return logits_;
}

void Qwen3::Embed(const ModelInput& input) {
  num_tokens_ = input.tokens.size();
  hidden_.clear();
  for (const TokenId token : input.tokens) {
    PAGODA_CHECK(token < config_.vocab_size, "a token lies in the vocabulary");
    const auto row = weights_.embedding.values.begin() +
                     static_cast<ptrdiff_t>(uint64_t{token} * config_.hidden_size);
    hidden_.insert(hidden_.end(), row, row + config_.hidden_size);
  }
  normed_.resize(hidden_.size());
  addition_.resize(hidden_.size());
}

absl::Status Qwen3::Attend(const Qwen3Weights::Layer& layer, const ModelInput& input,
                           const kernels::KvLayer& kv) {
  const float eps = config_.rms_norm_eps;
  RmsNorm(hidden_.data(), num_tokens_, layer.attention_norm, eps, normed_.data());
  Project(layer.query, query_);
  Project(layer.key, key_);
  Project(layer.value, value_);
  RmsNorm(query_.data(), num_tokens_ * config_.num_heads, layer.query_norm, eps, query_.data());
  RmsNorm(key_.data(), num_tokens_ * kv.num_kv_heads, layer.key_norm, eps, key_.data());
  rotary_.Rotate(query_.data(), config_.num_heads);
  rotary_.Rotate(key_.data(), kv.num_kv_heads);

  absl::Status written = kernels::cpu::WriteCache({.rows = {.keys = key_.data(),
                                                            .values = value_.data(),
                                                            .key_token_stride = layer.key.rows,
                                                            .value_token_stride = layer.value.rows},
                                                   .token_slots = input.token_slots,
                                                   .kv = kv});
  if (!written.ok()) return AsInternal("cache write", written);
  absl::Status attended =
      kernels::cpu::PagedAttention({.query = query_.data(),
                                    .output = query_.data(),
                                    .query_token_stride = layer.query.rows,
                                    .output_token_stride = layer.query.rows,
                                    .num_heads = config_.num_heads,
                                    .scale = 1.0f / std::sqrt(static_cast<float>(config_.head_dim)),
                                    .query_starts = input.query_starts,
                                    .context_lengths = input.context_lengths,
                                    .block_tables = input.block_tables,
                                    .block_table_stride = input.block_table_stride,
                                    .kv = kv});
  if (!attended.ok()) return AsInternal("paged attention", attended);

  matmul_.Multiply(query_.data(), num_tokens_, layer.attention_output, addition_.data());
  AddTo(absl::MakeSpan(hidden_), addition_);
  return absl::OkStatus();
}

void Qwen3::ApplyMlp(const Qwen3Weights::Layer& layer) {
  RmsNorm(hidden_.data(), num_tokens_, layer.mlp_norm, config_.rms_norm_eps, normed_.data());
  Project(layer.gate, gate_);
  Project(layer.up, up_);
  SiluMultiply(absl::MakeSpan(gate_), up_);
  matmul_.Multiply(gate_.data(), num_tokens_, layer.down, addition_.data());
  AddTo(absl::MakeSpan(hidden_), addition_);
}

// The last layer's rows whose logits nobody wants end here.
void Qwen3::ApplyHead(const ModelInput& input) {
  const uint64_t hidden_size = config_.hidden_size;
  const uint64_t wanted = input.logit_rows.size();
  logits_.resize(wanted * config_.vocab_size);
  if (wanted == 0) return;
  for (uint64_t i = 0; i < wanted; ++i) {
    PAGODA_CHECK(input.logit_rows[i] < num_tokens_, "a logit row is one of the tokens");
    RmsNorm(hidden_.data() + input.logit_rows[i] * hidden_size, 1, weights_.final_norm,
            config_.rms_norm_eps, normed_.data() + i * hidden_size);
  }
  matmul_.Multiply(normed_.data(), wanted, weights_.head(), logits_.data());
}

void Qwen3::Project(const Matrix& weights, std::vector<float>& output) {
  output.resize(num_tokens_ * weights.rows);
  matmul_.Multiply(normed_.data(), num_tokens_, weights, output.data());
}

}  // namespace pagoda
