// Sampling's passes over a whole vocabulary, compiled for the instructions of this machine.
#ifndef PAGODA_ENGINE_SAMPLING_SAMPLING_LOOPS_H_
#define PAGODA_ENGINE_SAMPLING_SAMPLING_LOOPS_H_

#include <cstdint>

#include "kernels/execution/isa.h"

namespace pagoda {

// The passes give one result per block of this number of scores. The last block can have fewer.
inline constexpr uint64_t kScoreBlock = 128;

// Plain loops that the compiler vectorises, compiled once for each set of instructions. All give
// the same bits, so that a draw is the same on every machine: sums have one order, and no product
// is fused with a sum. Pointers have any alignment. Scores are finite or -infinity, except that
// block_maxima also takes NaN.
struct SamplingLoops {
  // maxima[b] = the greatest score of block b, or NaN if one of its scores is NaN.
  void (*block_maxima)(const float* scores, uint64_t count, float* maxima);
  // weights[i] = exp((scores[i] - most) * inverse_temperature). No score is above `most`. Relative
  // errors are below 1e-14; results below 1e-307 are 0.
  void (*weights)(const float* scores, uint64_t count, double most, double inverse_temperature,
                  double* weights);
  // sums[b] = the sum of block b's weights.
  void (*block_weights)(const float* scores, uint64_t count, double most,
                        double inverse_temperature, double* sums);
};

// REQUIRES: the machine has the instructions.
const SamplingLoops& SamplingLoopsFor(kernels::cpu::Isa isa);

// The parts of SamplingLoopsFor, each compiled for its instructions.
extern const SamplingLoops kPortableSampling;
extern const SamplingLoops kAvx2Sampling;
extern const SamplingLoops kAvx512Sampling;

}  // namespace pagoda

#endif  // PAGODA_ENGINE_SAMPLING_SAMPLING_LOOPS_H_
