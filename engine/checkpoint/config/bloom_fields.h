// Reads the config.json of a BLOOM.
#ifndef PAGODA_ENGINE_CHECKPOINT_CONFIG_BLOOM_FIELDS_H_
#define PAGODA_ENGINE_CHECKPOINT_CONFIG_BLOOM_FIELDS_H_

#include "engine/checkpoint/config/field_reader.h"
#include "engine/checkpoint/config/model_config.h"

namespace pagoda {

// Everything except the tokens that end a text. The fields have other names than Llama's.
void ReadBloom(FieldReader& reader, ModelConfig& config);

// What all BLOOMs have in common, from any file. Needs hidden_size, num_heads and the layers.
void SetBloomParts(ModelConfig& config);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_CHECKPOINT_CONFIG_BLOOM_FIELDS_H_
