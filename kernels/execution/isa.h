// The instruction sets of the CPU kernels.
#ifndef PAGODA_KERNELS_EXECUTION_ISA_H_
#define PAGODA_KERNELS_EXECUTION_ISA_H_

#include <cstdint>
#include <string_view>

namespace pagoda::kernels::cpu {

// In ascending order: a machine that has one also has all before it.
enum class Isa : uint8_t {
  kPortable,    // The compiler's code for any x86-64-v2.
  kAvx2,        // With FMA and F16C.
  kAvx512,      // F, BW, DQ, VL.
  kAvx512Bf16,  // And the dot product of bf16 pairs.
};

std::string_view IsaName(Isa isa);  // "avx512_bf16"

// The last one that this machine and its system have. Detected once.
Isa BestIsa();

// Whether this machine has AVX-512 VBMI, which looks bytes up in a table. All processors with
// AVX-512 have it since Ice Lake and Zen 4. Detected once.
bool HasVbmi();

// The one whose attention is fastest on this machine. This is BestIsa(), except on processors whose
// dot product of bf16 pairs is slower than two fused multiplications of fp32, which do the same
// work. These are Intel's: measured were one dot product every second cycle, and two fused
// multiplications per cycle.
Isa FastestIsa();

// The one for a decode of bf16 with at most kFewHeads heads per group, if K and V come from memory.
// On Zen 5 it is kAvx512, which is 8 % faster than the dot products there; from the caches it takes
// 1.7 times as long (kernels/README.md). On other processors it is FastestIsa().
Isa FastestDecodeIsa();
inline constexpr uint32_t kFewHeads = 4;

// Instructions that multiply matrices in registers of their own.
enum class MatrixUnit : uint8_t { kNone, kAmx };

// kAmx if the processor has AMX for bf16 and the system lets this process use it. The first call
// asks the system, on behalf of all threads.
MatrixUnit BestMatrixUnit();

// How decode prefetches K and V.
enum class FetchAhead : uint8_t {
  kNear,  // The next tile of 32 tokens, into the first cache.
  kFar,   // 128 tokens ahead in four streams, into the second cache.
};

std::string_view FetchAheadName(FetchAhead ahead);  // "near"

// kNear on AMD's Zen 5 and its family, on which decode is a sixth faster with it. kFar on other
// processors, measured on an Intel Xeon with AVX-512.
FetchAhead FastestFetchAhead();

}  // namespace pagoda::kernels::cpu

#endif  // PAGODA_KERNELS_EXECUTION_ISA_H_
