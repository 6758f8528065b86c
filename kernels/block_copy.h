// Copies blocks from slot to slot, in one pool or from pool to pool.
#ifndef PAGODA_KERNELS_BLOCK_COPY_H_
#define PAGODA_KERNELS_BLOCK_COPY_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/cpu/execution.h"

namespace pagoda::kernels {

struct SlotCopy {
  uint32_t source = 0;
  uint32_t target = 0;
};

// Two pools of one layout; they may be the same one, else they do not overlap. No slot is the
// target of two copies, or the target of one and the source of another, so that their order does
// not matter.
struct BlockCopyParams {
  const std::byte* source = nullptr;  // Slot 0 of the pool that is read.
  std::byte* target = nullptr;        // Slot 0 of the pool that is written.
  uint32_t source_slots = 0;
  uint32_t target_slots = 0;
  uint64_t slot_bytes = 0;  // From slot to slot, in both pools.
  absl::Span<const SlotCopy> copies;
};

// How a slot is cut into runs of tokens: num_runs (layers x K, V x heads) of run_bytes each, and in
// a run the tokens one after another.
struct TokenRuns {
  uint64_t num_runs = 0;
  uint64_t run_bytes = 0;
  uint64_t token_bytes = 0;
};

// InvalidArgument, naming the argument, for null pools, pools that overlap, slots of no bytes, runs
// that do not fit the slot, more tokens than a run has. Looks at no memory behind a pointer or
// span.
absl::Status CheckShapes(const BlockCopyParams& params);
absl::Status CheckShapes(const BlockCopyParams& params, const TokenRuns& runs, uint32_t num_tokens);

namespace cpu {
// Both are synchronous. Errors: InvalidArgument, naming the argument, for a null pool, pools that
// overlap, a slot outside its pool, a copy of a slot onto itself, copies that touch each other's
// slots, runs that do not fit the slot, more tokens than a run has; nothing is copied then. Cost
// beside the copies': sorting them.

// Copies whole slots. From 16 MiB in a call on, what is stored goes past the caches.
absl::Status CopyBlocks(const BlockCopyParams& params, const Execution& execution = {});
// Copies the first num_tokens tokens of each slot; the bytes of the others stay as they are.
absl::Status CopyBlockTokens(const BlockCopyParams& params, const TokenRuns& runs,
                             uint32_t num_tokens, const Execution& execution = {});
}  // namespace cpu

}  // namespace pagoda::kernels

#endif  // PAGODA_KERNELS_BLOCK_COPY_H_
