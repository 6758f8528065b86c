// Reads the rotary embeddings of a config.json.
#ifndef PAGODA_ENGINE_CHECKPOINT_CONFIG_ROTARY_FIELDS_H_
#define PAGODA_ENGINE_CHECKPOINT_CONFIG_ROTARY_FIELDS_H_

#include <cstdint>

#include "engine/checkpoint/config/field_reader.h"
#include "engine/checkpoint/config/model_config.h"

namespace pagoda {

// The bases if config.json has none.
struct RotaryDefaults {
  float theta = 10000.0f;
  float sliding_theta = 0.0f;  // For layers with a window (Gemma 3). 0: theta.
  // The whole embedding, if config.json has none of its options. Null: a plain one.
  const RotaryConfig* whole = nullptr;
  bool can_be_partial = false;  // partial_rotary_factor rotates the first part of each head.
  // Phi 3: the default of a field of the whole file, original_max_position_embeddings, which wins
  // over the one in the options. Its older files call LongRoPE "su" or "yarn". 0: another model.
  uint32_t phi3_original_positions = 0;
};

// The smallest LongRoPE factor that is accepted. Smaller ones would make angles without meaning.
inline constexpr double kSmallestLongRopeFactor = 1.0 / 1024;

// YaRN's factor of attention, as far as it depends on `mscale`: 0.1 * mscale * ln(factor) + 1, or 1
// for a factor of at most 1.
float YarnScale(float factor, float mscale);

// Fills config.rotaries and each layer's index in it. Needs the layers' windows, head_dim and
// max_position_embeddings. Reads both forms: transformers 5 has the options in rope_parameters, one
// object or one per type of layer. Older files have the base in rope_theta (Gemma 3's second one in
// rope_local_base_freq) and the rest in rope_scaling.
void ReadRotaries(FieldReader& reader, const RotaryDefaults& defaults, ModelConfig& config);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_CHECKPOINT_CONFIG_ROTARY_FIELDS_H_
