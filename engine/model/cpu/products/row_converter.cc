#include "engine/model/cpu/products/row_converter.h"

#include <cstring>

#include "engine/checkpoint/files/quantised_blocks.h"
#include "engine/model/cpu/dots/dots.h"
#include "engine/model/weights/tensor_rows.h"

namespace pagoda {
namespace {

// A row that is bf16 already.
void CopySteps(const std::byte* source, uint64_t inputs, std::byte* output, uint64_t step_bytes) {
  constexpr uint64_t kBytes = 64;  // The bytes of 32 numbers.
  uint64_t left = inputs * 2;
  for (; left >= kBytes; left -= kBytes, source += kBytes, output += step_bytes) {
    std::memcpy(output, source, kBytes);
  }
  if (left == 0) return;
  std::memset(output, 0, kBytes);
  std::memcpy(output, source, left);
}

}  // namespace

RowConverter::RowConverter(const ProductInstructions& instructions)
    : unpack_(instructions.isa >= kernels::cpu::Isa::kAvx2 ? UnpackRowAvx2 : UnpackRowPortable),
      has_avx2_(instructions.isa >= kernels::cpu::Isa::kAvx2) {}

void RowConverter::ToFloats(TensorType type, const std::byte* source, uint64_t inputs,
                            const UnpackedRow& row, float* output) const {
  if (!IsQuantised(type)) {
    const TensorInfo matrix = {
        .type = type, .shape = {1, inputs}, .bytes = {source, inputs * LayoutOf(type).bytes}};
    return ReadRows(matrix, 0, 1, kernels::ElementType::kFloat32,
                    reinterpret_cast<std::byte*>(output));
  }
  if (!has_avx2_) return DequantiseBlocks(type, source, inputs / LayoutOf(type).elements, output);
  unpack_(type, source, inputs, row);
  UnpackedToFloatsAvx2(row, GroupElements(type), inputs, output);
}

void RowConverter::ToBFloat16(TensorType type, const std::byte* source, uint64_t inputs,
                              const UnpackedRow& row, std::byte* high, std::byte* low,
                              uint64_t step_bytes) const {
  switch (type) {
    case TensorType::kFloat32:
      return Float32ToBFloat16Avx512(source, inputs, high, low, step_bytes);
    case TensorType::kFloat16:
      return Float16ToBFloat16Avx512(source, inputs, high, low, step_bytes);
    case TensorType::kBFloat16:
      return CopySteps(source, inputs, high, step_bytes);
    default:
      break;
  }
  unpack_(type, source, inputs, row);
  UnpackedToBFloat16Avx512(row, GroupElements(type), inputs, high, step_bytes);
}

}  // namespace pagoda
