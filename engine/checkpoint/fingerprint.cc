#include "engine/checkpoint/fingerprint.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <bit>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace pagoda {
namespace {

using Scaling = RotaryConfig::Scaling;

// XXH3 over numbers, and over bytes with their lengths, so that different lists differ.
class Hasher {
 public:
  Hasher() { XXH3_64bits_reset(&state_); }

  void Add(uint64_t number) { XXH3_64bits_update(&state_, &number, sizeof(number)); }
  void AddFloat(float number) { Add(std::bit_cast<uint32_t>(number)); }
  void AddBytes(absl::Span<const std::byte> bytes) {
    Add(bytes.size());
    XXH3_64bits_update(&state_, bytes.data(), bytes.size());
  }
  void AddText(absl::string_view text) {
    AddBytes(absl::MakeConstSpan(reinterpret_cast<const std::byte*>(text.data()), text.size()));
  }

  uint64_t Digest() const { return XXH3_64bits_digest(&state_); }

 private:
  XXH3_state_t state_;
};

void AddRotary(const RotaryConfig& rotary, Hasher& hasher) {
  hasher.AddFloat(rotary.theta);
  hasher.Add(static_cast<uint64_t>(rotary.scaling));
  hasher.AddFloat(rotary.factor);
  hasher.AddFloat(rotary.low_freq_factor);
  hasher.AddFloat(rotary.high_freq_factor);
  hasher.Add(rotary.original_max_position_embeddings);
  hasher.Add(rotary.divisors.size());
  for (const float divisor : rotary.divisors) hasher.AddFloat(divisor);
  for (const float divisor : rotary.long_divisors) hasher.AddFloat(divisor);
  const RotaryConfig plain;
  // Unchanged for models from the time before these options.
  if (rotary.rotary_dim == plain.rotary_dim && rotary.pairs == plain.pairs &&
      rotary.attention_factor == plain.attention_factor && rotary.scaling != Scaling::kYarn) {
    return;
  }
  hasher.AddFloat(rotary.beta_fast);
  hasher.AddFloat(rotary.beta_slow);
  hasher.Add(rotary.truncate ? 1 : 0);
  hasher.AddFloat(rotary.attention_factor);
  hasher.Add(rotary.rotary_dim);
  hasher.Add(static_cast<uint64_t>(rotary.pairs));
}

void AddLatent(const LatentAttentionConfig& latent, Hasher& hasher) {
  for (const uint32_t number : {latent.query_rank, latent.latent_dim, latent.plain_dim,
                                latent.rotary_dim, latent.value_dim}) {
    hasher.Add(number);
  }
}

void AddExperts(const ExpertsConfig& experts, Hasher& hasher) {
  for (const uint32_t number :
       {experts.count, experts.chosen, experts.intermediate_size, experts.shared_intermediate_size,
        static_cast<uint32_t>(experts.scores), uint32_t{experts.normalize}, experts.groups,
        experts.chosen_groups, static_cast<uint32_t>(experts.group_rating),
        uint32_t{experts.has_correction}, uint32_t{experts.has_bias}}) {
    hasher.Add(number);
  }
  hasher.AddFloat(experts.scale);
}

// What Llama's descendants until Gemma 3 do not have. Adds nothing for them, so that their
// fingerprints stay.
void AddLaterOptions(const ModelConfig& config, Hasher& hasher) {
  if (config.latent.has_value()) AddLatent(*config.latent, hasher);
  if (config.experts.has_value()) {
    AddExperts(*config.experts, hasher);
    for (const LayerConfig& layer : config.layers) hasher.Add(layer.has_experts ? 1 : 0);
  }
  if (config.activation == Activation::kClampedSilu) {
    hasher.AddFloat(config.activation_alpha);
    hasher.AddFloat(config.activation_limit);
  }
  uint64_t bit = 1;
  uint64_t flags = config.names == TensorNames::kBloom ? 1 : 0;
  for (const bool flag :
       {!config.gated_mlp, config.layer_norms, config.embedding_norm, config.alibi,
        config.attention_sinks, config.output_bias, config.mlp_bias}) {
    bit *= 2;
    flags |= flag ? bit : 0;
  }
  if (flags != 0) hasher.Add(flags);
}

// Leaves out fields that act behind the last layer (final_soft_cap, the head) and bounds.
void AddConfig(const ModelConfig& config, Hasher& hasher) {
  hasher.Add(config.num_heads);
  hasher.Add(config.head_dim);
  for (const LayerConfig& layer : config.layers) {
    hasher.Add(layer.window.value());
    hasher.Add(layer.num_kv_heads);
    if (!config.alibi) AddRotary(config.rotaries[layer.rotary], hasher);
    // This kind adds nothing, as at the time when it was the only one.
    if (layer.kind == KvKind::kKeyAndValue) continue;
    hasher.Add(static_cast<uint64_t>(layer.kind));
    hasher.Add(layer.value_dim);
  }
  for (const float number : {config.rms_norm_eps, config.query_scale, config.attention_soft_cap,
                             config.embedding_scale}) {
    hasher.AddFloat(number);
  }
  hasher.Add(static_cast<uint64_t>(config.activation));
  for (const bool flag : {config.attention_bias, config.query_key_norm, config.norm_weight_plus_one,
                          config.post_norms}) {
    hasher.Add(flag ? 1 : 0);
  }
  AddLaterOptions(config, hasher);
}

}  // namespace

std::string FingerprintOf(const ModelConfig& config, const TensorMap& tensors) {
  Hasher hasher;
  AddConfig(config, hasher);
  for (const auto& [name, tensor] : tensors) {
    hasher.AddText(name);
    hasher.AddText(TensorTypeName(tensor.type));
    hasher.Add(tensor.shape.size());
    for (const uint64_t dimension : tensor.shape) hasher.Add(dimension);
    hasher.AddBytes(tensor.bytes);
  }
  return absl::StrCat(config.architecture, "-", absl::Hex(hasher.Digest(), absl::kZeroPad16));
}

}  // namespace pagoda
