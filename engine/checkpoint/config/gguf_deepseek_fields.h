// DeepSeek V2 and V3 in GGUF files.
#ifndef PAGODA_ENGINE_CHECKPOINT_CONFIG_GGUF_DEEPSEEK_FIELDS_H_
#define PAGODA_ENGINE_CHECKPOINT_CONFIG_GGUF_DEEPSEEK_FIELDS_H_

#include "engine/checkpoint/config/gguf_fields.h"
#include "engine/checkpoint/config/model_config.h"
#include "engine/checkpoint/gguf/gguf.h"

namespace pagoda {

// Fills what the architecture deepseek2 adds to the common keys: the shape of latent attention, the
// scale of its scores, and the experts. Needs the layers and the rotary embedding of `config`.
// Experts that are chosen by sigmoids are V3's, and others V2's. Files have two forms. The older
// one has the sizes of a head in key_length and value_length. The newer one has them in
// key_length_mla and value_length_mla; its keys and values of heads are two tensors.
//
// GGUF has mscale_all_dim, but not mscale. This takes both as equal, like llama.cpp.
void FillGgufDeepseek(GgufFields& reader, const GgufFile& file, ModelConfig& config);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_CHECKPOINT_CONFIG_GGUF_DEEPSEEK_FIELDS_H_
