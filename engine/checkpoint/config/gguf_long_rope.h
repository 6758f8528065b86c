// LongRoPE in GGUF files.
#ifndef PAGODA_ENGINE_CHECKPOINT_CONFIG_GGUF_LONG_ROPE_H_
#define PAGODA_ENGINE_CHECKPOINT_CONFIG_GGUF_LONG_ROPE_H_

#include "engine/checkpoint/config/gguf_fields.h"
#include "engine/checkpoint/config/model_config.h"
#include "engine/checkpoint/gguf/gguf.h"

namespace pagoda {

// Whether the file has LongRoPE's factors, which are tensors (kGgufShortFactors,
// kGgufLongFactors).
bool HasGgufLongRope(const GgufFile& file);

// The rotary embedding of a Phi 3 with these tensors. Its converter writes no type of scaling. The
// factor of attention is a key; llama.cpp takes 1 without it. Complains of tensors that are not
// `rotary_dim` / 2 sound numbers. Needs config.max_position_embeddings.
RotaryConfig ReadGgufLongRope(GgufFields& reader, const GgufFile& file, uint32_t rotary_dim,
                              const ModelConfig& config);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_CHECKPOINT_CONFIG_GGUF_LONG_ROPE_H_
