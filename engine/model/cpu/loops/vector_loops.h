// The inner loops of the small layers over rows of fp32, compiled for the instructions of this
// machine.
#ifndef PAGODA_ENGINE_MODEL_CPU_LOOPS_VECTOR_LOOPS_H_
#define PAGODA_ENGINE_MODEL_CPU_LOOPS_VECTOR_LOOPS_H_

#include <cstdint>

#include "kernels/execution/isa.h"

namespace pagoda {

// Plain loops that the compiler vectorises, compiled once for each set of instructions. exp and
// tanh are polynomials: relative errors are below 3e-7, NaN stays NaN. All pointers are to `count`
// elements, of any alignment.
struct VectorLoops {
  // output = input / sqrt(mean(input^2) + eps) * weights; `output` may be `input`.
  void (*rms_norm)(const float* input, const float* weights, uint64_t count, float eps,
                   float* output);
  // Rotates element i of the first half of `head` with element i of its second half, for each i
  // below half_count, by the angle with these cosines and sines.
  void (*rotate)(float* head, const float* cosines, const float* sines, uint64_t half_count);
  // The same for the elements 2i and 2i + 1 of `head`.
  void (*rotate_neighbours)(float* head, const float* cosines, const float* sines,
                            uint64_t half_count);
  // output = (input - mean) / sqrt(variance + eps) * weights + bias; `output` may be `input`.
  void (*layer_norm)(const float* input, const float* weights, const float* bias, uint64_t count,
                     float eps, float* output);
  // output = gate / (1 + exp(-gate)) * up
  void (*gate_silu)(const float* gate, const float* up, uint64_t count, float* output);
  // The same with gelu's approximation by tanh:
  // gate * 0.5 * (1 + tanh(sqrt(2 / pi) * (gate + 0.044715 * gate^3))) * up
  void (*gate_gelu_tanh)(const float* gate, const float* up, uint64_t count, float* output);
  // With g = min(gate, limit) and u = up between -limit and limit:
  // output = (u + 1) * g / (1 + exp(-alpha * g))
  void (*gate_clamped_silu)(const float* gate, const float* up, uint64_t count, float alpha,
                            float limit, float* output);
  // values = gelu's approximation by tanh
  void (*gelu_tanh)(uint64_t count, float* values);
  // sum += factor * addend
  void (*add_scaled)(float factor, const float* addend, uint64_t count, float* sum);
  // sum += addend
  void (*add)(const float* addend, uint64_t count, float* sum);
  // output = input + bias
  void (*add_bias)(const float* input, const float* bias, uint64_t count, float* output);
  // values *= factor
  void (*scale)(float factor, uint64_t count, float* values);
  // values = cap * tanh(values / cap)
  void (*soft_cap)(float cap, uint64_t count, float* values);
};

// REQUIRES: the machine has the instructions.
const VectorLoops& VectorLoopsFor(kernels::cpu::Isa isa);

// The parts of VectorLoopsFor, each compiled for its instructions.
extern const VectorLoops kPortableLoops;
extern const VectorLoops kAvx2Loops;
extern const VectorLoops kAvx512Loops;

}  // namespace pagoda

#endif  // PAGODA_ENGINE_MODEL_CPU_LOOPS_VECTOR_LOOPS_H_
