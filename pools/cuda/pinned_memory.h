// Host memory that a CUDA device copies from and to by itself.
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

// Registers a mapping with the driver, which locks its pages, as long as it lives; the bytes belong
// to somebody else, who unmaps them later. Other processes map the same memory as before.
// Movable. A moved-from object holds nothing. Thread-compatible.
class PinnedMemory {
 public:
  struct Options {
    int device = 0;
    // Registered at a time, so that a long wait shows: locking takes about a second for some
    // gigabytes. A copy must not go over a multiple of it: the driver takes a range of one
    // registration. A multiple of the page size.
    uint64_t chunk_bytes = uint64_t{4} << 30;
    // Called behind each chunk but the last, with what is done of how much.
    std::function<void(uint64_t done_bytes, uint64_t total_bytes)> progress;
  };

  // All of `bytes`, or nothing: what was registered before an error is let go. `bytes` begin at a
  // page. Errors: UNAVAILABLE (no CUDA), INVALID_ARGUMENT (no such device), OUT_OF_MEMORY (the
  // pages cannot be locked), INTERNAL for other failures of the driver; with the bytes concerned.
  static absl::StatusOr<PinnedMemory> Register(absl::Span<std::byte> bytes, Options options);
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
  uint64_t registered_bytes_ = 0;  // From data_ on.
};

}  // namespace pagoda::cuda

#endif  // PAGODA_POOLS_CUDA_PINNED_MEMORY_H_
