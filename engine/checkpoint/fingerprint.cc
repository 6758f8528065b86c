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
}

// Leaves out fields that act behind the last layer (final_soft_cap, the head) and bounds.
void AddConfig(const ModelConfig& config, Hasher& hasher) {
  hasher.Add(config.num_heads);
  hasher.Add(config.head_dim);
  for (const LayerConfig& layer : config.layers) {
    hasher.Add(layer.window.value());
    hasher.Add(layer.num_kv_heads);
    AddRotary(config.rotaries[layer.rotary], hasher);
    if (layer.kind == KvKind::kKeyAndValue)
      continue;  // Unchanged from the time when this was the
                 // only kind.
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
