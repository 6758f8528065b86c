// The loops of sampling_loops.h. Each file that compiles them for its instructions includes this
// once. Everything is in an anonymous namespace and calls nothing from another header: code
// compiled here for AVX-512 must not be linked into code for other machines.
#ifndef PAGODA_ENGINE_SCHEDULE_SAMPLING_LOOPS_BODY_H_
#define PAGODA_ENGINE_SCHEDULE_SAMPLING_LOOPS_BODY_H_

#include <cstdint>

#include "engine/schedule/sampling_loops.h"

namespace pagoda {
namespace {

// The numbers of partial results. The lanes of every register divide them.
constexpr uint64_t kFloatLanes = 16;
constexpr uint64_t kDoubleLanes = 8;

// 2^n * exp(r) with x = n * ln 2 + r and |r| <= ln 2 / 2, exp(r) by its series to r^13 / 13!.
inline double ExpOfNegative(double x) {
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
  uint64_t bits;
  __builtin_memcpy(&bits, &shifted, sizeof(bits));
  bits = (bits + 1023) << 52;
  double power;
  __builtin_memcpy(&power, &bits, sizeof(power));
  return x < kLeast ? 0.0 : p * power;
}

inline float Greater(float a, float b) { return a > b ? a : b; }

// The bits of a number's magnitude. They sort like magnitudes, and infinity's are below any NaN's.
inline int32_t Magnitude(float a) {
  int32_t bits;
  __builtin_memcpy(&bits, &a, sizeof(bits));
  return bits & 0x7fffffff;
}
constexpr int32_t kInfinity = 0x7f800000;

inline int32_t Greater(int32_t a, int32_t b) { return a > b ? a : b; }

// A maximum of floats would miss NaN, because comparisons with NaN are false. So the magnitudes are
// compared as integers too.
void BlockMaxima(const float* scores, uint64_t count, float* maxima) {
  for (; count >= kScoreBlock; count -= kScoreBlock, scores += kScoreBlock) {
    float lanes[kFloatLanes];
    int32_t magnitudes[kFloatLanes];
    for (uint64_t l = 0; l < kFloatLanes; ++l) lanes[l] = scores[l];
    for (uint64_t l = 0; l < kFloatLanes; ++l) magnitudes[l] = Magnitude(scores[l]);
    for (uint64_t i = kFloatLanes; i < kScoreBlock; i += kFloatLanes) {
      for (uint64_t l = 0; l < kFloatLanes; ++l) {
        lanes[l] = Greater(scores[i + l], lanes[l]);
        magnitudes[l] = Greater(Magnitude(scores[i + l]), magnitudes[l]);
      }
    }
    for (uint64_t step = kFloatLanes / 2; step > 0; step /= 2) {
      for (uint64_t l = 0; l < step; ++l) lanes[l] = Greater(lanes[l], lanes[l + step]);
      for (uint64_t l = 0; l < step; ++l) {
        magnitudes[l] = Greater(magnitudes[l], magnitudes[l + step]);
      }
    }
    *maxima++ = magnitudes[0] > kInfinity ? __builtin_nanf("") : lanes[0];
  }
  if (count == 0) return;
  float most = scores[0];
  int32_t magnitude = Magnitude(most);
  for (uint64_t i = 1; i < count; ++i) {
    most = Greater(scores[i], most);
    magnitude = Greater(Magnitude(scores[i]), magnitude);
  }
  *maxima = magnitude > kInfinity ? __builtin_nanf("") : most;
}

void Weights(const float* scores, uint64_t count, double most, double inverse_temperature,
             double* weights) {
  for (uint64_t i = 0; i < count; ++i) {
    weights[i] = ExpOfNegative((static_cast<double>(scores[i]) - most) * inverse_temperature);
  }
}

void BlockWeights(const float* scores, uint64_t count, double most, double inverse_temperature,
                  double* sums) {
  for (; count > 0; scores += kScoreBlock) {
    const uint64_t size = count < kScoreBlock ? count : kScoreBlock;
    count -= size;
    double weights[kScoreBlock];
    Weights(scores, size, most, inverse_temperature, weights);
    for (uint64_t i = size; i < kScoreBlock; ++i) weights[i] = 0;
    double lanes[kDoubleLanes] = {};
    for (uint64_t i = 0; i < kScoreBlock; i += kDoubleLanes) {
      for (uint64_t l = 0; l < kDoubleLanes; ++l) lanes[l] += weights[i + l];
    }
    for (uint64_t step = kDoubleLanes / 2; step > 0; step /= 2) {
      for (uint64_t l = 0; l < step; ++l) lanes[l] += lanes[l + step];
    }
    *sums++ = lanes[0];
  }
}

constexpr SamplingLoops kSamplingLoops = {
    .block_maxima = BlockMaxima, .weights = Weights, .block_weights = BlockWeights};

}  // namespace
}  // namespace pagoda

#endif  // PAGODA_ENGINE_SCHEDULE_SAMPLING_LOOPS_BODY_H_
