// The loops of sampling_loops.h. Each file that compiles them for its instructions includes this
// once. Everything is in an anonymous namespace and calls nothing else from another header: code
// compiled here for AVX-512 must not be linked into code for other machines.
#ifndef PAGODA_ENGINE_SAMPLING_SAMPLING_LOOPS_BODY_H_
#define PAGODA_ENGINE_SAMPLING_SAMPLING_LOOPS_BODY_H_

#include <cstdint>

#include "engine/sampling/sampling_loops.h"
#include "kernels/exp_of_negative.h"

namespace pagoda {
namespace {

// The numbers of partial results. The lanes of every register divide them.
constexpr uint64_t kFloatLanes = 16;
constexpr uint64_t kDoubleLanes = 8;

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

#endif  // PAGODA_ENGINE_SAMPLING_SAMPLING_LOOPS_BODY_H_
