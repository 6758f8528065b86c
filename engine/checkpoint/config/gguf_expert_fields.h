// Mixtures of experts in GGUF files.
#ifndef PAGODA_ENGINE_CHECKPOINT_CONFIG_GGUF_EXPERT_FIELDS_H_
#define PAGODA_ENGINE_CHECKPOINT_CONFIG_GGUF_EXPERT_FIELDS_H_

#include "engine/checkpoint/config/gguf_fields.h"
#include "engine/checkpoint/config/model_config.h"

namespace pagoda {

// What llama.cpp does for an architecture without a key of the metadata.
enum class GgufExperts { kNone, kQwen3Moe, kGptOss, kDeepseek };

// Fills `config` for an architecture whose layers all have experts. REQUIRES: kQwen3Moe or kGptOss
// (kDeepseek: gguf_deepseek_fields.h). Complains
// of missing or absurd keys, and of options that are not supported.
void FillGgufExperts(GgufFields& reader, GgufExperts kind, ModelConfig& config);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_CHECKPOINT_CONFIG_GGUF_EXPERT_FIELDS_H_
