// The options of a LoRA adapter, from PEFT's adapter_config.json.
#ifndef PAGODA_ENGINE_CHECKPOINT_ADAPTER_FIELDS_H_
#define PAGODA_ENGINE_CHECKPOINT_ADAPTER_FIELDS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/checkpoint/config/field_reader.h"

namespace pagoda {

// Names a module by its last parts: "self_attn.q_proj" is a q_proj of each layer. A name that
// begins with ^ is the whole name.
class ModuleSuffix {
 public:
  explicit ModuleSuffix(std::string text) : text_(std::move(text)) {}

  const std::string& text() const { return text_; }
  bool IsWhole(std::string_view module) const;
  bool Matches(std::string_view module) const;

 private:
  std::string text_;
};

struct AdapterOptions {
  // A rank or an alpha for some modules instead of the common one.
  template <class Number>
  using Pattern = std::vector<std::pair<ModuleSuffix, Number>>;

  struct Rank {
    uint32_t rank = 0;
    float scale = 0.0f;  // The factor of the product of both matrices.
  };

  uint32_t rank = 8;
  float alpha = 8.0f;
  bool scales_by_root = false;  // alpha / sqrt(rank) instead of alpha / rank (Kalajdzievski, 2023).
  Pattern<uint32_t> ranks;
  Pattern<float> alphas;
  bool all_linear = false;  // Every matrix of the layers; targets is then empty.
  std::vector<ModuleSuffix> targets;
  std::optional<std::vector<uint32_t>> layers;  // Only in these; nothing: in all.

  // Whether the adapter changes the module, which is in this layer.
  bool Targets(std::string_view module, uint32_t layer) const;
  // Errors: INVALID_CHECKPOINT, without a path, if two entries of a pattern name the module and
  // differ. PEFT takes the first one, but JSON objects have no order.
  absl::StatusOr<Rank> RankOf(std::string_view module) const;
};

// Refuses every option that would change the result and is not supported, and unknown fields with
// a value.
AdapterOptions ReadAdapterOptions(FieldReader& reader);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_CHECKPOINT_ADAPTER_FIELDS_H_
