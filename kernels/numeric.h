// 16-bit floating point on the host. Branch-free where it matters, so that compilers vectorise
// loops of them.
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
  // A subnormal becomes the fraction of the smallest normal, which is then taken away again.
  constexpr uint32_t kOne = kRebias + (1u << 23);
  const float subnormal = std::bit_cast<float>(magnitude + kOne) - std::bit_cast<float>(kOne);
  if (magnitude < kSmallestNormal) bits = std::bit_cast<uint32_t>(subnormal);
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
  } else if (magnitude < 0x38800000u) {  // Below 2^-14: one unit of a subnormal is one of 0.5f.
    result = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) -
             std::bit_cast<uint32_t>(0.5f);
  } else {
    magnitude += 0xfffu + ((magnitude >> 13) & 1u);
    result = (magnitude - ((127u - 15u) << 23)) >> 13;
  }
  return {static_cast<uint16_t>(result | sign)};
}

// Rounds to nearest, ties to even; beyond the largest value is infinity.
template <class T>
constexpr T FromFloat(float value) {
  if constexpr (std::is_same_v<T, Half>) {
    return ToHalf(value);
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    return ToBFloat16(value);
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
    case ElementType::kFloat32:
      break;
  }
  return visitor.template operator()<float>();
}

}  // namespace pagoda::kernels

#endif  // PAGODA_KERNELS_NUMERIC_H_
