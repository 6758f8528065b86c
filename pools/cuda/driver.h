// CUDA's driver, loaded at its first use: the program starts without a driver.
#ifndef PAGODA_POOLS_CUDA_DRIVER_H_
#define PAGODA_POOLS_CUDA_DRIVER_H_

#include <cuda.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace pagoda::cuda {

// The driver's calls, by their names in cuda.h and in the versions of that header. Calls that only
// newer drivers have can be null.
struct Driver {
#define PAGODA_CUDA_CALL(call) decltype(&::call) call = nullptr;
#define PAGODA_CUDA_NEWER_CALL(call) PAGODA_CUDA_CALL(call)
#include "pools/cuda/driver_calls.def"
#undef PAGODA_CUDA_NEWER_CALL
#undef PAGODA_CUDA_CALL

  // OK, or the failure with the driver's name for it: RESOURCE_EXHAUSTED if memory ran out, else
  // INTERNAL.
  absl::Status Check(const char* what, CUresult result) const;
};

// The initialised driver, the same object for the whole process. Thread-safe. Errors: UNAVAILABLE
// without a driver, or without a device that it can use.
absl::StatusOr<const Driver*> GetDriver();

}  // namespace pagoda::cuda

#endif  // PAGODA_POOLS_CUDA_DRIVER_H_
