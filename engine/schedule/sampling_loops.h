// Sampling's passes over a whole vocabulary, for the registers of this machine.
#ifndef PAGODA_ENGINE_SCHEDULE_SAMPLING_LOOPS_H_
#define PAGODA_ENGINE_SCHEDULE_SAMPLING_LOOPS_H_

#include <cstdint>

#include "kernels/cpu/isa.h"

namespace pagoda {

// The passes' results are for blocks of so many scores; the last one may have fewer.
inline constexpr uint64_t kScoreBlock = 128;

// Plain loops that the compiler vectorises, compiled once for each set of instructions. All give
// the same bits: sums are in the same order, and no product is fused with a sum, so that a draw is
// the same on every machine. Pointers have any alignment.
// A score is finite or -infinity, but for block_maxima.
struct SamplingLoops {
  // maxima[b] = the greatest score of block b, or NaN where one of them is NaN.
  void (*block_maxima)(const float* scores, uint64_t count, float* maxima);
  // weights[i] = exp((scores[i] - most) * inverse_temperature), where no score is above `most`;
  // relative errors below 1e-14, and 0 where less than 1e-307 would be left.
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

#endif  // PAGODA_ENGINE_SCHEDULE_SAMPLING_LOOPS_H_
