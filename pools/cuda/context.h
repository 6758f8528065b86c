// A device's primary context, as the runtime's users share it. For the sources of this folder.
#ifndef PAGODA_POOLS_CUDA_CONTEXT_H_
#define PAGODA_POOLS_CUDA_CONTEXT_H_

#include <cuda.h>

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "pools/cuda/driver.h"

namespace pagoda::cuda {

// Holds the context of the device of that index, which is a CUcontext and never 0, until
// ReleaseContext. Errors: UNAVAILABLE (no driver or device), INVALID_ARGUMENT (no such device, or
// one that cannot export memory as a descriptor), INTERNAL.
absl::StatusOr<uint64_t> RetainContext(int device);
// At the end of the process the driver may have ended before; then nothing is left to give back.
void ReleaseContext(int device);

// The driver, for what holds a context: it was there then.
const Driver& TheDriver();

// Makes a context current on this thread for a while.
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
