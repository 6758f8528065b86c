// The self-test of a GPU's kernels, on the emulation: right kernels run, and faulty ones are left
// out.
#include "engine/model/cuda/self_test/self_test.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "tests/engine/cuda/emulated_device.h"

namespace pagoda::cuda {
namespace {

using kernels::ElementType;
using kernels::PagedAttentionParams;
using kernels::cuda::AttentionExecution;
using kernels::cuda::AttentionKernels;
using ::testing::AllOf;
using ::testing::HasSubstr;

// A small model: two kinds of layers, heads in groups of 4.
GpuSelfTestRequest Request(ElementType kv_type = ElementType::kBFloat16) {
  GpuSelfTestRequest request;
  request.config.num_heads = 8;
  request.config.head_dim = 32;
  request.config.query_scale = 1.0f / std::sqrt(32.0f);
  request.config.layers = {{.num_kv_heads = 2}, {.window = WindowSize(512), .num_kv_heads = 2}};
  request.config.rotaries = {RotaryConfig()};
  request.kv_type = kv_type;
  request.tokens_per_block = 16;
  request.timing_bytes = 1 << 14;
  return request;
}

class SelfTestTest : public testing::Test {
 protected:
  GpuSelfTestReport Run(const GpuSelfTestRequest& request, const TestedKernels& kernels = {}) {
    HostProducts products;
    return Run(request, products, kernels);
  }
  GpuSelfTestReport Run(const GpuSelfTestRequest& request, DeviceProducts& products,
                        const TestedKernels& kernels = {}) {
    EmulatedDevice device(&state_);
    return RunSelfTest(
        device, products, request,
        [this](const GpuKernelResult& result) { heard_.push_back(result); }, kernels);
  }

  // Attention that computes correctly, and then changes the output of one family.
  TestedKernels WithAttention(
      AttentionKernels family,
      const std::function<absl::Status(const PagedAttentionParams&)>& afterwards) {
    TestedKernels kernels;
    kernels.attention = [=](const PagedAttentionParams& params,
                            const AttentionExecution& execution) {
      const absl::Status status = kernels::cuda::PagedAttention(params, execution);
      if (!status.ok() || execution.kernels != family) return status;
      return afterwards(params);
    };
    return kernels;
  }

  static const GpuKernelResult& Of(const GpuSelfTestReport& report, const std::string& part,
                                   const std::string& family) {
    static const GpuKernelResult none;
    for (const GpuKernelResult& result : report.results) {
      if (result.part == part && result.family == family) return result;
    }
    ADD_FAILURE() << "no " << part << " by " << family;
    return none;
  }

