#include "engine/model/cpu/dots/unpacked_row.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/checkpoint/files/quantised_blocks.h"

namespace pagoda {
namespace {

// What is added to a type's integers to make them unsigned.
int OffsetOf(TensorType type) {
  switch (type) {
    case TensorType::kQ8_0:
    case TensorType::kIQ4_NL:
    case TensorType::kIQ4_XS:
      return 128;
    case TensorType::kQ4_0:
      return 8;
    case TensorType::kQ5_0:
    case TensorType::kMxfp4:
      return 16;
    case TensorType::kQ3_K:
      return 4;
    case TensorType::kQ6_K:
      return 32;
    default:
      return 0;
  }
}

}  // namespace

UnpackedRow UnpackedRow::In(std::byte* memory, uint64_t inputs) {
  const uint64_t padded = PaddedInputs(inputs);
  std::memset(memory, 0, Bytes(inputs));
  auto* const scales = reinterpret_cast<float*>(memory + padded);
  return {.integers = reinterpret_cast<uint8_t*>(memory),
          .scales = scales,
          .minimums = scales + padded / 16 + 16};
}

QuantisedRow QuantisedRow::In(std::byte* memory, uint64_t inputs) {
  const uint64_t padded = PaddedInputs(inputs);
  auto* const scales = reinterpret_cast<float*>(memory + padded);
  float* const sums16 = scales + padded / 4;
  return {.integers = reinterpret_cast<int8_t*>(memory),
          .scales = scales,
          .sums16 = sums16,
          .sums32 = sums16 + padded / 16 + 16};
}

void UnpackRowPortable(TensorType type, const std::byte* row, uint64_t inputs,
                       const UnpackedRow& to) {
  const BlockLayout layout = LayoutOf(type);
  const int offset = OffsetOf(type);
  UnpackedBlock block = {};
  uint64_t group = 0;
  for (uint64_t first = 0; first < inputs; first += layout.elements, row += layout.bytes) {
    UnpackBlock(type, row, block);
    for (uint64_t i = 0; i < layout.elements; ++i) {
      to.integers[first + i] = static_cast<uint8_t>(block.integers[i] + offset);
    }
    for (uint64_t g = 0; g < layout.elements / block.group_elements; ++g, ++group) {
      to.scales[group] = block.scales[g];
      // Without an offset, 0 times a scale that is not finite must not make the minimum NaN.
      to.minimums[group] = offset == 0
                               ? block.minimums[g]
                               : block.scales[g] * static_cast<float>(offset) + block.minimums[g];
    }
  }
}

void QuantiseRowPortable(const float* row, uint64_t inputs, const QuantisedRow& to) {
  const uint64_t padded = PaddedInputs(inputs);
  for (uint64_t first = 0; first < inputs; first += 32) {
    float largest = 0.0f, nan = 0.0f;
    for (uint64_t i = 0; i < 32; ++i) {
      largest = std::max(largest, std::abs(row[first + i]));
      nan += row[first + i] * 0.0f;  // NaN if the element is NaN or infinite.
    }
    const float scale = largest / 127.0f + nan;
    const float inverse = largest < 1e-36f ? 0.0f : 127.0f / largest;
    int sums[2] = {};
    for (uint64_t i = 0; i < 32; ++i) {
      const float scaled = row[first + i] * inverse;
      const int integer = scaled == scaled ? static_cast<int>(std::nearbyint(scaled)) : 0;
      to.integers[first + i] = static_cast<int8_t>(integer);
      sums[i / 16] += integer;
    }
    std::fill_n(to.scales + first / 4, 8, scale);
    to.sums16[first / 16] = scale * static_cast<float>(sums[0]);
    to.sums16[first / 16 + 1] = scale * static_cast<float>(sums[1]);
    to.sums32[first / 32] = scale * static_cast<float>(sums[0] + sums[1]);
  }
  std::fill(to.integers + inputs, to.integers + padded, int8_t{0});
  std::fill(to.scales + inputs / 4, to.scales + padded / 4, 0.0f);
  std::fill(to.sums16 + inputs / 16, to.sums16 + padded / 16 + 16, 0.0f);
  std::fill(to.sums32 + inputs / 32, to.sums32 + padded / 32 + 16, 0.0f);
}

}  // namespace pagoda
