// Floating point of 16 and 8 bits on the host. Conversions in hot loops are branch-free, so that
// compilers vectorise these loops.
#ifndef PAGODA_KERNELS_NUMERIC_H_
#define PAGODA_KERNELS_NUMERIC_H_

#include <bit>
#include <cstdint>
#include <type_traits>

#include "kernels/types.h"

namespace pagoda::kernels {

struct Half {  // IEEE binary16.
  uint16_t bits;
};

struct BFloat16 {  // The upper half of an IEEE binary32.
  uint16_t bits;
};

// OCP's 8-bit floating point, after its specification of 2023.
struct Float8E4M3 {
  uint8_t bits;
};
struct Float8E5M2 {
  uint8_t bits;
};

inline constexpr float kLargestFloat8E4M3 = 448.0f;
inline constexpr float kLargestFloat8E5M2 = 57344.0f;

constexpr float ToFloat(float value) { return value; }

// Exact for every value.
constexpr float ToFloat(BFloat16 value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16);
}

// Exact for every value.
constexpr float ToFloat(Half value) {
  constexpr uint32_t kRebias = (127 - 15) << 23;
  constexpr uint32_t kInfinity = 0x7c00u << 13;
  constexpr uint32_t kSmallestNormal = 0x0400u << 13;
  const uint32_t sign = (value.bits & 0x8000u) << 16;
  const uint32_t magnitude = (value.bits & 0x7fffu) << 13;
  uint32_t bits = magnitude + kRebias;
  if (magnitude >= kInfinity) bits += kRebias;
  // A subnormal becomes the fraction of the smallest normal, which is then subtracted.
  constexpr uint32_t kOne = kRebias + (1u << 23);
  const float subnormal = std::bit_cast<float>(magnitude + kOne) - std::bit_cast<float>(kOne);
  if (magnitude < kSmallestNormal) bits = std::bit_cast<uint32_t>(subnormal);
  return std::bit_cast<float>(bits | sign);
}

// Exact for every value: the upper half of a binary16.
constexpr float ToFloat(Float8E5M2 value) {
  return ToFloat(Half{static_cast<uint16_t>(value.bits << 8)});
}

// Exact for every value.
constexpr float ToFloat(Float8E4M3 value) {
  constexpr uint32_t kRebias = (127 - 7) << 23;
  const uint32_t sign = (value.bits & 0x80u) << 24;
  const uint32_t magnitude = (value.bits & 0x7fu) << 20;
  // A subnormal becomes the fraction of the smallest normal, which is then subtracted.
  constexpr uint32_t kOne = kRebias + (1u << 23);
  const float subnormal = std::bit_cast<float>(magnitude + kOne) - std::bit_cast<float>(kOne);
  uint32_t bits = magnitude + kRebias;
  if (magnitude < (0x08u << 20)) bits = std::bit_cast<uint32_t>(subnormal);
  if (magnitude == (0x7fu << 20)) bits = 0x7fc00000u;
  return std::bit_cast<float>(bits | sign);
}

constexpr BFloat16 ToBFloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  constexpr uint32_t kInfinity = 0x7f800000u;
  if ((bits & 0x7fffffffu) > kInfinity) return {static_cast<uint16_t>((bits >> 16) | 0x40u)};
  const uint32_t half_way_to_even = 0x7fffu + ((bits >> 16) & 1u);
  return {static_cast<uint16_t>((bits + half_way_to_even) >> 16)};
}

constexpr Half ToHalf(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  uint32_t magnitude = bits & 0x7fffffffu;
  uint32_t result = 0;
  if (magnitude > 0x7f800000u) {  // NaN stays NaN.
    result = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
  } else if (magnitude >= 0x477ff000u) {  // From 65,520 on, half way past the largest: infinity.
    result = 0x7c00u;
  } else if (magnitude < 0x38800000u) {  // Below 2^-14: a subnormal's unit is one of 0.5f.
    result = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) -
             std::bit_cast<uint32_t>(0.5f);
  } else {
    magnitude += 0xfffu + ((magnitude >> 13) & 1u);
    result = (magnitude - ((127u - 15u) << 23)) >> 13;
  }
  return {static_cast<uint16_t>(result | sign)};
}

// Converts to 8 bits: kFractionBits of fraction, and an exponent with bias kBias. Saturates: larger
// values, including infinity, become `largest`. NaN becomes the NaN with all bits set.
template <int kFractionBits, int kBias>
constexpr uint8_t ToFloat8Bits(float value, float largest) {
  constexpr int kDropped = 23 - kFractionBits;
  constexpr uint32_t kSmallestNormal = (127 + 1 - kBias) << 23;
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 24) & 0x80u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint8_t>(sign | 0x7fu);
  const uint32_t bounded =
      magnitude < std::bit_cast<uint32_t>(largest) ? magnitude : std::bit_cast<uint32_t>(largest);
  uint32_t result = 0;
  if (bounded < kSmallestNormal) {
    // In the sum with this number, a subnormal's units are the last bits, rounded by the addition.
    constexpr uint32_t kUnits = (127 + 1 - kBias + kDropped) << 23;
    result = std::bit_cast<uint32_t>(std::bit_cast<float>(bounded) + std::bit_cast<float>(kUnits)) -
             kUnits;
  } else {
    const uint32_t half_way_to_even = (1u << (kDropped - 1)) - 1 + ((bounded >> kDropped) & 1u);
    result = (bounded + half_way_to_even - ((127u - kBias) << 23)) >> kDropped;
  }
  return static_cast<uint8_t>(sign | result);
}

constexpr Float8E4M3 ToFloat8E4M3(float value) {
  return {ToFloat8Bits<3, 7>(value, kLargestFloat8E4M3)};
}

constexpr Float8E5M2 ToFloat8E5M2(float value) {
  return {ToFloat8Bits<2, 15>(value, kLargestFloat8E5M2)};
}

// Rounds to nearest, ties to even. Values beyond the largest become infinity, except in 8 bits,
// which saturate.
template <class T>
constexpr T FromFloat(float value) {
  if constexpr (std::is_same_v<T, Half>) {
    return ToHalf(value);
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    return ToBFloat16(value);
  } else if constexpr (std::is_same_v<T, Float8E4M3>) {
    return ToFloat8E4M3(value);
  } else if constexpr (std::is_same_v<T, Float8E5M2>) {
    return ToFloat8E5M2(value);
  } else {
    static_assert(std::is_same_v<T, float>);
    return value;
  }
}

// Calls `visitor.template operator()<T>()` with the C++ type of the elements.
template <class Visitor>
decltype(auto) VisitElementType(ElementType type, Visitor&& visitor) {
  switch (type) {
    case ElementType::kFloat16:
      return visitor.template operator()<Half>();
    case ElementType::kBFloat16:
      return visitor.template operator()<BFloat16>();
    case ElementType::kFloat8E4M3:
      return visitor.template operator()<Float8E4M3>();
    case ElementType::kFloat8E5M2:
      return visitor.template operator()<Float8E5M2>();
    case ElementType::kFloat32:
      break;
  }
  return visitor.template operator()<float>();
}

}  // namespace pagoda::kernels

#endif  // PAGODA_KERNELS_NUMERIC_H_
