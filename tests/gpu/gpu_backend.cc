// A GPU's backend for the engine's tests.
#include "engine/model/cuda/cuda_backend.h"
#include "pools/check.h"
#include "tests/engine/cuda/test_backend.h"

namespace pagoda {

std::string WhyNoBackend() {
  static const auto* const status = new absl::Status(CheckCudaBackend(/*device=*/0));
  return status->ok() ? std::string() : std::string(status->message());
}

std::unique_ptr<Backend> MakeTestBackend(ComputeType compute) {
  absl::StatusOr<std::unique_ptr<Backend>> made =
      MakeCudaBackend({.device = 0, .compute = compute});
  PAGODA_CHECK(made.ok(), made.status().ToString().c_str());
  return *std::move(made);
}

}  // namespace pagoda
