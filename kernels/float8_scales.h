// Scales that fit the numbers of a float8 block: which scale a block, part (K or V) and head gets,
// and what happens to its tokens when a later one needs a larger scale.
//
// 1. A scale is a power of two. Multiplication by it is exact, and so is the division of numbers
// that
//    do not become subnormal. A scale is needed for a token if it is the smallest with which no
//    number of the token saturates. Against the exact quotient (largest number / largest float8)
//    nothing is lost: numbers of 8 bits have the same relative error at every exponent
//    (kernels/BENCHMARKS.md).
// 2. A block's scale is kHeadroom times the one that its first token needs, or the largest that a
//    later token needs, if that is larger. So it does not depend on how tokens are divided into
//    calls.
// 3. A write of a block's first token starts the block: its old scales and tokens do not count. A
//    write of later tokens keeps the block's scales or raises them. Then the earlier tokens are
//    divided by the quotient. Only those that become subnormal are rounded once more.
// 4. So the tokens behind a token change its numbers only if one of them is more than kHeadroom
//    times as large as the block's first token, and then by at most the smallest positive float8
//    times the scale: in e4m3, 1/229,376 of the largest number that the new scale holds.
// 5. NaN and infinity do not count. In the pool NaN stays NaN, and infinity saturates.
//
// Tokens are written in their order; a rejected draft token can leave a larger scale than needed.
#ifndef PAGODA_KERNELS_FLOAT8_SCALES_H_
#define PAGODA_KERNELS_FLOAT8_SCALES_H_

#include <bit>
#include <cstdint>

#include "kernels/numeric.h"
#include "kernels/types.h"

namespace pagoda::kernels {

// The scale of a block of zeros. No fitted scale is smaller, so smaller numbers lose digits.
inline constexpr float kSmallestFittedScale = 0x1p-64f;

// How much larger than the first token the later tokens of a block can be without a raise of its
// scale. It costs nothing but range: in e4m3, numbers below 1/448 of the first token's largest
// become subnormal, and their error is at most 1/7,168 of it.
inline constexpr float kHeadroom = 32.0f;

// The bits of |value|, or 0 if it is infinite or NaN. They ascend with |value|.
constexpr uint32_t FiniteMagnitude(float value) {
  const uint32_t magnitude = std::bit_cast<uint32_t>(value) & 0x7fffffffu;
  return magnitude < 0x7f800000u ? magnitude : 0;
}

// The smallest power of two, at least kSmallestFittedScale, by which a number of this magnitude can
// be divided without saturating. REQUIRES: a type of 8 bits; the bits of a finite positive number.
constexpr float FittedScale(ElementType type, uint32_t magnitude) {
  // The largest numbers are 1.75 * 2^8 and 1.75 * 2^15.
  const uint32_t largest_exponent = type == ElementType::kFloat8E4M3 ? 8 : 15;
  constexpr uint32_t kLargestFraction = 0x600000;
  constexpr uint32_t kSmallest = std::bit_cast<uint32_t>(kSmallestFittedScale) >> 23;
  const uint32_t needed = (magnitude >> 23) + ((magnitude & 0x7fffffu) > kLargestFraction ? 1 : 0);
  const uint32_t exponent =
      needed > kSmallest + largest_exponent ? needed - largest_exponent : kSmallest;
  return std::bit_cast<float>(exponent << 23);
}

// The scale of a block whose first token has this largest magnitude. REQUIRES: as FittedScale.
constexpr float StartingScale(ElementType type, uint32_t magnitude) {
  return kHeadroom * FittedScale(type, magnitude);
}

// Whether a block's scale can be kept or raised. Others are replaced, and the block's earlier
// tokens, which had no meaning, keep their bytes.
constexpr bool IsScale(float scale) {
  const uint32_t bits = std::bit_cast<uint32_t>(scale);
  return bits > 0 && bits < 0x7f800000u;
}

// The element for the same number after its block's scale was multiplied by `factor`.
template <class T>
constexpr T Rescaled(T element, float factor) {
  return FromFloat<T>(ToFloat(element) / factor);
}

}  // namespace pagoda::kernels

#endif  // PAGODA_KERNELS_FLOAT8_SCALES_H_
