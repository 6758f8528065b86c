// Rotary embeddings in a config.json.
#ifndef PAGODA_ENGINE_CHECKPOINT_ROTARY_FIELDS_H_
#define PAGODA_ENGINE_CHECKPOINT_ROTARY_FIELDS_H_

#include "engine/checkpoint/field_reader.h"
#include "engine/checkpoint/model_config.h"

namespace pagoda {

// What holds where config.json gives no base.
struct RotaryDefaults {
  float theta = 10000.0f;
  float sliding_theta = 0.0f;  // Gemma 3's, of layers with a window; 0: theta is everybody's.
};

// Fills config.rotaries and each layer's index in it; needs the layers' windows and
// max_position_embeddings. Both forms are read: transformers 5 keeps the options in
// rope_parameters, one object or one per type of layer; before, the base was rope_theta
// (Gemma 3's second one rope_local_base_freq) and the rest rope_scaling.
void ReadRotaries(FieldReader& reader, const RotaryDefaults& defaults, ModelConfig& config);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_CHECKPOINT_ROTARY_FIELDS_H_
