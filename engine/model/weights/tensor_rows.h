#ifndef PAGODA_ENGINE_MODEL_WEIGHTS_TENSOR_ROWS_H_
#define PAGODA_ENGINE_MODEL_WEIGHTS_TENSOR_ROWS_H_

#include <cstddef>
#include <cstdint>

#include "engine/checkpoint/checkpoint.h"
#include "kernels/types.h"

namespace pagoda {

// Writes `count` rows of the matrix, from `first` on, contiguous, as fp32 or bf16 (`to`). `output`
// is aligned to its elements. Thread-safe.
void ReadRows(const TensorInfo& matrix, uint64_t first, uint64_t count, kernels::ElementType to,
              std::byte* output);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_MODEL_WEIGHTS_TENSOR_ROWS_H_
