// Reads a whole config.json.
#ifndef PAGODA_ENGINE_CHECKPOINT_DECODER_FIELDS_H_
#define PAGODA_ENGINE_CHECKPOINT_DECODER_FIELDS_H_

#include "engine/checkpoint/field_reader.h"
#include "engine/checkpoint/model_config.h"

namespace pagoda {

// Reads it by the rules of the architecture that it names. The reader complains about errors, and
// about options that would change the result and are not supported.
ModelConfig ReadDecoder(FieldReader& reader);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_CHECKPOINT_DECODER_FIELDS_H_
