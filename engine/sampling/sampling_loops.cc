#include "engine/sampling/sampling_loops.h"

namespace pagoda {

const SamplingLoops& SamplingLoopsFor(kernels::cpu::Isa isa) {
  switch (isa) {
    case kernels::cpu::Isa::kAvx512Bf16:
    case kernels::cpu::Isa::kAvx512:
      return kAvx512Sampling;
    case kernels::cpu::Isa::kAvx2:
      return kAvx2Sampling;
    case kernels::cpu::Isa::kPortable:
      break;
  }
  return kPortableSampling;
}

}  // namespace pagoda
