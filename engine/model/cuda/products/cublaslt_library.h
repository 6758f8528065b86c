// cuBLASLt, loaded when first needed, so that programs start without it.
#ifndef PAGODA_ENGINE_MODEL_CUDA_PRODUCTS_CUBLASLT_LIBRARY_H_
#define PAGODA_ENGINE_MODEL_CUDA_PRODUCTS_CUBLASLT_LIBRARY_H_

#include <cublasLt.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace pagoda::cuda {

// The library's calls, by the names of cublasLt.h. The library stays loaded until the process ends.
struct CublasLt {
#define PAGODA_CUBLASLT_CALL(call) decltype(&::call) call = nullptr;
#include "engine/model/cuda/products/cublaslt_calls.def"
#undef PAGODA_CUBLASLT_CALL

  // "cuBLASLt 13.0.2"
  std::string name() const;
  // OK, or INTERNAL with the library's own name for the failure.
  absl::Status Check(const char* what, cublasStatus_t status) const;
};

// Loads the first of the files that the dynamic linker finds by these names. Errors:
// FAILED_PRECONDITION if there is none, or if it lacks a call.
absl::StatusOr<CublasLt> LoadCublasLt(absl::Span<const absl::string_view> names);

// Loads libcublasLt.so.13, or .12. If neither is found, later calls return the same error.
// Thread-safe.
absl::StatusOr<const CublasLt*> GetCublasLt();

}  // namespace pagoda::cuda

#endif  // PAGODA_ENGINE_MODEL_CUDA_PRODUCTS_CUBLASLT_LIBRARY_H_
