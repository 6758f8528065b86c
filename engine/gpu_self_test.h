// The self-test of a GPU's kernels in a process of its own, so that a kernel which hangs, or which
// breaks the device's context, is left out and harms nothing else.
#ifndef PAGODA_ENGINE_GPU_SELF_TEST_H_
#define PAGODA_ENGINE_GPU_SELF_TEST_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "engine/choices.h"
#include "engine/model/gpu_report.h"
#include "kernels/types.h"

namespace pagoda {

struct GpuSelfTestOptions {
  std::string model_dir;  // As LoadModelConfig takes it.
  int device = 0;         // As this process counts.
  kernels::ElementType kv_type = kernels::ElementType::kFloat32;
  uint32_t tokens_per_block = 0;
  ComputeType compute = ComputeType::kAuto;
  GpuAttention attention = GpuAttention::kAuto;

  // A program that calls GpuSelfTestMain first. Empty: this one, where its main has done so; else
  // the test runs in this process, without time limits.
  std::string program;
  // The device's context may take long where the driver compiles or a machine has many devices.
  absl::Duration start_timeout = absl::Seconds(60);
  // Of one family of one part.
  absl::Duration family_timeout = absl::Seconds(10);
};

// Tests the kernels that an engine of that model would run on the device, and chooses
// (engine/model/cuda/self_test.h says what and how). A family whose process hangs or dies is left
// out, and a new process tests the others: with all right there is one process, of about a second.
// Errors: INVALID_CHECKPOINT; those of TestCudaKernels; INTERNAL where the process cannot be
// started or ends before it tests anything. Thread-safe.
absl::StatusOr<GpuSelfTestReport> TestGpu(const GpuSelfTestOptions& options);

// For a program's main, before everything else: where the arguments ask for the self-test, runs it
// and returns the exit status. Else nothing, and TestGpu starts this program for the test from now
// on.
std::optional<int> GpuSelfTestMain(int argc, char** argv);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_GPU_SELF_TEST_H_
