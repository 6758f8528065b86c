#include "pools/cuda/pinned_memory.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/error.h"
#include "pools/cuda/context.h"

namespace pagoda::cuda {

absl::StatusOr<PinnedMemory> PinnedMemory::Register(absl::Span<std::byte> bytes,
                                                    const Options& options) {
  PAGODA_CHECK(options.chunk_bytes > 0, "memory is registered in chunks of at least 1 byte");
  PinnedMemory pinned;  // From here on, the destructor unregisters the chunks.
  const absl::StatusOr<uint64_t> context = RetainContext(options.device);
  if (!context.ok()) return context.status();
  pinned.device_ = options.device;
  pinned.context_ = *context;
  pinned.chunk_bytes_ = options.chunk_bytes;
  pinned.data_ = bytes.data();
  if (absl::Status status = pinned.RegisterChunks(bytes, options); !status.ok()) return status;
  return pinned;
}

absl::Status PinnedMemory::RegisterChunks(absl::Span<std::byte> bytes, const Options& options) {
  const Driver& driver = TheDriver();
  const Current current(context_);
  if (!current.status().ok()) return current.status();
  while (registered_bytes_ < bytes.size()) {
    const uint64_t chunk = std::min(chunk_bytes_, bytes.size() - registered_bytes_);
    // Portable: for every context of the process, because an engine in it can have another context.
    const CUresult result =
        driver.cuMemHostRegister(data_ + registered_bytes_, chunk, CU_MEMHOSTREGISTER_PORTABLE);
    if (absl::Status status = driver.Check("cuMemHostRegister", result); !status.ok()) {
      const std::string what =
          absl::StrCat(std::string(status.message()), " for bytes ", registered_bytes_, " to ",
                       registered_bytes_ + chunk, " of ", bytes.size());
      return absl::IsResourceExhausted(status) ? MakeError(Reason::kOutOfMemory, what)
                                               : absl::InternalError(what);
    }
    registered_bytes_ += chunk;
    if (registered_bytes_ < bytes.size() && options.progress != nullptr) {
      options.progress(registered_bytes_, bytes.size());
    }
  }
  return absl::OkStatus();
}

PinnedMemory::PinnedMemory(PinnedMemory&& other) noexcept
    : device_(std::exchange(other.device_, -1)),
      context_(std::exchange(other.context_, 0)),
      chunk_bytes_(other.chunk_bytes_),
      data_(other.data_),
      registered_bytes_(std::exchange(other.registered_bytes_, 0)) {}

PinnedMemory::~PinnedMemory() {
  if (device_ < 0) return;
  {
    const Current current(context_);
    for (uint64_t done = 0; done < registered_bytes_; done += chunk_bytes_) {
      TheDriver().cuMemHostUnregister(data_ + done);
    }
  }
  ReleaseContext(device_);
}

}  // namespace pagoda::cuda
