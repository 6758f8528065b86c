// The driver's copies that some orders come to. For the sources of this folder.
#ifndef PAGODA_POOLS_CUDA_COPY_BATCH_H_
#define PAGODA_POOLS_CUDA_COPY_BATCH_H_

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "pools/copy_order.h"
#include "pools/cuda/driver.h"
#include "pools/pool.h"

namespace pagoda::cuda {

// Between which memories a stream copies.
enum class Lane : uint8_t { kUp, kDown, kWithin };
inline constexpr size_t kNumLanes = 3;
// How the driver is told of several copies: by a call each, or, where it has one, by one for all.
enum class DriverCalls : uint8_t { kOneByOne, kBatched };

// Collects orders of one lane that do not touch each other's slots, and gives their copies to a
// stream: slots that are neighbours on both sides as one copy, and none over the end of a piece of
// pinned memory. Thread-compatible.
class CopyBatch {
 public:
  explicit CopyBatch(Lane lane) : lane_(lane) {}

  // Takes what the order copies, in every pool of its window; returns the bytes. Errors:
  // UNKNOWN_WINDOW, INVALID_ARGUMENT for an order that cannot be made; nothing is added then.
  absl::StatusOr<uint64_t> Add(const CopyOrder& order, const PoolSet& pools);

  // Asynchronous. REQUIRES: the context is current on this thread. Errors: those of the driver;
  // some of the copies may be under way then.
  absl::Status Issue(const Driver& driver, CUstream stream, DriverCalls calls);

 private:
  // Whole slots of one pool, one after another on both sides.
  struct Range {
    uint32_t window = 0;
    uint32_t pool = 0;
    uint64_t source = 0;
    uint64_t target = 0;
    uint64_t bytes = 0;
    uint64_t host_base = 0;   // Of the host's side, the pool's address;
    uint64_t host_chunk = 0;  // and what one copy must lie in from there on. 0: it is not pinned.
  };
  // The first tokens of a slot: rows of row_bytes, pitch_bytes from row to row.
  struct Rows {
    Range first;  // bytes: of one row.
    uint64_t rows = 0;
    uint64_t pitch_bytes = 0;
  };

  void Join();
  // Cuts each range where a piece of pinned memory ends.
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

#endif  // PAGODA_POOLS_CUDA_COPY_BATCH_H_
