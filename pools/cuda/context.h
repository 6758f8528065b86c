// A device's primary context, which all users of the CUDA runtime share. For the sources of this
// folder.
#ifndef PAGODA_POOLS_CUDA_CONTEXT_H_
#define PAGODA_POOLS_CUDA_CONTEXT_H_

#include <cuda.h>

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "pools/cuda/driver.h"

namespace pagoda::cuda {

// Holds the device's primary context until ReleaseContext. The result is a CUcontext, never 0.
// Errors: UNAVAILABLE (no driver or device), INVALID_ARGUMENT (no such device, or one that cannot
// export memory as a descriptor), INTERNAL.
absl::StatusOr<uint64_t> RetainContext(int device);
// Does nothing if the driver has already shut down at the end of the process.
void ReleaseContext(int device);

// The driver, for code that holds a context. REQUIRES: a context was retained.
const Driver& TheDriver();

// Makes a context current on this thread during the object's lifetime.
class Current {
 public:
  explicit Current(uint64_t context);
  ~Current();
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;
  const absl::Status& status() const { return status_; }

 private:
  absl::Status status_;
};

}  // namespace pagoda::cuda

#endif  // PAGODA_POOLS_CUDA_CONTEXT_H_
