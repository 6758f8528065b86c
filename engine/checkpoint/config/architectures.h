// The architectures that the engine runs, by their names in config.json.
#ifndef PAGODA_ENGINE_CHECKPOINT_CONFIG_ARCHITECTURES_H_
#define PAGODA_ENGINE_CHECKPOINT_CONFIG_ARCHITECTURES_H_

#include <array>
#include <cstdint>
#include <string_view>

#include "engine/checkpoint/config/field_reader.h"
#include "engine/checkpoint/config/model_config.h"
#include "engine/checkpoint/config/rotary_fields.h"

namespace pagoda {

// Which layers have the sliding window if config.json has no layer_types.
enum class WindowRule : uint8_t {
  kNone,
  kEvery,        // Mistral: all, if sliding_window is not null.
  kUpperLayers,  // Qwen: layers from max_window_layers on, if use_sliding_window is true.
  kPeriodic,     // Gemma: all except every sliding_window_pattern-th.
};

// An architecture: its defaults for fields that config.json lacks, as in transformers 5.23, and its
// differences from Llama.
struct Architecture {
  const char* name;
  void (*fill)(FieldReader&, ModelConfig&);  // Called last.
  // Defaults.
  bool has_kv_heads_by_layer = false;  // num_key_value_heads can be a list.
  uint32_t num_kv_heads = 0;           // 0: the number of heads.
  uint32_t head_dim = 0;               // 0: hidden_size / num_attention_heads.
  uint32_t max_position_embeddings = 32768;
  RotaryDefaults rotary;
  bool tie_word_embeddings = false;
  WindowRule window_rule = WindowRule::kNone;
  uint32_t window = 4096;  // 0: a model without the field has no window.
  uint32_t window_period = 0;
  Activation activation = Activation::kSilu;
  const char* activation_field = "hidden_act";
  float rms_norm_eps = 1e-6f;
  // Options that config.json can have with values that other architectures refuse; `fill` reads
  // them.
  std::array<std::string_view, 2> own_options = {};
  // Reads the whole file instead of the common fields. Null: ReadDecoder does.
  void (*read)(FieldReader&, ModelConfig&) = nullptr;
};

// The architecture that config.json names. Refuses an unknown one; the result is then some
// architecture whose values the caller must not use.
const Architecture& FindArchitecture(FieldReader& reader);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_CHECKPOINT_CONFIG_ARCHITECTURES_H_
