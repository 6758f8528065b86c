// CUDA's driver, found when it is first needed: the program starts without one.
#ifndef PAGODA_POOLS_CUDA_DRIVER_H_
#define PAGODA_POOLS_CUDA_DRIVER_H_

#include <cuda.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace pagoda::cuda {

// The driver's calls, by the names of cuda.h and in the versions that it was compiled with. Those
// that newer drivers alone have may be null.
struct Driver {
#define PAGODA_CUDA_CALL(call) decltype(&::call) call = nullptr;
#define PAGODA_CUDA_NEWER_CALL(call) PAGODA_CUDA_CALL(call)
#include "pools/cuda/driver_calls.def"
#undef PAGODA_CUDA_NEWER_CALL
#undef PAGODA_CUDA_CALL

  // OK, or the failure with the driver's own name for it: RESOURCE_EXHAUSTED where memory was
  // short, else INTERNAL.
  absl::Status Check(const char* what, CUresult result) const;
};

// The driver, initialised. The same for the process's life; thread-safe.
// Errors: UNAVAILABLE without a driver, or without a device that it can use.
absl::StatusOr<const Driver*> GetDriver();

}  // namespace pagoda::cuda

#endif  // PAGODA_POOLS_CUDA_DRIVER_H_