  EmulatedDevice::State state_;
  std::vector<GpuKernelResult> heard_;
};

// One number of the first row becomes 2, which is no sum of values.
absl::Status Spoil(const PagedAttentionParams& params) {
  static_cast<uint16_t*>(params.output)[5] = 0x4000;
  return absl::OkStatus();
}

TEST_F(SelfTestTest, AllThatTheEngineRunsIsRight) {
  for (const ElementType type : {ElementType::kBFloat16, ElementType::kFloat16,
                                 ElementType::kFloat32, ElementType::kFloat8E4M3}) {
    const GpuSelfTestReport report = Run(Request(type));
    EXPECT_TRUE(report.Check().ok()) << report.Check();
    EXPECT_EQ(report.device, "cuda:0, emulated");
    for (const GpuKernelResult& result : report.results) {
      EXPECT_TRUE(result.right()) << Describe(result);
      EXPECT_LE(result.error, result.tolerance) << Describe(result);
    }
    for (const char* part :
         {"attention_decode", "attention_prefill", "cache_write", "block_copy", "products_bf16",
          "products_fp16", "products_fp32", "embedding", "norm", "rotary", "gate", "rows",
          "row_lists", "rounding", "fused_rows", "fused_products", "token_draws"}) {
      int runs = 0;
      for (const GpuKernelResult& result : report.results) {
        runs += result.part == part && result.outcome == GpuOutcome::kRuns ? 1 : 0;
      }
      EXPECT_EQ(runs, 1) << part;
    }
    EXPECT_EQ(state_.used_bytes, 0u);
  }
}

// fp32 pools have only the plain kernel. Whatever is requested, it is tested once.
TEST_F(SelfTestTest, FamiliesAreThoseOfTheTypesAndShapes) {
  const auto families = [&](const GpuSelfTestRequest& request) {
    std::vector<std::string> names;
    for (const GpuKernelResult& result : Run(request).results) {
      if (result.part == kAttentionDecode) names.push_back(result.family);
    }
    return names;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(families(Request()), (Names{"sm80", "hopper", "generic"}));
  EXPECT_EQ(families(Request(ElementType::kFloat32)), (Names{"generic"}));
  GpuSelfTestRequest request = Request();
  request.tokens_per_block = 12;  // Not for Hopper.
  EXPECT_EQ(families(request), (Names{"sm80", "generic"}));
  request = Request();
  request.attention = GpuAttention::kSm80;
  EXPECT_EQ(families(request), (Names{"sm80"}));
  request.attention = GpuAttention::kHopper;
  EXPECT_EQ(families(request), (Names{"hopper"}));
}

// A group of more than 16 query heads has no short items.
TEST_F(SelfTestTest, WhereNoItemIsShortThereIsNoDecode) {
  GpuSelfTestRequest request = Request();
  request.config.num_heads = 32;
  request.config.layers = {{.num_kv_heads = 1}};
  const GpuSelfTestReport report = Run(request);
  EXPECT_TRUE(report.Check().ok()) << report.Check();
  EXPECT_EQ(report.results.front().part, kAttentionPrefill);
  EXPECT_EQ(report.attention().decode, AttentionKernels::kAuto);
}

TEST_F(SelfTestTest, TheFastestThatIsRightRunsForDecodeAndPrefillApart) {
  TestedKernels kernels;
  kernels.attention = [this](const PagedAttentionParams& params,
                             const AttentionExecution& execution) {
    const bool hopper = execution.kernels == AttentionKernels::kHopper;
    const bool decode = !execution.capacity.long_items;
    state_.seconds = hopper == decode ? 1e-3 : 2e-3;
    return kernels::cuda::PagedAttention(params, execution);
  };
  const GpuSelfTestReport report = Run(Request(), kernels);
  EXPECT_EQ(report.attention(), (AttentionChoice{.decode = AttentionKernels::kHopper,
                                                 .prefill = AttentionKernels::kSm80}));
  EXPECT_DOUBLE_EQ(Of(report, kAttentionDecode, kFamilyHopper).seconds, 1e-3);
  EXPECT_EQ(Of(report, kAttentionDecode, kFamilySm80).outcome, GpuOutcome::kRight);
  EXPECT_EQ(Of(report, kAttentionDecode, kFamilyGeneric).seconds, 0) << "it is known to be slow";
}

TEST_F(SelfTestTest, AWrongFamilyIsLeftOutThoughItIsFaster) {
  TestedKernels kernels = WithAttention(AttentionKernels::kHopper, Spoil);
  kernels.attention = [this, attention = kernels.attention](const PagedAttentionParams& params,
                                                            const AttentionExecution& execution) {
    state_.seconds = execution.kernels == AttentionKernels::kHopper ? 1e-6 : 1e-3;
    return attention(params, execution);
  };
  const GpuSelfTestReport report = Run(Request(), kernels);
  EXPECT_TRUE(report.Check().ok()) << report.Check();
  EXPECT_EQ(report.attention(), (AttentionChoice{.decode = AttentionKernels::kSm80,
                                                 .prefill = AttentionKernels::kSm80}));
  const GpuKernelResult& hopper = Of(report, kAttentionDecode, kFamilyHopper);
  EXPECT_EQ(hopper.outcome, GpuOutcome::kWrong);
  EXPECT_GT(hopper.error, hopper.tolerance);
  EXPECT_THAT(Describe(hopper),
              AllOf(HasSubstr("attention_decode by hopper is left out: wrong: its error is"),
                    HasSubstr("above 0.01")));
}

TEST_F(SelfTestTest, NumbersThatAreNoneAreWrong) {
  const GpuSelfTestReport report =
      Run(Request(), WithAttention(AttentionKernels::kSm80, [](const PagedAttentionParams& params) {
            static_cast<uint16_t*>(params.output)[0] = 0x7fc0;
            return absl::OkStatus();
          }));
  EXPECT_EQ(Of(report, kAttentionPrefill, kFamilySm80).outcome, GpuOutcome::kWrong);
}

// Memory that a kernel does not write stays NaN.
TEST_F(SelfTestTest, AKernelThatDoesNothingIsWrong) {
  TestedKernels kernels;
  kernels.attention = [](const PagedAttentionParams&, const AttentionExecution&) {
    return absl::OkStatus();
  };
  kernels.write_cache = [](const kernels::CacheWriteParams&, Stream) { return absl::OkStatus(); };
  kernels.copy_blocks = [](const kernels::BlockCopyParams&, Stream) { return absl::OkStatus(); };
  kernels.embed = [](ElementType, const void*, const uint32_t*, float, const RowsView&, Stream) {
    return 0;
  };
  kernels.rms_norm = [](const float*, float, const RowsView&, const RowsView&, Stream) {
    return 0;
  };
  kernels.rotate = [](const HeadRotation&, const AnglesView&, const float*, float, const RowsView&,
                      Stream) { return 0; };
  kernels.gate = [](const GateArgs&, const RowsView&, const RowsView&, Stream) { return 0; };
  kernels.add = [](const RowsView&, const RowsView&, Stream) { return 0; };
  kernels.add_rows = [](const AddendLists&, const RowsView&, const RowsView&, Stream) { return 0; };
  kernels.widen = [](const RowsView&, const RowsView&, Stream) { return 0; };
  kernels.add_norm = [](const AddNormArgs&, Stream) { return 0; };
  kernels.place_heads = [](const PlaceHeadsArgs&, Stream) { return 0; };
  kernels.fused_product = [](const FusedProductArgs&, uint32_t, Stream) { return 0; };
  kernels.most_likely = kernels.draw_weights =
      kernels.draw = [](const DrawArgs&, Stream) { return 0; };
  class Nothing : public DeviceProducts {
   public:
    std::string name() const override { return "nothing"; }
    absl::Status Multiply(const DeviceProduct&, Stream) override { return absl::OkStatus(); }
  } products;
  const GpuSelfTestReport report = Run(Request(), products, kernels);
  for (const GpuKernelResult& result : report.results) {
    EXPECT_EQ(result.outcome, GpuOutcome::kWrong) << Describe(result);
  }
  EXPECT_EQ(report.attention(), AttentionChoice());
  EXPECT_FALSE(report.Check().ok());
}

// Each launch of the small layers is checked.
TEST_F(SelfTestTest, ScalesThatDoNotFitAreWrong) {
  TestedKernels kernels;
  kernels.fit_scales = [](const kernels::CacheWriteParams&, Stream) { return absl::OkStatus(); };
  const GpuSelfTestRequest request = Request(ElementType::kFloat8E5M2);
  EXPECT_TRUE(Of(Run(request), "cache_write", "portable").right());
  EXPECT_EQ(Of(Run(request, kernels), "cache_write", "portable").outcome, GpuOutcome::kWrong);
}

TEST_F(SelfTestTest, EachSmallLayerIsLookedAt) {
  GpuSelfTestRequest request = Request();
  for (const char* part : {kAttentionDecode, kAttentionPrefill}) {
    for (const char* family : {kFamilySm80, kFamilyHopper, kFamilyGeneric}) {
      request.known.push_back({.part = part, .family = family, .outcome = GpuOutcome::kRight});
    }
  }
  const auto outcome = [&](const TestedKernels& kernels, const char* part) {
    return Of(Run(request, kernels), part, "portable").outcome;
  };
  TestedKernels kernels;
  kernels.angles = [](const int32_t* positions, uint64_t count, const float* frequencies,
                      float factor, const AnglesView& angles, Stream stream) {
    const int error = LaunchAngles(positions, count, frequencies, factor, angles, stream);
    angles.sines[3 * angles.half_dim] += 0.01f;
    return error;
  };
  EXPECT_EQ(outcome(kernels, "rotary"), GpuOutcome::kWrong);
  kernels = {};
  kernels.add_bias = [](const float*, const RowsView&, Stream) { return 0; };
  EXPECT_EQ(outcome(kernels, "rows"), GpuOutcome::kWrong);
  kernels = {};
  kernels.soft_cap = [](float, const RowsView&, Stream) { return 0; };
  EXPECT_EQ(outcome(kernels, "rows"), GpuOutcome::kWrong);
  kernels = {};
  kernels.take_rows = [](const uint32_t* rows, const RowsView& input, const RowsView& output,
                         Stream stream) {
    const uint32_t wrong[] = {rows[1], rows[0], rows[2]};
    return LaunchTakeRows(wrong, input, output, stream);
  };
  EXPECT_EQ(outcome(kernels, "rows"), GpuOutcome::kWrong);
  kernels = {};
  // Towards zero instead of to nearest.
  kernels.round = [](ElementType type, const RowsView& rows, void* rounded, Stream stream) {
    const int error = LaunchRound(type, rows, rounded, stream);
    if (type == ElementType::kBFloat16) {
      for (uint64_t i = 0; i < rows.rows * rows.cols; ++i) {
        uint32_t bits;
        std::memcpy(&bits, rows.data + i, sizeof(bits));
        static_cast<uint16_t*>(rounded)[i] = static_cast<uint16_t>(bits >> 16);
      }
    }
    return error;
  };
  EXPECT_EQ(outcome(kernels, "rounding"), GpuOutcome::kWrong);
}

TEST_F(SelfTestTest, WhatFailsToLaunchIsLeftOutWithTheReason) {
  TestedKernels kernels;
  kernels.attention = [](const PagedAttentionParams& params, const AttentionExecution& execution) {
    if (execution.kernels == AttentionKernels::kHopper) {
      return absl::FailedPreconditionError("the device is not of compute capability 9.0");
    }
    if (execution.kernels == AttentionKernels::kSm80) {
      return absl::InternalError("cudaLaunchKernelEx: cudaErrorNoKernelImageForDevice");
    }
    return kernels::cuda::PagedAttention(params, execution);
  };
  const GpuSelfTestReport report = Run(Request(), kernels);
  EXPECT_TRUE(report.Check().ok()) << report.Check();
  EXPECT_EQ(report.attention(), (AttentionChoice{.decode = AttentionKernels::kGeneric,
                                                 .prefill = AttentionKernels::kGeneric}));
  EXPECT_EQ(Of(report, kAttentionDecode, kFamilyHopper).outcome, GpuOutcome::kUnsupported);
  const GpuKernelResult& sm80 = Of(report, kAttentionDecode, kFamilySm80);
  EXPECT_EQ(sm80.outcome, GpuOutcome::kFailed);
  EXPECT_THAT(sm80.why, HasSubstr("cudaErrorNoKernelImageForDevice"));
}

TEST_F(SelfTestTest, WhereEveryFamilyOfANeededPartIsWrongTheReportSaysSo) {
  TestedKernels kernels;
  kernels.attention = [](const PagedAttentionParams& params, const AttentionExecution& execution) {
    const absl::Status status = kernels::cuda::PagedAttention(params, execution);
    return status.ok() ? Spoil(params) : status;
  };
  const absl::Status status = Run(Request(), kernels).Check();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("cuda:0, emulated"), HasSubstr("attention_decode by sm80"),
                    HasSubstr("attention_decode by hopper"), HasSubstr("attention_prefill")));
}

// The daemon's copies use the copy engines, so the engine runs without that kernel.
TEST_F(SelfTestTest, ABlockCopyThatIsWrongIsToldAndDecidesNothing) {
  TestedKernels kernels;
  kernels.copy_blocks = [](const kernels::BlockCopyParams&, Stream) { return absl::OkStatus(); };
  const GpuSelfTestReport report = Run(Request(), kernels);
  EXPECT_EQ(Of(report, "block_copy", "portable").outcome, GpuOutcome::kWrong);
  EXPECT_TRUE(report.Check().ok()) << report.Check();
}

TEST_F(SelfTestTest, ProductsOfTooFewDigitsAreWrong) {
  class Rounded : public DeviceProducts {
   public:
    std::string name() const override { return "rounded"; }
    absl::Status Multiply(const DeviceProduct& product, Stream stream) override {
      const absl::Status status = HostProducts().Multiply(product, stream);
      for (uint64_t i = 0; i < product.rows * product.outputs; ++i) {
        product.output[i] = std::round(product.output[i] * 256) / 256;
      }
      return status;
    }
  } products;
  const GpuSelfTestReport report = Run(Request(), products);
  EXPECT_EQ(Of(report, "products_fp32", "cublaslt").outcome, GpuOutcome::kWrong);
  EXPECT_FALSE(report.Check().ok());
}

// A product type that the engine does not use is not tested.
TEST_F(SelfTestTest, ProductsAreThoseOfTheComputeType) {
  GpuSelfTestRequest request = Request();
  request.compute = ComputeType::kBFloat16;
  for (const GpuKernelResult& result : Run(request).results) {
    EXPECT_NE(result.part, "products_fp32");
    EXPECT_NE(result.part, "products_fp16");
  }
}

TEST_F(SelfTestTest, ADeviceThatIsLostRunsNothingMore) {
  int calls = 0;
  const TestedKernels kernels =
      WithAttention(AttentionKernels::kHopper, [&](const PagedAttentionParams&) {
        ++calls;
        state_.wait = absl::InternalError("cudaStreamSynchronize: cudaErrorIllegalAddress");
        return absl::OkStatus();
      });
  const GpuSelfTestReport report = Run(Request(), kernels);
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(Of(report, kAttentionDecode, kFamilySm80).right());
  EXPECT_EQ(Of(report, kAttentionDecode, kFamilyHopper).outcome, GpuOutcome::kFailed);
  const GpuKernelResult& norm = Of(report, "norm", "portable");
  EXPECT_EQ(norm.outcome, GpuOutcome::kFailed);
  EXPECT_THAT(norm.why, AllOf(HasSubstr("not run"), HasSubstr("cudaErrorIllegalAddress")));
  EXPECT_FALSE(report.Check().ok());
  // The observer is called only for families that ran.
  ASSERT_EQ(heard_.size(), 4u);
  EXPECT_EQ(heard_.back().family, kFamilyHopper);
}

TEST_F(SelfTestTest, MemoryThatIsShortIsAFailureAndLeavesNothing) {
  state_.device_bytes = 1 << 14;
  const GpuSelfTestReport report = Run(Request());
  const GpuKernelResult& decode = Of(report, kAttentionDecode, kFamilySm80);
  EXPECT_EQ(decode.outcome, GpuOutcome::kFailed);
  EXPECT_THAT(decode.why, HasSubstr("are free"));
  EXPECT_EQ(state_.used_bytes, 0u);
}

TEST_F(SelfTestTest, WhatIsKnownIsNotTestedAgain) {
  GpuSelfTestRequest request = Request();
  request.known = {{.part = kAttentionPrefill,
                    .family = kFamilyHopper,
                    .outcome = GpuOutcome::kTimeout,
                    .why = "it did not end in 10 s"}};
  bool ran = false;
  TestedKernels kernels;
  kernels.attention = [&](const PagedAttentionParams& params, const AttentionExecution& execution) {
    ran = ran || (execution.kernels == AttentionKernels::kHopper && execution.capacity.long_items);
    return kernels::cuda::PagedAttention(params, execution);
  };
  const GpuSelfTestReport report = Run(request, kernels);
  EXPECT_FALSE(ran);
  EXPECT_EQ(Of(report, kAttentionPrefill, kFamilyHopper), request.known[0]);
  EXPECT_TRUE(report.Check().ok()) << report.Check();
  // Each of the others is reported twice.
  EXPECT_EQ(heard_.size(), 2 * (report.results.size() - 1));
  EXPECT_EQ(heard_.front().outcome, GpuOutcome::kRunning);
}

// An engine needs no graphs, and uses them only if they were tested and right.
TEST_F(SelfTestTest, GraphsRunOnlyIfTheyGiveTheNumbersOfTheirLaunches) {
  GpuSelfTestRequest request = Request();
  const GpuSelfTestReport right = Run(request);
  EXPECT_TRUE(right.graphs());
  EXPECT_EQ(Of(right, kStepGraphs, "captured").outcome, GpuOutcome::kRuns);
  EXPECT_GT(state_.graph_launches, 0u);
  EXPECT_EQ(state_.graphs, 0u) << "none is left";
  EXPECT_FALSE(GpuSelfTestReport().graphs());
  for (const GpuKernelResult& result : right.results) {
    if (result.part != kStepGraphs) request.known.push_back(result);
  }
  const auto expect = [&](GpuOutcome outcome, const std::string& why) {
    const GpuSelfTestReport report = Run(request);
    EXPECT_EQ(Of(report, kStepGraphs, "captured").outcome, outcome);
    EXPECT_THAT(Of(report, kStepGraphs, "captured").why, HasSubstr(why));
    EXPECT_FALSE(report.graphs());
    EXPECT_TRUE(report.Check().ok()) << report.Check();
  };
  state_.graphs_run = false;
  expect(GpuOutcome::kWrong, "its error is");
  state_ = EmulatedDevice::State();
  state_.launch = absl::InternalError("no launch");
  expect(GpuOutcome::kFailed, "no launch");
  state_ = EmulatedDevice::State();
  state_.capture = absl::InternalError("no graph");
  expect(GpuOutcome::kFailed, "no graph");
}

}  // namespace
}  // namespace pagoda::cuda
