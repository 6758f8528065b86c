// The weight of a draw, with the same bits on every processor and GPU. Everything is in an
// anonymous namespace and calls no function: files that are compiled for different instructions
// include this. They must not fuse products with sums.
#ifndef PAGODA_KERNELS_EXP_OF_NEGATIVE_H_
#define PAGODA_KERNELS_EXP_OF_NEGATIVE_H_

#include <cstdint>

namespace pagoda {
namespace {

// exp(x) for x <= 0; 0 below -707. Relative errors are below 1e-14.
// 2^n * exp(r) with x = n * ln 2 + r and |r| <= ln 2 / 2, exp(r) by its series to r^13 / 13!.
constexpr double ExpOfNegative(double x) {
  constexpr double kLeast = -707.0;  // Below this the result is 0.
  const double clamped = x < kLeast ? kLeast : x;
  // After adding this, the last bits of the sum are the number's integer part.
  constexpr double kRounder = 6755399441055744.0;  // 1.5 * 2^52
  const double shifted = clamped * 1.4426950408889634 + kRounder;
  const double n = shifted - kRounder;
  // ln 2 in two parts. The first has few enough digits for an exact product (Cephes).
  double r = clamped - n * 6.93145751953125e-1;
  r = r - n * 1.42860682030941723212e-6;
  double p = 1.0 / 6227020800.0;
  p = p * r + 1.0 / 479001600.0;
  p = p * r + 1.0 / 39916800.0;
  p = p * r + 1.0 / 3628800.0;
  p = p * r + 1.0 / 362880.0;
  p = p * r + 1.0 / 40320.0;
  p = p * r + 1.0 / 5040.0;
  p = p * r + 1.0 / 720.0;
  p = p * r + 1.0 / 120.0;
  p = p * r + 1.0 / 24.0;
  p = p * r + 1.0 / 6.0;
  p = p * r + 0.5;
  p = p * r + 1.0;
  p = p * r + 1.0;
  const uint64_t bits = (__builtin_bit_cast(uint64_t, shifted) + 1023) << 52;
  return x < kLeast ? 0.0 : p * __builtin_bit_cast(double, bits);
}

}  // namespace
}  // namespace pagoda

#endif  // PAGODA_KERNELS_EXP_OF_NEGATIVE_H_
