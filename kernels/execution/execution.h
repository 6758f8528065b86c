// The threads and instructions that a CPU kernel uses.
#ifndef PAGODA_KERNELS_EXECUTION_EXECUTION_H_
#define PAGODA_KERNELS_EXECUTION_EXECUTION_H_

#include "kernels/execution/isa.h"
#include "kernels/execution/thread_pool.h"

namespace pagoda::kernels::cpu {

struct Execution {
  ThreadPool* threads = nullptr;  // Null: only the caller's thread.
  Isa isa = FastestIsa();         // At most BestIsa().
  // For decode over pools of bf16 with at most kFewHeads query heads per KV head. Has an effect
  // only between kAvx2 and `isa`.
  Isa decode_isa = FastestDecodeIsa();
  FetchAhead fetch = FastestFetchAhead();
  // For decode with more than kFewHeads query heads per KV head, over pools of bf16 and of 8 bits,
  // where `isa` has AVX-512. Queries and weights are rounded to bf16 then. kAmx REQUIRES:
  // BestMatrixUnit() is kAmx.
  MatrixUnit matrices = MatrixUnit::kNone;
};

}  // namespace pagoda::kernels::cpu

#endif  // PAGODA_KERNELS_EXECUTION_EXECUTION_H_
