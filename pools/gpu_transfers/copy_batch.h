// Turns copy orders into the driver's copies. For the sources of this folder.
#ifndef PAGODA_POOLS_GPU_TRANSFERS_COPY_BATCH_H_
#define PAGODA_POOLS_GPU_TRANSFERS_COPY_BATCH_H_

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "pools/cuda/driver.h"
#include "pools/order.h"
#include "pools/pool.h"

namespace pagoda::cuda {

// The direction of a stream's copies.
enum class Lane : uint8_t { kUp, kDown, kWithin };
inline constexpr size_t kNumLanes = 3;
// How several copies reach the driver: one call per copy, or one call for all if the driver has it.
enum class DriverCalls : uint8_t { kOneByOne, kBatched };

// Collects orders of one lane that do not touch each other's slots, and gives their copies to a
// stream. Slots that are neighbours on both sides become one copy. A copy never crosses the end of
// a chunk of pinned memory. Thread-compatible.
class CopyBatch {
 public:
  explicit CopyBatch(Lane lane) : lane_(lane) {}

  // Adds the order's copies in every pool of its window; returns their bytes. Errors:
  // UNKNOWN_WINDOW, INVALID_ARGUMENT for an impossible order; then nothing is added.
  absl::StatusOr<uint64_t> Add(const Order& order, const PoolSet& pools);

  // Asynchronous. REQUIRES: the context is current on this thread. Errors: those of the driver;
  // some of the copies may be running then.
  absl::Status Issue(const Driver& driver, CUstream stream, DriverCalls calls);

 private:
  // Whole slots of one pool, contiguous on both sides.
  struct Range {
    uint32_t window = 0;
    uint32_t pool = 0;
    uint64_t source = 0;
    uint64_t target = 0;
    uint64_t bytes = 0;
    uint64_t host_base = 0;   // The address of the pool on the host.
    uint64_t host_chunk = 0;  // The size of a pinned chunk, counted from host_base. 0: not pinned.
  };
  // The first tokens of a slot: rows of first.bytes, pitch_bytes apart.
  struct Rows {
    Range first;  // first.bytes: the bytes of one row.
    uint64_t rows = 0;
    uint64_t pitch_bytes = 0;
  };

  void Join();
  // Cuts each range at the ends of pinned chunks.
  std::vector<Range> Pieces(const std::vector<Range>& ranges) const;
  uint64_t HostAddress(const Range& range) const {
    return lane_ == Lane::kUp ? range.source : range.target;
  }
  bool AllPinned() const;
  absl::Status IssueAll(const Driver& driver, CUstream stream, const std::vector<Range>& pieces,
                        DriverCalls calls) const;
  absl::Status IssueOne(const Driver& driver, CUstream stream, const Range& piece) const;
  absl::Status IssueRows(const Driver& driver, CUstream stream, const Rows& rows) const;

  const Lane lane_;
  std::vector<Range> ranges_;
  std::vector<Rows> rows_;
};

}  // namespace pagoda::cuda

#endif  // PAGODA_POOLS_GPU_TRANSFERS_COPY_BATCH_H_
