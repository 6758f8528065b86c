// Takes back what an earlier run of the process had cached and learned (warm_restart.md).
#ifndef PAGODA_MANAGER_WARM_RESTART_H_
#define PAGODA_MANAGER_WARM_RESTART_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "manager/policy/eviction_policy.h"
#include "manager/sequences/operation_runner.h"
#include "manager/window/window_set.h"
#include "manager/words/recovered_block.h"

namespace pagoda {

// Thread-compatible. All but Learned() comes before anything else happens in the cache.
class WarmRestart {
 public:
  // All references outlive it. `policies`: for each window one of its policies; null if the window
  // has no blocks.
  WarmRestart(const WindowSet& windows, const std::vector<EvictionPolicy*>& policies,
              OperationRunner& runner)
      : windows_(windows), policies_(policies), runner_(runner) {}
  WarmRestart(const WarmRestart&) = delete;
  WarmRestart& operator=(const WarmRestart&) = delete;

  // Caches blocks of an earlier run, whose bytes are in their slots; all or nothing. Returns how
  // many. Errors: INVALID_ARGUMENT (windows that the cache does not have, or blocks that do not fit
  // together).
  absl::StatusOr<uint64_t> Restore(absl::Span<const RecoveredWindow> windows, absl::Time now);
  // Takes back the content that was found in the files of a disk tier: blocks, and copies of blocks
  // that Restore() took back. Drops the rest. Returns the number of copies. REQUIRES: nothing but
  // Restore() has happened yet. Errors: INVALID_ARGUMENT (no disk tier, or windows, slots or
  // parents that do not fit). After an error the cache is unusable: discard it.
  absl::StatusOr<uint64_t> RestoreDisk(absl::Span<const RecoveredWindow> recovered, absl::Time now);
  // What the eviction policies of a window have learned from requests, for another run; empty: they
  // learn nothing. `window_index`: an index into info().windows. Cost: a few microseconds.
  std::vector<std::byte> Learned(uint32_t window_index) const;
  // Takes over what policies of the same name had learned. REQUIRES: nothing has happened yet, not
  // even Restore(). Errors: those of EvictionPolicy::RestoreLearned.
  absl::Status RestoreLearned(uint32_t window_index, absl::Span<const std::byte> learned);

  // The blocks that came back from memory, and the copies from a disk.
  uint64_t recovered_blocks() const { return recovered_blocks_; }

 private:
  const WindowSet& windows_;
  const std::vector<EvictionPolicy*>& policies_;
  OperationRunner& runner_;
  uint64_t recovered_blocks_ = 0;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_WARM_RESTART_H_
