// gpt-oss' MXFP4 weights in safetensors.
#ifndef PAGODA_ENGINE_CHECKPOINT_FILES_MXFP4_PAIRS_H_
#define PAGODA_ENGINE_CHECKPOINT_FILES_MXFP4_PAIRS_H_

#include <cstddef>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/checkpoint/files/safetensors.h"
#include "engine/checkpoint/files/tensor.h"

namespace pagoda {

struct JoinedTensors {
  TensorMap tensors;
  std::vector<std::vector<std::byte>> copies;  // What the tensors point to.
};

// Joins each pair of byte tensors into one MXFP4 tensor NAME.weight [E][R][32 * B], in new memory:
//  * NAME_scales [E][R][B]: the exponents of the blocks,
//  * NAME_blocks [E][R][B][16]: 32 elements of 4 bits; byte i has elements 2i (its low bits) and
//    2i + 1.
// ggml's blocks have byte i for elements i and 16 + i, behind their exponent. If NAME ends with
// gate_up_proj, the rows of gate and up come in turn; the result has all those of gate first.
// A tensor whose partner is missing is left out. Errors: INVALID_CHECKPOINT with the tensor's name
// if the shapes of a pair do not match.
absl::StatusOr<JoinedTensors> JoinMxfp4Pairs(const ByteTensorMap& tensors);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_CHECKPOINT_FILES_MXFP4_PAIRS_H_
