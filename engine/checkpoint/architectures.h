// The architectures that the engine runs, as config.json names them.
#ifndef PAGODA_ENGINE_CHECKPOINT_ARCHITECTURES_H_
#define PAGODA_ENGINE_CHECKPOINT_ARCHITECTURES_H_

#include "engine/checkpoint/field_reader.h"
#include "engine/checkpoint/model_config.h"

namespace pagoda {

// Reads a whole config.json by the rules of the architecture that it names. What is wrong, and what
// would change the result and is not run, is a complaint of the reader.
ModelConfig ReadArchitecture(FieldReader& reader);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_CHECKPOINT_ARCHITECTURES_H_
