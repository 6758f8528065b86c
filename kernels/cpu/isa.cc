#include "kernels/cpu/isa.h"

namespace pagoda::kernels::cpu {
namespace {

// libgcc looks at the processor and at what the system saves of its registers.
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

}  // namespace

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

Isa FastestIsa() {
  static const Isa isa =
      BestIsa() == Isa::kAvx512Bf16 && __builtin_cpu_is("intel") ? Isa::kAvx512 : BestIsa();
  return isa;
}

}  // namespace pagoda::kernels::cpu
