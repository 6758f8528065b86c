// Where one of the CPU's kernels runs.
#ifndef PAGODA_KERNELS_CPU_EXECUTION_H_
#define PAGODA_KERNELS_CPU_EXECUTION_H_

#include "kernels/cpu/isa.h"
#include "kernels/cpu/thread_pool.h"

namespace pagoda::kernels::cpu {

struct Execution {
  ThreadPool* threads = nullptr;        // Null: on the caller's thread alone.
  Isa isa = FastestIsa();               // At most BestIsa().
  Isa decode_isa = FastestDecodeIsa();  // For groups of few heads; at most `isa` counts.
  FetchAhead fetch = FastestFetchAhead();
};

}  // namespace pagoda::kernels::cpu

#endif  // PAGODA_KERNELS_CPU_EXECUTION_H_
