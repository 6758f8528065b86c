// The activations of an MLP, for the kernels of this folder.
#ifndef PAGODA_ENGINE_MODEL_CUDA_KERNELS_ACTIVATIONS_H_
#define PAGODA_ENGINE_MODEL_CUDA_KERNELS_ACTIVATIONS_H_

#include "engine/model/cuda/kernels/row_access.h"
#include "engine/model/cuda/kernels/row_kernels.h"

namespace pagoda::cuda {

inline constexpr float kLog2E = 1.4426950408889634f;

// x / (1 + exp(-x)); and gelu's approximation by tanh, in which
// 0.5 * (1 + tanh(u)) = 1 / (1 + exp(-2 u)).
PAGODA_DEVICE float SigmoidTimes(float x, float alpha) {
  return x / (1.0f + kernels::cuda::Exp2(-kLog2E * alpha * x));
}

PAGODA_DEVICE float GeluTanh(float x) {
  constexpr float kTwoRootTwoOverPi = 1.5957691216f;
  return x /
         (1.0f + kernels::cuda::Exp2(-kLog2E * kTwoRootTwoOverPi * (x + 0.044715f * x * x * x)));
}

template <GateKind kKind>
PAGODA_DEVICE float Gated(float alpha, float limit, float gate, float up) {
  if constexpr (kKind == GateKind::kSilu) {
    return SigmoidTimes(gate, 1.0f) * up;
  } else if constexpr (kKind == GateKind::kGeluTanh) {
    return GeluTanh(gate) * up;
  } else {
    gate = gate > limit ? limit : gate;
    up = up > limit ? limit : up;
    up = up < -limit ? -limit : up;
    return SigmoidTimes(gate, alpha) * (up + 1.0f);
  }
}

}  // namespace pagoda::cuda

#endif  // PAGODA_ENGINE_MODEL_CUDA_KERNELS_ACTIVATIONS_H_
