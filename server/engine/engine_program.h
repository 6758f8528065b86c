// Runs pagoda-engine, the program of the bundled engine. The daemon contains no model.
#ifndef PAGODA_SERVER_ENGINE_ENGINE_PROGRAM_H_
#define PAGODA_SERVER_ENGINE_ENGINE_PROGRAM_H_

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/engine_options.h"
#include "base/file_descriptor.h"
#include "pagoda/v1/engine_process.pb.h"
#include "pools/layout.h"

namespace pagoda::server {

// The program is in the folder of this one: "/usr/bin/pagoda-engine". Empty if /proc cannot be
// read.
std::string EngineProgram();

// Starts the program in a process group of its own, with `descriptors` as 3, 4 and so on, and with
// no other descriptor but the standard ones. Its input is empty. If `output` is not -1, it is the
// program's standard output. The other standard descriptors are this process's. Errors:
// FAILED_PRECONDITION if it cannot be started.
absl::StatusOr<pid_t> StartEngineProgram(const std::vector<std::string>& arguments,
                                         const std::vector<int>& descriptors, int output = -1);

// How a process ended, for people: "exit status 1", "signal 9 (Killed)". `status`: of waitpid.
std::string EndText(int status);

// The error that the engine's program has reported.
absl::Status StatusOf(const v1::Failure& failure);
void FailureToProto(const absl::Status& status, v1::Failure* out);

// The layers and the fingerprint of a model. Errors: those of Engine::CacheSpecForModel, and of
// StartEngineProgram; INTERNAL if the program ends without an answer.
absl::StatusOr<CacheSpec> DescribeModel(const std::string& model_dir, uint32_t tokens_per_block,
                                        DType kv_dtype);

struct GpuQuestion {
  std::string model_dir;
  int device = 0;  // CUDA's index.
  uint32_t tokens_per_block = 0;
  DType kv_dtype = DType::kFloat32;
  ComputeType compute = ComputeType::kAuto;
  GpuAttention attention = GpuAttention::kAuto;
};
// Tests the kernels that an engine of the model would run on the device. GpuSelfTest::problem says
// whether they suffice. Errors: as above.
absl::StatusOr<v1::GpuSelfTest> TestEngineOnGpu(const GpuQuestion& question);

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_ENGINE_ENGINE_PROGRAM_H_
