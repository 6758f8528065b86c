#include "engine/model/weights/tensor_rows.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "engine/checkpoint/files/quantised_blocks.h"
#include "kernels/cpu/vectors/convert_rows.h"
#include "kernels/execution/isa.h"
#include "kernels/numeric.h"

namespace pagoda {
namespace {

using kernels::ElementBytes;
using kernels::ElementType;

// Elements converted at a time if they cannot be read in place.
constexpr uint64_t kPieceElements = 256;

ElementType ElementTypeOf(TensorType type) {
  if (type == TensorType::kFloat32) return ElementType::kFloat32;
  return type == TensorType::kFloat16 ? ElementType::kFloat16 : ElementType::kBFloat16;
}

kernels::cpu::ConvertRows Conversion(ElementType from, ElementType to) {
  return kernels::cpu::FindConversion(from, to, kernels::cpu::BestIsa(),
                                      kernels::cpu::Stores::kThroughCaches);
}

void Convert(kernels::cpu::ConvertRows convert, const std::byte* source, uint64_t elements,
             std::byte* target) {
  convert({.source = source, .target = target, .num_rows = 1, .row_elements = elements},
          /*scale=*/1.0f);
}

// Tensors begin anywhere in a file. Unaligned elements are first copied to an aligned buffer.
void ReadFloats(ElementType from, const std::byte* source, uint64_t count, ElementType to,
                std::byte* output) {
  const kernels::cpu::ConvertRows convert = Conversion(from, to);
  const uint64_t bytes = ElementBytes(from);
  if (reinterpret_cast<uintptr_t>(source) % bytes == 0) {
    return Convert(convert, source, count, output);
  }
  alignas(64) std::byte piece[kPieceElements * sizeof(float)];
  for (uint64_t i = 0; i < count; i += kPieceElements) {
    const uint64_t elements = std::min(kPieceElements, count - i);
    std::memcpy(piece, source + i * bytes, elements * bytes);
    Convert(convert, piece, elements, output + i * ElementBytes(to));
  }
}

void ReadBlocks(TensorType type, const std::byte* source, uint64_t count, ElementType to,
                std::byte* output) {
  const BlockLayout layout = LayoutOf(type);
  const kernels::cpu::ConvertRows convert = Conversion(ElementType::kFloat32, to);
  alignas(64) float floats[UnpackedBlock::kMostElements];
  for (uint64_t i = 0; i < count; i += layout.elements, source += layout.bytes) {
    DequantiseBlocks(type, source, 1, floats);
    Convert(convert, reinterpret_cast<const std::byte*>(floats), layout.elements,
            output + i * ElementBytes(to));
  }
}

}  // namespace

void ReadRows(const TensorInfo& matrix, uint64_t first, uint64_t count, ElementType to,
              std::byte* output) {
  const uint64_t cols = matrix.shape[1];
  PAGODA_CHECK(first + count <= matrix.shape[0], "the rows are the matrix's");
  const uint64_t row_bytes = matrix.bytes.size() / matrix.shape[0];
  const std::byte* source = matrix.bytes.data() + first * row_bytes;
  if (IsQuantised(matrix.type)) {
    return ReadBlocks(matrix.type, source, count * cols, to, output);
  }
  ReadFloats(ElementTypeOf(matrix.type), source, count * cols, to, output);
}

}  // namespace pagoda
