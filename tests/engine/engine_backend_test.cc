// Where an engine computes, and its errors if it cannot.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "engine/engine.h"
#include "engine/model/choose_backend.h"
#include "engine/model/cuda/cuda_backend.h"
#include "pools/cuda/device.h"
#include "tests/engine/fixtures/golden.h"
#include "tests/engine/fixtures/test_cache.h"

namespace pagoda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint32_t kTokensPerBlock = 16;

// Kernels reach only their own memory. A build without a GPU backend names the supported ones.
TEST(EngineBackendTest, ABackendThatDoesNotReachThePoolsIsRefused) {
  const std::string model = GoldenDir(kTinyModel);
  TestCache cache(*Engine::CacheSpecForModel(model, kTokensPerBlock, DType::kFloat32),
                  {.primary_blocks = 8});
  const absl::Status status =
      Engine::Create({.model_dir = model, .backend = EngineBackend::kCuda}, cache.OpenClient())
          .status();
  EXPECT_EQ(ReasonOf(status), Reason::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr(HasCudaBackend() ? "cache.primary_memory: cuda" : "supported: cpu"));
  const MemoryPlace device = {.kind = MemoryKind::kCuda, .device = 2};
  const absl::Status on_cpu = MakeBackend(EngineBackend::kCpu, device, {}).status();
  EXPECT_EQ(ReasonOf(on_cpu), Reason::kInvalidArgument) << on_cpu;
  EXPECT_THAT(std::string(on_cpu.message()),
              AllOf(HasSubstr("in the memory of cuda:2"), HasSubstr("cache.primary_memory: host"),
                    HasSubstr("engine.backend")));
}

TEST(EngineBackendTest, ABackendForGpusSaysWhatItLacks) {
  const absl::Status status = MakeCudaBackend({.device = 0}).status();
  EXPECT_EQ(status, CheckCudaBackend(0));
  if (!HasCudaBackend()) {
    EXPECT_EQ(ReasonOf(status), Reason::kInvalidArgument) << status;
    return;
  }
  if (const auto device = cuda::DescribeDevice(0); device.ok()) {
    GTEST_SKIP() << "there is a GPU: tests/gpu";
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("no CUDA device"));
}

TEST(EngineBackendTest, AutoComputesWhereThePoolsLie) {
  const auto on_host = MakeBackend(EngineBackend::kAuto, MemoryPlace(), {.num_threads = 1});
  ASSERT_TRUE(on_host.ok()) << on_host.status();
  EXPECT_THAT((*on_host)->description(), HasSubstr("cpu, 1 threads"));
  const absl::Status no_gpu =
      MakeBackend(EngineBackend::kAuto, MemoryPlace(), {.num_threads = 1},
                  {.attention = GpuAttention::kHopper, .self_test = nullptr})
          .status();
  EXPECT_EQ(ReasonOf(no_gpu), Reason::kInvalidArgument) << no_gpu;
  EXPECT_THAT(std::string(no_gpu.message()), HasSubstr("gpu_attention is hopper"));
  // On a device that no machine has, the error names the place, whatever else is missing.
  const MemoryPlace nowhere = {.kind = MemoryKind::kCuda, .device = 1000};
  const absl::Status status = MakeBackend(EngineBackend::kAuto, nowhere, {}).status();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("in the memory of cuda:1000"), HasSubstr("cannot compute there")));
}

}  // namespace
}  // namespace pagoda
