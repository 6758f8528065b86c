// The self-test finds faults in fused products, and lets time decide between them and the library.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <tuple>
#include <vector>

#include "engine/model/cuda/self_test/self_test.h"
#include "tests/engine/cuda/emulated_device.h"
#include "tests/engine/cuda/self_test_models.h"

namespace pagoda::cuda {
namespace {

using kernels::ElementType;

// A model whose layers are timed: two copies of them fit.
GpuSelfTestRequest Request(TestedModel model) {
  model.config.hidden_size = 64;
  model.config.intermediate_size = 96;
  constexpr uint64_t kBytes = 2 * 2 * (64 * (2 * 512 + 2 * 512) + 3 * 64 * 96);
  return model.Request(ElementType::kBFloat16, kBytes);
}

// The results of this part. The outcome of everything else is known.
std::vector<GpuKernelResult> TestProducts(GpuSelfTestRequest request, const TestedKernels& kernels,
                                          EmulatedDevice::State& state, FusedChoice* choice) {
  for (const char* part : {"attention_decode",
                           "attention_prefill",
                           "cache_write",
                           "block_copy",
                           "products_bf16",
                           "products_fp16",
                           "products_fp32",
                           "embedding",
                           "norm",
                           "gate",
                           "rows",
                           "row_lists",
                           "rounding",
                           "rotary",
                           "layer_norm",
                           "clamped_gate",
                           "gelu",
                           "head_copy",
                           "fused_rows",
                           "fused_heads",
                           "token_draws",
                           "step_graphs"}) {
    for (const char* family :
         {"sm80", "hopper", "latent", "generic", "portable", "cublaslt", "captured"}) {
      request.known.push_back({.part = part, .family = family, .outcome = GpuOutcome::kRight});
    }
  }
  EmulatedDevice device(&state);
  HostProducts products(&state);
  const GpuSelfTestReport report = RunSelfTest(
      device, products, request, [](const GpuKernelResult&) {}, kernels);
  EXPECT_TRUE(report.Check().ok()) << report.Check();
  *choice = report.fused();
  std::vector<GpuKernelResult> results;
  for (const GpuKernelResult& result : report.results) {
    if (result.part == kFusedProducts) results.push_back(result);
  }
  return results;
}

int Changed(FusedProductArgs args, Stream stream, uint32_t multiprocessors,
            const std::function<void(FusedProductArgs&)>& change) {
  change(args);
  return LaunchFusedProduct(args, multiprocessors, stream);
}

struct Fault {
  const char* name;
  const char* model;
  decltype(&LaunchFusedProduct) product;
};

const Fault kFaults[] = {
    {"the norm is left out", "Phi",
     [](const FusedProductArgs& args, uint32_t count, Stream stream) {
       return Changed(args, stream, count, [](auto& a) { a.norm = nullptr; });
     }},
    {"the mean is not subtracted", "Bloom",
     [](const FusedProductArgs& args, uint32_t count, Stream stream) {
       return Changed(args, stream, count, [](auto& a) { a.norm_bias = nullptr; });
     }},
    {"the residual stream is overwritten", "gpt-oss",
     [](const FusedProductArgs& args, uint32_t count, Stream stream) {
       return Changed(args, stream, count, [](auto& a) {
         if (a.end == ProductEnd::kAdd) a.end = ProductEnd::kStore;
       });
     }},
    {"the bias is left out", "Phi",
     [](const FusedProductArgs& args, uint32_t count, Stream stream) {
       return Changed(args, stream, count, [](auto& a) { a.bias = nullptr; });
     }},
    {"the last row is left out", "Phi",
     [](const FusedProductArgs& args, uint32_t count, Stream stream) {
       return Changed(args, stream, count, [](auto& a) {
         if (a.input.rows > 1) --a.input.rows;
       });
     }},
    {"the gate has no limit", "gpt-oss",
     [](const FusedProductArgs& args, uint32_t count, Stream stream) {
       return Changed(args, stream, count, [](auto& a) { a.gate.limit = 100; });
     }},
    {"the last inputs are left out", "DeepSeek",
     [](const FusedProductArgs& args, uint32_t count, Stream stream) {
       if (args.norm == nullptr) return LaunchFusedProduct(args, count, stream);
       std::vector<float> norm(args.norm, args.norm + args.inputs);
       std::fill(norm.end() - 8, norm.end(), 0.0f);
       FusedProductArgs changed = args;
       changed.norm = norm.data();
       return LaunchFusedProduct(changed, count, stream);
     }},
    {"a launch fails", "Phi", [](const FusedProductArgs&, uint32_t, Stream) { return 719; }},
};

TEST(SelfTestProductsTest, AFaultLeavesTheLibraryTheProducts) {
  for (const Fault& fault : kFaults) {
    SCOPED_TRACE(fault.name);
    EmulatedDevice::State state;
    TestedKernels kernels;
    kernels.fused_product = fault.product;
    FusedChoice choice;
    const auto results = TestProducts(Request(ModelNamed(fault.model)), kernels, state, &choice);
    ASSERT_EQ(results.size(), 2u);
    EXPECT_EQ(results[0].family, kFamilySm80);
    EXPECT_FALSE(results[0].right()) << Describe(results[0]);
    EXPECT_EQ(results[1].outcome, GpuOutcome::kRuns) << Describe(results[1]);
    EXPECT_FALSE(choice.products);
  }
}

// The device's time says which one runs. If they take about as long, the one with fewer launches
// does.
TEST(SelfTestProductsTest, TheFasterOneRuns) {
  static EmulatedDevice::State* device = nullptr;
  static double fused_seconds = 0, separate_seconds = 0;
  TestedKernels kernels;
  kernels.fused_product = [](const FusedProductArgs& args, uint32_t count, Stream stream) {
    device->seconds = fused_seconds;
    return LaunchFusedProduct(args, count, stream);
  };
  kernels.add_norm = [](const AddNormArgs& args, Stream stream) {
    device->seconds = separate_seconds;
    return LaunchAddNorm(args, stream);
  };
  for (const auto& [fused, separate, runs] :
       {std::tuple(1e-3, 2e-3, true), std::tuple(1e-3, 1e-3, true),
        std::tuple(2e-3, 1e-3, false)}) {
    EmulatedDevice::State state;
    device = &state;
    fused_seconds = fused;
    separate_seconds = separate;
    FusedChoice choice;
    const auto results = TestProducts(Request(ModelNamed("Phi")), kernels, state, &choice);
    ASSERT_EQ(results.size(), 2u);
    for (const GpuKernelResult& result : results) {
      EXPECT_TRUE(result.right()) << Describe(result);
      EXPECT_EQ(result.seconds, result.family == kFamilySm80 ? fused : separate);
    }
    EXPECT_EQ(choice.products, runs);
  }
}

TEST(SelfTestProductsTest, AnEngineOfFp32HasNone) {
  EmulatedDevice::State state;
  GpuSelfTestRequest request = Request(ModelNamed("Phi"));
  request.compute = ComputeType::kFloat32;
  FusedChoice choice;
  EXPECT_TRUE(TestProducts(request, {}, state, &choice).empty());
  EXPECT_FALSE(choice.products);
}

// All are right in each model, and both are timed.
TEST(SelfTestProductsTest, RightOnesRunInEachModel) {
  for (const TestedModel& model : TestedModels()) {
    SCOPED_TRACE(model.name);
    EmulatedDevice::State state;
    FusedChoice choice;
    const auto results = TestProducts(Request(model), {}, state, &choice);
    ASSERT_EQ(results.size(), 2u);
    for (const GpuKernelResult& result : results) {
      EXPECT_TRUE(result.right()) << Describe(result);
      EXPECT_GT(result.seconds, 0);
    }
    EXPECT_TRUE(choice.products);
  }
}

}  // namespace
}  // namespace pagoda::cuda
