// Host memory from and to which a CUDA device copies by itself.
#ifndef PAGODA_POOLS_CUDA_PINNED_MEMORY_H_
#define PAGODA_POOLS_CUDA_PINNED_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace pagoda::cuda {

// Registers a mapping with the driver while this object exists; the driver locks its pages. The
// bytes belong to another object, which unmaps them later. Other processes map the same memory as
// before. Movable. A moved-from object holds nothing. Thread-compatible.
class PinnedMemory {
 public:
  struct Options {
    int device = 0;
    // The bytes per registration, so that a long registration reports progress: locking takes about
    // a second for some gigabytes. A copy must not cross a multiple of it, because the driver only
    // accepts a range within one registration. A multiple of the page size.
    uint64_t chunk_bytes = uint64_t{4} << 30;
    // Called after each chunk except the last, with the bytes done and the total.
    std::function<void(uint64_t done_bytes, uint64_t total_bytes)> progress;
  };

  // Registers all of `bytes`, or nothing: after an error, the chunks registered before are
  // unregistered. `bytes` begin at a page. Errors: UNAVAILABLE (no CUDA), INVALID_ARGUMENT (no such
  // device), OUT_OF_MEMORY (the pages cannot be locked), INTERNAL for other failures of the driver.
  // Messages name the bytes concerned.
  static absl::StatusOr<PinnedMemory> Register(absl::Span<std::byte> bytes, const Options& options);
  ~PinnedMemory();
  PinnedMemory(PinnedMemory&& other) noexcept;
  PinnedMemory& operator=(PinnedMemory&&) = delete;

  uint64_t chunk_bytes() const { return chunk_bytes_; }

 private:
  PinnedMemory() = default;
  absl::Status RegisterChunks(absl::Span<std::byte> bytes, const Options& options);

  int device_ = -1;  // Its primary context is held while this is not -1.
  uint64_t context_ = 0;
  uint64_t chunk_bytes_ = 0;
  std::byte* data_ = nullptr;
  uint64_t registered_bytes_ = 0;  // From data_.
};

}  // namespace pagoda::cuda

#endif  // PAGODA_POOLS_CUDA_PINNED_MEMORY_H_
