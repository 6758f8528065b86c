#include "engine/checkpoint/files/quantised_blocks.h"

#include <bit>
#include <cstring>

#include "base/check.h"
#include "kernels/numeric.h"

namespace pagoda {
namespace {

float HalfAt(const uint8_t* bytes) {
  kernels::Half half;
  std::memcpy(&half, bytes, sizeof(half));
  return kernels::ToFloat(half);
}

// Blocks of 32: a scale, perhaps a minimum, perhaps the fifth bits, then pairs of 4 bits. Element i
// is in the low half of byte i, element 16 + i in the high half.
void UnpackNibbles(const uint8_t* pairs, int8_t* integers) {
  for (int i = 0; i < 16; ++i) {
    integers[i] = static_cast<int8_t>(pairs[i] & 0xf);
    integers[16 + i] = static_cast<int8_t>(pairs[i] >> 4);
  }
}
void AddFifthBits(const uint8_t* bits, int8_t* integers) {
  uint32_t high;
  std::memcpy(&high, bits, sizeof(high));
  for (int i = 0; i < 32; ++i)
    integers[i] = static_cast<int8_t>(integers[i] | (high >> i & 1) << 4);
}
void Subtract(int8_t offset, uint64_t count, int8_t* integers) {
  for (uint64_t i = 0; i < count; ++i) integers[i] = static_cast<int8_t>(integers[i] - offset);
}
void LookUp(const int8_t* values, uint64_t count, int8_t* integers) {
  for (uint64_t i = 0; i < count; ++i) integers[i] = values[integers[i]];
}

void UnpackQ8_0(const uint8_t* block, UnpackedBlock& to) {
  to.scales[0] = HalfAt(block);
  std::memcpy(to.integers, block + 2, 32);
}

void UnpackQ4_0(const uint8_t* block, UnpackedBlock& to) {
  to.scales[0] = HalfAt(block);
  UnpackNibbles(block + 2, to.integers);
  Subtract(8, 32, to.integers);
}

void UnpackQ4_1(const uint8_t* block, UnpackedBlock& to) {
  to.scales[0] = HalfAt(block);
  to.minimums[0] = -HalfAt(block + 2);
  UnpackNibbles(block + 4, to.integers);
}

void UnpackQ5_0(const uint8_t* block, UnpackedBlock& to) {
  to.scales[0] = HalfAt(block);
  UnpackNibbles(block + 6, to.integers);
  AddFifthBits(block + 2, to.integers);
  Subtract(16, 32, to.integers);
}

void UnpackQ5_1(const uint8_t* block, UnpackedBlock& to) {
  to.scales[0] = HalfAt(block);
  to.minimums[0] = -HalfAt(block + 2);
  UnpackNibbles(block + 8, to.integers);
  AddFifthBits(block + 4, to.integers);
}

void UnpackIq4Nl(const uint8_t* block, UnpackedBlock& to) {
  to.scales[0] = HalfAt(block);
  UnpackNibbles(block + 2, to.integers);
  LookUp(kIq4Values, 32, to.integers);
}

// The scale is a power of two, 2^(e - 128): half of OCP's, because the table is doubled.
void UnpackMxfp4(const uint8_t* block, UnpackedBlock& to) {
  const uint32_t exponent = block[0];
  to.scales[0] =
      std::bit_cast<float>(exponent < 2 ? 0x00200000u << exponent : (exponent - 1) << 23);
  UnpackNibbles(block + 1, to.integers);
  LookUp(kMxfp4Values, 32, to.integers);
}

// Blocks of 256 in groups of 16 or 32, whose scales are small integers times the block's scale.

// `bits` bits of each element: element 32 * k + i of a part is in byte i, bits k * bits and on.
void UnpackPlanes(const uint8_t* bytes, int bits, int8_t* integers) {
  const int planes = 8 / bits;
  for (int plane = 0; plane < planes; ++plane) {
    for (int i = 0; i < 32; ++i) {
      integers[32 * plane + i] = static_cast<int8_t>(bytes[i] >> bits * plane & ((1 << bits) - 1));
    }
  }
}

void UnpackQ2_K(const uint8_t* block, UnpackedBlock& to) {
  to.group_elements = 16;
  const float scale = HalfAt(block + 80), minimum = HalfAt(block + 82);
  for (int g = 0; g < 16; ++g) {
    to.scales[g] = scale * static_cast<float>(block[g] & 0xf);
    to.minimums[g] = minimum * static_cast<float>(block[g] >> 4);
  }
  for (int part = 0; part < 2; ++part) {
    UnpackPlanes(block + 16 + 32 * part, 2, to.integers + 128 * part);
  }
}

void UnpackQ3_K(const uint8_t* block, UnpackedBlock& to) {
  to.group_elements = 16;
  const uint8_t* const masks = block;
  const uint8_t* const scales = block + 96;
  const float scale = HalfAt(block + 108);
  for (int g = 0; g < 16; ++g) {
    const int low = g < 8 ? scales[g] & 0xf : scales[g - 8] >> 4;
    const int high = scales[8 + g % 4] >> 2 * (g / 4) & 3;
    to.scales[g] = scale * static_cast<float>((low | high << 4) - 32);
  }
  for (int part = 0; part < 2; ++part) {
    UnpackPlanes(block + 32 + 32 * part, 2, to.integers + 128 * part);
  }
  for (int i = 0; i < 256; ++i) {
    if ((masks[i % 32] >> i / 32 & 1) == 0)
      to.integers[i] = static_cast<int8_t>(to.integers[i] - 4);
  }
}

// The scales and minimums of Q4_K and Q5_K: 6 bits each, in 12 bytes.
void UnpackSixBits(const uint8_t* block, UnpackedBlock& to) {
  const float scale = HalfAt(block), minimum = HalfAt(block + 2);
  const uint8_t* const bytes = block + 4;
  for (int g = 0; g < 4; ++g) {
    const uint8_t first = bytes[g], second = bytes[4 + g], rest = bytes[8 + g];
    to.scales[g] = scale * static_cast<float>(first & 0x3f);
    to.minimums[g] = minimum * static_cast<float>(second & 0x3f);
    to.scales[4 + g] = scale * static_cast<float>((rest & 0xf) | (first >> 2 & 0x30));
    to.minimums[4 + g] = minimum * static_cast<float>(rest >> 4 | (second >> 2 & 0x30));
  }
}

void UnpackQ4_K(const uint8_t* block, UnpackedBlock& to) {
  UnpackSixBits(block, to);
  for (int part = 0; part < 4; ++part) {
    UnpackPlanes(block + 16 + 32 * part, 4, to.integers + 64 * part);
  }
}

void UnpackQ5_K(const uint8_t* block, UnpackedBlock& to) {
  UnpackSixBits(block, to);
  for (int part = 0; part < 4; ++part) {
    UnpackPlanes(block + 48 + 32 * part, 4, to.integers + 64 * part);
  }
  const uint8_t* const fifth = block + 16;
  for (int i = 0; i < 256; ++i) {
    to.integers[i] = static_cast<int8_t>(to.integers[i] | (fifth[i % 32] >> i / 32 & 1) << 4);
  }
}

void UnpackQ6_K(const uint8_t* block, UnpackedBlock& to) {
  to.group_elements = 16;
  const float scale = HalfAt(block + 208);
  for (int g = 0; g < 16; ++g) {
    to.scales[g] = scale * static_cast<float>(static_cast<int8_t>(block[192 + g]));
  }
  for (int i = 0; i < 256; ++i) {
    const int part = i / 128, in_part = i % 128;
    const uint8_t low = block[64 * part + in_part % 64] >> 4 * (in_part / 64) & 0xf;
    const uint8_t high = block[128 + 32 * part + in_part % 32] >> 2 * (in_part / 32) & 3;
    to.integers[i] = static_cast<int8_t>((low | high << 4) - 32);
  }
}

void UnpackIq4Xs(const uint8_t* block, UnpackedBlock& to) {
  const float scale = HalfAt(block);
  uint16_t high;
  std::memcpy(&high, block + 2, sizeof(high));
  for (int g = 0; g < 8; ++g) {
    const int bits = (block[4 + g / 2] >> 4 * (g % 2) & 0xf) | (high >> 2 * g & 3) << 4;
    to.scales[g] = scale * static_cast<float>(bits - 32);
    UnpackNibbles(block + 8 + 16 * g, to.integers + 32 * g);
  }
  LookUp(kIq4Values, 256, to.integers);
}

using Unpack = void (*)(const uint8_t* block, UnpackedBlock& to);

Unpack UnpackFor(TensorType type) {
  switch (type) {
    case TensorType::kQ8_0:
      return UnpackQ8_0;
    case TensorType::kQ4_0:
      return UnpackQ4_0;
    case TensorType::kQ4_1:
      return UnpackQ4_1;
    case TensorType::kQ5_0:
      return UnpackQ5_0;
    case TensorType::kQ5_1:
      return UnpackQ5_1;
    case TensorType::kQ2_K:
      return UnpackQ2_K;
    case TensorType::kQ3_K:
      return UnpackQ3_K;
    case TensorType::kQ4_K:
      return UnpackQ4_K;
    case TensorType::kQ5_K:
      return UnpackQ5_K;
    case TensorType::kQ6_K:
      return UnpackQ6_K;
    case TensorType::kIQ4_NL:
      return UnpackIq4Nl;
    case TensorType::kIQ4_XS:
      return UnpackIq4Xs;
    case TensorType::kMxfp4:
      return UnpackMxfp4;
    default:
      PAGODA_CHECK(false, "the type is quantised");
  }
}

}  // namespace

void UnpackBlock(TensorType type, const std::byte* block, UnpackedBlock& unpacked) {
  unpacked.group_elements = 32;
  std::memset(unpacked.minimums, 0, sizeof(unpacked.minimums));
  UnpackFor(type)(reinterpret_cast<const uint8_t*>(block), unpacked);
}

void DequantiseBlocks(TensorType type, const std::byte* blocks, uint64_t count, float* floats) {
  const BlockLayout layout = LayoutOf(type);
  const Unpack unpack = UnpackFor(type);
  UnpackedBlock block = {};
  for (uint64_t b = 0; b < count; ++b, blocks += layout.bytes, floats += layout.elements) {
    unpack(reinterpret_cast<const uint8_t*>(blocks), block);
    for (uint64_t i = 0; i < layout.elements; ++i) {
      const uint64_t group = i / block.group_elements;
      floats[i] =
          block.scales[group] * static_cast<float>(block.integers[i]) - block.minimums[group];
    }
  }
}

}  // namespace pagoda
