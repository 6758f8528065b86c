#ifndef PAGODA_ENGINE_MODEL_CPU_PRODUCTS_ROW_CONVERTER_H_
#define PAGODA_ENGINE_MODEL_CPU_PRODUCTS_ROW_CONVERTER_H_

#include <cstddef>
#include <cstdint>

#include "engine/model/cpu/dots/unpacked_row.h"
#include "engine/model/cpu/products/instructions.h"

namespace pagoda {

// Converts rows of weights from the file's types to those of products. Immutable and thread-safe,
// but each thread has its own `row`, for quantised types.
class RowConverter {
 public:
  explicit RowConverter(const ProductInstructions& instructions);

  // REQUIRES: a quantised type. Leaves the padding as it is.
  void Unpack(TensorType type, const std::byte* source, uint64_t inputs,
              const UnpackedRow& row) const {
    unpack_(type, source, inputs, row);
  }
  // Exactly, any type. `output` has `inputs` floats.
  void ToFloats(TensorType type, const std::byte* source, uint64_t inputs, const UnpackedRow& row,
                float* output) const;
  // Rounded to bf16, any type. 32 numbers at a time, each 32 `step_bytes` behind those before, and
  // zeros behind the last one. `low` is null, or gets what rounding lost of a type with floats.
  // REQUIRES: instructions.bfloat16().
  void ToBFloat16(TensorType type, const std::byte* source, uint64_t inputs, const UnpackedRow& row,
                  std::byte* high, std::byte* low, uint64_t step_bytes) const;

 private:
  const UnpackRow unpack_;
  const bool has_avx2_;
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_MODEL_CPU_PRODUCTS_ROW_CONVERTER_H_
