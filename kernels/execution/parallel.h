// Divides a kernel's work into equal pieces, one per thread.
#ifndef PAGODA_KERNELS_EXECUTION_PARALLEL_H_
#define PAGODA_KERNELS_EXECUTION_PARALLEL_H_

#include <algorithm>
#include <cstdint>

#include "kernels/execution/execution.h"

namespace pagoda::kernels::cpu {

// The least bytes for which waking a thread is worthwhile: some microseconds of copying.
inline constexpr uint64_t kLeastPieceBytes = 64 << 10;

// Calls work(begin, end) for pieces of the `count` units of unit_bytes each. Little work runs on
// the caller's thread only.
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

#endif  // PAGODA_KERNELS_EXECUTION_PARALLEL_H_
