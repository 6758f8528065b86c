#include "engine/model/cuda/products/cublaslt_library.h"

#include <dlfcn.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace pagoda::cuda {

std::string CublasLt::name() const {
  const size_t version = cublasLtGetVersion();
  return absl::StrCat("cuBLASLt ", version / 10000, ".", version / 100 % 100, ".", version % 100);
}

absl::Status CublasLt::Check(const char* what, cublasStatus_t status) const {
  if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(what, ": ", cublasLtGetStatusName(status)));
}

absl::StatusOr<CublasLt> LoadCublasLt(absl::Span<const absl::string_view> names) {
  void* library = nullptr;
  for (const absl::string_view name : names) {
    library = dlopen(std::string(name).c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr) break;
  }
  if (library == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("the GPU backend needs cuBLASLt, which was not found; tried ",
                     absl::StrJoin(names, ", "), " (LD_LIBRARY_PATH); ", dlerror()));
  }
  CublasLt calls;
#define PAGODA_CUBLASLT_CALL(call)                                            \
  calls.call = reinterpret_cast<decltype(calls.call)>(dlsym(library, #call)); \
  if (calls.call == nullptr) {                                                \
    return absl::FailedPreconditionError(                                     \
        absl::StrCat("the cuBLASLt found here lacks a call: ", dlerror()));   \
  }
#include "engine/model/cuda/products/cublaslt_calls.def"
#undef PAGODA_CUBLASLT_CALL
  return calls;
}

absl::StatusOr<const CublasLt*> GetCublasLt() {
  static const auto* const library =
      new absl::StatusOr<CublasLt>(LoadCublasLt({"libcublasLt.so.13", "libcublasLt.so.12"}));
  if (!library->ok()) return library->status();
  return &**library;
}

}  // namespace pagoda::cuda
