// Cuts a kernel's work in equal pieces, one for each thread.
#ifndef PAGODA_KERNELS_CPU_PARALLEL_H_
#define PAGODA_KERNELS_CPU_PARALLEL_H_

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/execution.h"

namespace pagoda::kernels::cpu {

// Below this a thread's piece is not worth waking it: some microseconds of copying.
inline constexpr uint64_t kLeastPieceBytes = 64 << 10;

// Calls work(begin, end) for pieces of the `count` units, which are of unit_bytes each. On the
// caller's thread alone where there is little to do.
template <class Work>
void InPieces(const Execution& execution, uint64_t count, uint64_t unit_bytes, const Work& work) {
  if (count == 0) return;
  const uint64_t most = std::clamp<uint64_t>(count * unit_bytes / kLeastPieceBytes, 1, count);
  const uint64_t pieces =
      execution.threads == nullptr ? 1 : std::min<uint64_t>(execution.threads->num_threads(), most);
  if (pieces == 1) {
    work(uint64_t{0}, count);
    return;
  }
  execution.threads->Run([&](uint32_t worker) {
    if (worker < pieces) work(count * worker / pieces, count * (worker + 1) / pieces);
  });
}

}  // namespace pagoda::kernels::cpu

#endif  // PAGODA_KERNELS_CPU_PARALLEL_H_
