// Which instructions the CPU's kernels use.
#ifndef PAGODA_KERNELS_CPU_ISA_H_
#define PAGODA_KERNELS_CPU_ISA_H_

#include <cstdint>
#include <string_view>

namespace pagoda::kernels::cpu {

// In ascending order: a machine that has one has those before it.
enum class Isa : uint8_t {
  kPortable,    // What the compiler makes of C++ for any x86-64-v2.
  kAvx2,        // With FMA and F16C.
  kAvx512,      // F, BW, DQ, VL.
  kAvx512Bf16,  // And the dot product of bf16 pairs.
};

std::string_view IsaName(Isa isa);  // "avx512_bf16"

// The last one that this machine and its system have; found once.
Isa BestIsa();

// The one whose attention is fastest on this machine: BestIsa(), but for processors whose dot
// product of bf16 pairs is slower than the two fused multiplications of fp32 that do the same.
// Those are Intel's: one every second cycle was measured, beside two fused multiplications a cycle.
Isa FastestIsa();

// The one for a decode whose groups have at most kFewHeads heads, which waits for memory more than
// for arithmetic: on Zen 5 kAvx512, whose slower products keep more fetches on their way
// (kernels/README.md), elsewhere FastestIsa().
Isa FastestDecodeIsa();
inline constexpr uint32_t kFewHeads = 4;

// How decode fetches K and V ahead of its work.
enum class FetchAhead : uint8_t {
  kNear,  // The next tile of 32 tokens, into the first cache.
  kFar,   // 128 tokens ahead in four streams, into the second cache.
};

std::string_view FetchAheadName(FetchAhead ahead);  // "near"

// kNear on AMD's Zen 5, where a core reads random blocks a third faster that way; kFar elsewhere,
// measured on Intel's Sapphire Rapids and later, and on Zen 4.
FetchAhead FastestFetchAhead();

}  // namespace pagoda::kernels::cpu

#endif  // PAGODA_KERNELS_CPU_ISA_H_
