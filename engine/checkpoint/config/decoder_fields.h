// Reads a whole config.json.
#ifndef PAGODA_ENGINE_CHECKPOINT_CONFIG_DECODER_FIELDS_H_
#define PAGODA_ENGINE_CHECKPOINT_CONFIG_DECODER_FIELDS_H_

#include <cstdint>

#include "engine/checkpoint/config/field_reader.h"
#include "engine/checkpoint/config/model_config.h"

namespace pagoda {

// Reads it by the rules of the architecture that it names. The reader complains about errors, and
// about options that would change the result and are not supported.
ModelConfig ReadDecoder(FieldReader& reader);

// The most layers, heads and experts, and the largest sizes, of a model.
inline constexpr uint32_t kMaxLayers = 1024;
inline constexpr uint32_t kMaxHeads = 1024;
inline constexpr uint32_t kMaxHeadDim = 1024;
inline constexpr uint32_t kMaxHiddenSize = 1u << 17;
inline constexpr uint32_t kMaxIntermediateSize = 1u << 20;
inline constexpr uint32_t kMaxVocabSize = 1u << 24;
inline constexpr uint32_t kMaxExperts = 4096;

// eos_token_id: one id, a list of them, or none. Needs config.vocab_size.
void ReadEosTokens(FieldReader& reader, ModelConfig& config);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_CHECKPOINT_CONFIG_DECODER_FIELDS_H_
