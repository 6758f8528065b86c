// Attention's tiles with registers of 16 numbers. This file alone is compiled for them
// (CMakeLists.txt).
#include "kernels/cpu/simd_avx512.h"
// Behind the registers that it is written for.
#include "kernels/cpu/simd_attention.h"

namespace pagoda::kernels::cpu {

const TileKernels kAvx512Kernels[5] = {
    FloatKernels<ElementType::kFloat32>(),    FloatKernels<ElementType::kFloat16>(),
    FloatKernels<ElementType::kBFloat16>(),   FloatKernels<ElementType::kFloat8E4M3>(),
    FloatKernels<ElementType::kFloat8E5M2>(),
};

}  // namespace pagoda::kernels::cpu
