// A whole config.json.
#ifndef PAGODA_ENGINE_CHECKPOINT_DECODER_FIELDS_H_
#define PAGODA_ENGINE_CHECKPOINT_DECODER_FIELDS_H_

#include "engine/checkpoint/field_reader.h"
#include "engine/checkpoint/model_config.h"

namespace pagoda {

// Reads it by the rules of the architecture that it names. What is wrong, and what would change the
// result and is not run, is a complaint of the reader.
ModelConfig ReadDecoder(FieldReader& reader);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_CHECKPOINT_DECODER_FIELDS_H_
