// Runs the self-test of a GPU's kernels in a separate process. A kernel that hangs, or that breaks
// the device's context, is left out and harms nothing else.
#ifndef PAGODA_ENGINE_GPU_SELF_TEST_H_
#define PAGODA_ENGINE_GPU_SELF_TEST_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/engine_options.h"
#include "engine/model/backend/gpu_report.h"
#include "kernels/types.h"

namespace pagoda {

struct GpuSelfTestOptions {
  std::string model_dir;  // See LoadModelConfig.
  int device = 0;         // Numbered as in this process.
  kernels::ElementType kv_type = kernels::ElementType::kFloat32;
  uint32_t tokens_per_block = 0;
  ComputeType compute = ComputeType::kAuto;
  GpuAttention attention = GpuAttention::kAuto;

  // A program that calls GpuSelfTestMain first. Empty: this program, if its main has called
  // GpuSelfTestMain; otherwise the test runs in this process, without time limits.
  std::string program;
  // Creating the device's context can take long if the driver compiles or the machine has many
  // devices.
  absl::Duration start_timeout = absl::Seconds(60);
  // For one family of one part.
  absl::Duration family_timeout = absl::Seconds(10);
};

// Tests the kernels that an engine of the model would run on the device, and chooses among them
// (engine/model/cuda/self_test/self_test.h describes how). If the process of a family hangs or
// dies, that family is left out and a new process tests the others. If all families are right,
// there is one process, which takes about a second. Errors: INVALID_CHECKPOINT; those of
// TestCudaKernels; INTERNAL if the process cannot be started, or ends before it tests anything.
// Thread-safe.
absl::StatusOr<GpuSelfTestReport> TestGpu(const GpuSelfTestOptions& options);

// A program's main calls this before everything else. If the arguments ask for the self-test, runs
// it and returns the exit status. Otherwise returns nothing, and TestGpu starts this program for
// the test from now on.
std::optional<int> GpuSelfTestMain(int argc, char** argv);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_GPU_SELF_TEST_H_
