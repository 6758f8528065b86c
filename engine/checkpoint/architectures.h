// The architectures that the engine runs, as config.json names them.
#ifndef PAGODA_ENGINE_CHECKPOINT_ARCHITECTURES_H_
#define PAGODA_ENGINE_CHECKPOINT_ARCHITECTURES_H_

#include <cstdint>

#include "engine/checkpoint/field_reader.h"
#include "engine/checkpoint/model_config.h"
#include "engine/checkpoint/rotary_fields.h"

namespace pagoda {

// Which layers have the sliding window where config.json has no layer_types.
enum class WindowRule : uint8_t {
  kNone,
  kEvery,        // Mistral: all, if sliding_window is not null.
  kUpperLayers,  // Qwen: those from max_window_layers on, if use_sliding_window is true.
  kPeriodic,     // Gemma: all but every sliding_window_pattern-th.
};

// An architecture: what its config.json may leave out, as transformers 5.23 has it, and how it
// differs from the Llama that all of them are.
struct Architecture {
  const char* name;
  void (*fill)(FieldReader&, ModelConfig&);  // Called last.
  // Defaults.
  bool has_kv_heads_by_layer = false;  // num_key_value_heads may be a list.
  uint32_t num_kv_heads = 0;           // 0: as many as heads.
  uint32_t head_dim = 0;               // 0: hidden_size / num_attention_heads.
  uint32_t max_position_embeddings = 32768;
  RotaryDefaults rotary;
  bool tie_word_embeddings = false;
  WindowRule window_rule = WindowRule::kNone;
  uint32_t window = 4096;
  uint32_t window_period = 0;
  Activation activation = Activation::kSilu;
  const char* activation_field = "hidden_act";
};

// The one that config.json names. Refuses what is none of them; then it is some other, and what it
// gives is never read.
const Architecture& FindArchitecture(FieldReader& reader);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_CHECKPOINT_ARCHITECTURES_H_
