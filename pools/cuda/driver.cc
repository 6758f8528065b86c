#include "pools/cuda/driver.h"

#include <dlfcn.h>

#include "absl/strings/str_cat.h"

namespace pagoda::cuda {
namespace {

constexpr char kLibrary[] = "libcuda.so.1";

// cuda.h defines a call's name as a macro for the declared version. The symbol is thus the name of
// the macro's expansion.
#define PAGODA_CUDA_NAME_OF(call) #call
#define PAGODA_CUDA_NAME(call) PAGODA_CUDA_NAME_OF(call)

absl::StatusOr<Driver> Load() {
  void* const library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return absl::UnavailableError(absl::StrCat("no CUDA driver: ", dlerror()));
  }
  Driver driver;
#define PAGODA_CUDA_CALL(call)                                                                   \
  driver.call = reinterpret_cast<decltype(driver.call)>(dlsym(library, PAGODA_CUDA_NAME(call))); \
  if (driver.call == nullptr) {                                                                  \
    return absl::UnavailableError(absl::StrCat("the CUDA driver is too old: ", dlerror()));      \
  }
#define PAGODA_CUDA_NEWER_CALL(call) \
  driver.call = reinterpret_cast<decltype(driver.call)>(dlsym(library, PAGODA_CUDA_NAME(call)));
#include "pools/cuda/driver_calls.def"
#undef PAGODA_CUDA_NEWER_CALL
#undef PAGODA_CUDA_CALL
  if (absl::Status status = driver.Check("cuInit", driver.cuInit(0)); !status.ok()) {
    return absl::UnavailableError(status.message());
  }
  int devices = 0;
  const absl::Status counted = driver.Check("cuDeviceGetCount", driver.cuDeviceGetCount(&devices));
  if (!counted.ok()) return absl::UnavailableError(counted.message());
  if (devices == 0) return absl::UnavailableError("the CUDA driver has no device");
  return driver;
}

}  // namespace

absl::Status Driver::Check(const char* what, CUresult result) const {
  if (result == CUDA_SUCCESS) return absl::OkStatus();
  const char* name = nullptr;
  if (cuGetErrorName(result, &name) != CUDA_SUCCESS) name = "an unknown error";
  const std::string message = absl::StrCat(what, ": ", name);
  return result == CUDA_ERROR_OUT_OF_MEMORY ? absl::ResourceExhaustedError(message)
                                            : absl::InternalError(message);
}

absl::StatusOr<const Driver*> GetDriver() {
  static const auto* const driver = new absl::StatusOr<Driver>(Load());
  if (!driver->ok()) return driver->status();
  return &**driver;
}

}  // namespace pagoda::cuda
