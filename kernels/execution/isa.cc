#include "kernels/execution/isa.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

namespace pagoda::kernels::cpu {
namespace {

// libgcc checks the processor, and whether the system saves its registers.
Isa FindIsa() {
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
      !__builtin_cpu_supports("f16c")) {
    return Isa::kPortable;
  }
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl")) {
    return Isa::kAvx2;
  }
  return __builtin_cpu_supports("avx512bf16") ? Isa::kAvx512Bf16 : Isa::kAvx512;
}

// Checks the family and its extension, 0xf and 0xb (AMD64 Architecture Programmer's Manual, volume
// 3, CPUID function 1).
bool IsZen5() {
  __builtin_cpu_init();
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (!__builtin_cpu_is("amd") || __get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0) return false;
  return (eax >> 8 & 0xf) == 0xf && (eax >> 20 & 0xff) == 0xb;
}

bool AskForAmx() {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (BestIsa() != Isa::kAvx512Bf16 || !HasVbmi() ||
      __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) {
    return false;
  }
  // CPUID leaf 7 (Intel's manual, volume 2): AMX-BF16 and AMX-TILE.
  if ((edx >> 22 & 1) == 0 || (edx >> 24 & 1) == 0) return false;
  // Linux (Documentation/arch/x86/xstate.rst): a process asks before it uses the large registers.
  constexpr long kRequestPermission = 0x1023;
  constexpr long kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace

MatrixUnit BestMatrixUnit() {
  static const MatrixUnit unit = AskForAmx() ? MatrixUnit::kAmx : MatrixUnit::kNone;
  return unit;
}

std::string_view IsaName(Isa isa) {
  switch (isa) {
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kAvx512Bf16:
      return "avx512_bf16";
    case Isa::kPortable:
      break;
  }
  return "portable";
}

Isa BestIsa() {
  static const Isa isa = FindIsa();
  return isa;
}

bool HasVbmi() {
  static const bool has = BestIsa() >= Isa::kAvx512 && __builtin_cpu_supports("avx512vbmi") != 0;
  return has;
}

Isa FastestIsa() {
  static const Isa isa =
      BestIsa() == Isa::kAvx512Bf16 && __builtin_cpu_is("intel") ? Isa::kAvx512 : BestIsa();
  return isa;
}

std::string_view FetchAheadName(FetchAhead ahead) {
  return ahead == FetchAhead::kNear ? "near" : "far";
}

Isa FastestDecodeIsa() {
  static const Isa isa = IsZen5() ? std::min(FastestIsa(), Isa::kAvx512) : FastestIsa();
  return isa;
}

FetchAhead FastestFetchAhead() {
  static const FetchAhead ahead = IsZen5() ? FetchAhead::kNear : FetchAhead::kFar;
  return ahead;
}

}  // namespace pagoda::kernels::cpu
