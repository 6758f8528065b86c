// Distinguishes models whose KV must not be mixed.
#ifndef PAGODA_ENGINE_CHECKPOINT_FINGERPRINT_H_
#define PAGODA_ENGINE_CHECKPOINT_FINGERPRINT_H_

#include <string>

#include "engine/checkpoint/config/model_config.h"
#include "engine/checkpoint/files/tensor.h"

namespace pagoda {

// The architecture and a hash of everything that K and V depend on: those fields of the
// configuration, and each tensor's name, type, shape and bytes.
std::string FingerprintOf(const ModelConfig& config, const TensorMap& tensors);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_CHECKPOINT_FINGERPRINT_H_
