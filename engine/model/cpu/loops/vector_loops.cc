#include "engine/model/cpu/loops/vector_loops.h"

namespace pagoda {

const VectorLoops& VectorLoopsFor(kernels::cpu::Isa isa) {
  switch (isa) {
    case kernels::cpu::Isa::kAvx512Bf16:
    case kernels::cpu::Isa::kAvx512:
      return kAvx512Loops;
    case kernels::cpu::Isa::kAvx2:
      return kAvx2Loops;
    case kernels::cpu::Isa::kPortable:
      break;
  }
  return kPortableLoops;
}

}  // namespace pagoda
