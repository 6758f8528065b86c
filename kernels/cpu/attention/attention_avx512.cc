// Attention's tiles with registers of 16 numbers. Only this file is compiled for them
// (CMakeLists.txt).
#include "kernels/cpu/vectors/simd_avx512.h"
// Must follow the header of its registers.
#include "kernels/cpu/attention/simd_attention.h"

namespace pagoda::kernels::cpu {

const TileKernels kAvx512Kernels[5] = {
    FloatKernels<ElementType::kFloat32>(),    FloatKernels<ElementType::kFloat16>(),
    FloatKernels<ElementType::kBFloat16>(),   FloatKernels<ElementType::kFloat8E4M3>(),
    FloatKernels<ElementType::kFloat8E5M2>(),
};

}  // namespace pagoda::kernels::cpu
