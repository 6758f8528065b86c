// Loads mixtures of experts from the forms that checkpoints have.
#ifndef PAGODA_ENGINE_MODEL_WEIGHTS_EXPERT_WEIGHTS_H_
#define PAGODA_ENGINE_MODEL_WEIGHTS_EXPERT_WEIGHTS_H_

#include <string>

#include "engine/model/weights/weight_loader.h"

namespace pagoda {

// `mlp` is the name of the layer's MLP, with a dot at its end. Experts are one of:
// * EXPERTS.e.gate_proj, up_proj, down_proj: a matrix each (Qwen 3, DeepSeek).
// * EXPERTS.gate_proj, up_proj, down_proj: all experts in one tensor each (GGUF).
// * EXPERTS.gate_up_proj [e][H][2 I], down_proj [e][I][H]: transposed, with the columns of gate and
//   up in turn (gpt-oss).
// * EXPERTS.gate_up_proj.weight [e][2 I][H], down_proj.weight [e][H][I]: gpt-oss in MXFP4, as
//   checkpoint/files/mxfp4_pairs.h joins them.
ModelWeights::Experts LoadExperts(WeightLoader& load, const std::string& mlp);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_MODEL_WEIGHTS_EXPERT_WEIGHTS_H_
