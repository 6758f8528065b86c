// The engine's self-test on this machine's GPU: every family is right, in about a second.
#include <gtest/gtest.h>

#include <cmath>
#include <iostream>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "engine/model/cuda/cuda_backend.h"
#include "tests/engine/cuda/self_test_models.h"
#include "tests/engine/cuda/test_backend.h"

namespace pagoda {
namespace {

using kernels::ElementType;

// The layers of Qwen3-8B, and one sliding window in addition.
GpuSelfTestRequest Request(ElementType kv_type, uint32_t head_dim) {
  GpuSelfTestRequest request;
  request.config.num_heads = 32;
  request.config.head_dim = head_dim;
  request.config.query_scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
  request.config.layers = {{.num_kv_heads = 8}, {.window = WindowSize(1024), .num_kv_heads = 8}};
  request.config.rotaries = {RotaryConfig()};
  request.kv_type = kv_type;
  request.tokens_per_block = 32;
  return request;
}

void ExpectRightOrUnsupported(const std::string& name, const GpuSelfTestRequest& request) {
  const absl::Time start = absl::Now();
  const absl::StatusOr<GpuSelfTestReport> report =
      TestCudaKernels(request, [](const GpuKernelResult&) {});
  ASSERT_TRUE(report.ok()) << report.status();
  std::cout << report->device << ", " << name << ", " << absl::ToDoubleSeconds(absl::Now() - start)
            << " s\n";
  EXPECT_TRUE(report->Check().ok()) << report->Check();
  for (const GpuKernelResult& result : report->results) {
    std::cout << "  " << Describe(result) << "\n";
    EXPECT_TRUE(result.right() || result.outcome == GpuOutcome::kUnsupported) << Describe(result);
  }
}

TEST(GpuSelfTestTest, EveryFamilyIsRightOrNotForThisDevice) {
  if (!WhyNoBackend().empty()) GTEST_SKIP() << WhyNoBackend();
  for (const ElementType type :
       {ElementType::kBFloat16, ElementType::kFloat16, ElementType::kFloat32}) {
    for (const uint32_t head_dim : {64u, 128u, 256u}) {
      ExpectRightOrUnsupported("head_dim " + std::to_string(head_dim), Request(type, head_dim));
    }
  }
}

// Tests the architectures that need more kernels, also with fp8.
TEST(GpuSelfTestTest, SoIsEveryFamilyForEachArchitecture) {
  if (!WhyNoBackend().empty()) GTEST_SKIP() << WhyNoBackend();
  std::vector<TestedModel> models = TestedModels();
  // The heads of DeepSeek V3.
  models.push_back(models.back());
  models.back().name = "DeepSeek of 128 heads";
  models.back().config.num_heads = 128;
  for (const TestedModel& model : models) {
    for (const ElementType type : {ElementType::kBFloat16, ElementType::kFloat16,
                                   ElementType::kFloat32, ElementType::kFloat8E4M3}) {
      ExpectRightOrUnsupported(model.name, model.Request(type, uint64_t{64} << 20));
    }
  }
}

}  // namespace
}  // namespace pagoda
