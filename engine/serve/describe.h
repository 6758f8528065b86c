#ifndef PAGODA_ENGINE_SERVE_DESCRIBE_H_
#define PAGODA_ENGINE_SERVE_DESCRIBE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "base/engine_options.h"
#include "pagoda/v1/engine_process.pb.h"
#include "pools/layout.h"

namespace pagoda {

// The questions of a daemon about a model, which it does not read itself.
struct DescribeOptions {
  std::string model_dir;
  uint32_t tokens_per_block = 0;
  DType kv_dtype = DType::kFloat32;
  std::optional<int> gpu;  // Also test the kernels on this device.
  ComputeType compute = ComputeType::kAuto;
  GpuAttention attention = GpuAttention::kAuto;
};

// pagoda-engine --describe. An error is part of the description.
v1::ModelDescription Describe(const DescribeOptions& options);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_SERVE_DESCRIBE_H_
