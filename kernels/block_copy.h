// Copies blocks between slots of one pool or of two pools.
#ifndef PAGODA_KERNELS_BLOCK_COPY_H_
#define PAGODA_KERNELS_BLOCK_COPY_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/execution/execution.h"

namespace pagoda::kernels {

struct SlotCopy {
  uint32_t source = 0;
  uint32_t target = 0;
};

// Two pools of one layout. They are the same pool, or do not overlap. The order of copies does not
// matter: no slot is the target of two copies, or the target of one and the source of another.
struct BlockCopyParams {
  const std::byte* source = nullptr;  // Slot 0 of the pool to read.
  std::byte* target = nullptr;        // Slot 0 of the pool to write.
  uint32_t source_slots = 0;
  uint32_t target_slots = 0;
  uint64_t slot_bytes = 0;  // The distance between slots, in both pools.
  absl::Span<const SlotCopy> copies;
};

// The runs of tokens in a slot: num_runs runs (layers x K, V x heads) of run_bytes bytes. A run
// holds its tokens contiguously.
struct TokenRuns {
  uint64_t num_runs = 0;
  uint64_t run_bytes = 0;
  uint64_t token_bytes = 0;
};

// Errors: InvalidArgument, naming the argument, for null pools, overlapping pools, slots of 0
// bytes, runs that do not fit the slot, and more tokens than a run has. Reads no memory behind a
// pointer or span.
absl::Status CheckShapes(const BlockCopyParams& params);
absl::Status CheckShapes(const BlockCopyParams& params, const TokenRuns& runs, uint32_t num_tokens);

namespace cpu {
// Both functions are synchronous. Errors: InvalidArgument, naming the argument, for a null pool,
// overlapping pools, a slot outside its pool, a copy of a slot onto itself, copies that touch each
// other's slots, runs that do not fit the slot, and more tokens than a run has; then nothing is
// copied. Cost: the copies, and sorting them.

// Copies whole slots. A call with at least 16 MiB uses stores that bypass the caches.
absl::Status CopyBlocks(const BlockCopyParams& params, const Execution& execution = {});
// Copies the first num_tokens tokens of each slot. The bytes of other tokens do not change.
absl::Status CopyBlockTokens(const BlockCopyParams& params, const TokenRuns& runs,
                             uint32_t num_tokens, const Execution& execution = {});
}  // namespace cpu

}  // namespace pagoda::kernels

#endif  // PAGODA_KERNELS_BLOCK_COPY_H_
