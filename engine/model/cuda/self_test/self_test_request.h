// The request of a self-test, and the function that receives its results.
#ifndef PAGODA_ENGINE_MODEL_CUDA_SELF_TEST_SELF_TEST_REQUEST_H_
#define PAGODA_ENGINE_MODEL_CUDA_SELF_TEST_SELF_TEST_REQUEST_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "base/engine_options.h"
#include "engine/checkpoint/config/model_config.h"
#include "engine/model/backend/gpu_report.h"
#include "kernels/types.h"

namespace pagoda {

// The needs of an engine that the self-test covers.
struct GpuSelfTestRequest {
  int device = 0;      // Numbered as in this process.
  ModelConfig config;  // From LoadModelConfig.
  kernels::ElementType kv_type = kernels::ElementType::kFloat32;
  uint32_t tokens_per_block = 0;  // At least 1.
  ComputeType compute = ComputeType::kAuto;
  // kAuto tests every family of attention, another choice only that family.
  GpuAttention attention = GpuAttention::kAuto;
  // Known results are not tested again; the report has them unchanged.
  std::vector<GpuKernelResult> known;
  // The amount of KV for timing attention, in device memory while the test runs.
  uint64_t timing_bytes = uint64_t{64} << 20;
};

// Called twice for each family: with kRunning before its test, and with its outcome.
using GpuTestObserver = std::function<void(const GpuKernelResult&)>;

}  // namespace pagoda

#endif  // PAGODA_ENGINE_MODEL_CUDA_SELF_TEST_SELF_TEST_REQUEST_H_
