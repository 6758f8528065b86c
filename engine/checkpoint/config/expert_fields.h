// Reads the mixtures of experts and the latent attention of a config.json.
#ifndef PAGODA_ENGINE_CHECKPOINT_CONFIG_EXPERT_FIELDS_H_
#define PAGODA_ENGINE_CHECKPOINT_CONFIG_EXPERT_FIELDS_H_

#include "engine/checkpoint/config/field_reader.h"
#include "engine/checkpoint/config/model_config.h"

namespace pagoda {

// Each fills the special parts of an architecture, after the common fields have been read.
void FillQwen3Moe(FieldReader& reader, ModelConfig& config);
void FillDeepseekV2(FieldReader& reader, ModelConfig& config);
void FillDeepseekV3(FieldReader& reader, ModelConfig& config);
void FillGptOss(FieldReader& reader, ModelConfig& config);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_CHECKPOINT_CONFIG_EXPERT_FIELDS_H_
