// The self-test of a GPU's kernels, on the emulation, for the architectures that need more than
// Llama does: each kernel that they need is tested, and a fault in it is found.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "engine/model/cuda/self_test/self_test.h"
#include "tests/engine/cuda/emulated_device.h"
#include "tests/engine/cuda/self_test_models.h"

namespace pagoda::cuda {
namespace {

using kernels::ElementType;
using kernels::PagedAttentionParams;
using kernels::cuda::AttentionExecution;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

GpuSelfTestReport TestKernels(const GpuSelfTestRequest& request,
                              const TestedKernels& kernels = {}) {
  EmulatedDevice::State state;
  EmulatedDevice device(&state);
  HostProducts products;
  return RunSelfTest(
      device, products, request, [](const GpuKernelResult&) {}, kernels);
}

// The small layers only.
GpuSelfTestRequest WithoutAttention(GpuSelfTestRequest request) {
  for (const char* part : {kAttentionDecode, kAttentionPrefill}) {
    for (const char* family : {kFamilySm80, kFamilyHopper, "latent", kFamilyGeneric}) {
      request.known.push_back({.part = part, .family = family, .outcome = GpuOutcome::kRight});
    }
  }
  return request;
}

// The parts of the report, and those that are wrong.
std::set<std::string> PartsOf(const GpuSelfTestReport& report) {
  std::set<std::string> parts;
  for (const GpuKernelResult& result : report.results) parts.insert(result.part);
  return parts;
}
std::set<std::string> WrongPartsOf(const GpuSelfTestReport& report) {
  std::set<std::string> parts;
  for (const GpuKernelResult& result : report.results) {
    if (result.outcome == GpuOutcome::kWrong) parts.insert(result.part);
  }
  return parts;
}

TEST(SelfTestModelsTest, EveryKernelOfEachArchitectureIsRight) {
  for (const TestedModel& model : TestedModels()) {
    for (const ElementType type : {ElementType::kBFloat16, ElementType::kFloat8E4M3}) {
      SCOPED_TRACE(model.name);
      const GpuSelfTestReport report = TestKernels(model.Request(type, 1 << 14));
      EXPECT_TRUE(report.Check().ok()) << report.Check();
      for (const GpuKernelResult& result : report.results) {
        EXPECT_TRUE(result.right()) << Describe(result);
      }
      const std::set<std::string> parts = PartsOf(report);
      for (const std::string& part : model.parts) EXPECT_THAT(parts, Contains(part));
    }
  }
}

TEST(SelfTestModelsTest, LatentsHaveAFamilyForAnyGpuAndOneForHopper) {
  std::vector<std::string> families;
  for (const GpuKernelResult& result :
       TestKernels(ModelNamed("DeepSeek").Request(ElementType::kBFloat16, 1 << 14)).results) {
    if (result.part == kAttentionPrefill) families.push_back(result.family);
  }
  EXPECT_EQ(families, (std::vector<std::string>{"latent", kFamilyHopper, kFamilyGeneric}));
}

// A model is not refused for a kernel that it does not run.
TEST(SelfTestModelsTest, AModelIsTestedForWhatItRunsOnly) {
  const std::set<std::string> parts = PartsOf(
      TestKernels(WithoutAttention(ModelNamed("Phi").Request(ElementType::kBFloat16, 1 << 14))));
  EXPECT_THAT(parts, Contains("rotary"));
  EXPECT_THAT(parts, Contains("row_lists"));
  for (const char* part : {"layer_norm", "gelu", "clamped_gate", "head_copy"}) {
    EXPECT_THAT(parts, Not(Contains(part)));
  }
}

// Runs the kernel, and then changes one number of its output.
void Spoil(const RowsView& rows) { rows.data[rows.stride + 1] += 0.01f; }

struct Fault {
  const char* name;
  const char* model;
  const char* part;  // The wrong part.
  std::function<void(TestedKernels&)> plant;
};

std::vector<Fault> NormAndActivationFaults() {
  return {
      {"layer norm without its mean", "Bloom", "layer_norm",
       [](TestedKernels& k) {
         k.layer_norm = [](const float* weights, const float*, float eps, const RowsView& input,
                           const RowsView& output, Stream stream) {
           return LaunchRmsNorm(weights, eps, input, output, stream);
         };
       }},
      {"layer norm not in place", "Bloom", "layer_norm",
       [](TestedKernels& k) {
         k.layer_norm = [](const float* weights, const float* bias, float eps,
                           const RowsView& input, const RowsView& output, Stream stream) {
           if (input.data == output.data) return 0;
           return LaunchLayerNorm(weights, bias, eps, input, output, stream);
         };
       }},
      {"gelu of one number", "Bloom", "gelu",
       [](TestedKernels& k) {
         k.gelu_tanh = [](const RowsView& rows, Stream stream) {
           const int error = LaunchGeluTanh(rows, stream);
           Spoil(rows);
           return error;
         };
       }},
      {"no gelu", "Bloom", "gelu",
       [](TestedKernels& k) { k.gelu_tanh = [](const RowsView&, Stream) { return 0; }; }},
      {"a gate that is not clamped", "gpt-oss", "clamped_gate",
       [](TestedKernels& k) {
         k.gate = [](const GateArgs& gate, const RowsView& input, const RowsView& output,
                     Stream stream) {
           GateArgs changed = gate;
           changed.limit = 1e6f;
           return LaunchGate(changed, input, output, stream);
         };
       }},
      {"a gate of another alpha", "gpt-oss", "clamped_gate",
       [](TestedKernels& k) {
         k.gate = [](const GateArgs& gate, const RowsView& input, const RowsView& output,
                     Stream stream) {
           GateArgs changed = gate;
           changed.alpha *= 1.01f;
           return LaunchGate(changed, input, output, stream);
         };
       }},
  };
}

std::vector<Fault> RotationFaults() {
  return {
      {"yarn's factor is not used", "gpt-oss", "rotary",
       [](TestedKernels& k) {
         k.angles = [](const int32_t* positions, uint64_t count, const float* frequencies, float,
                       const AnglesView& angles, Stream stream) {
           return LaunchAngles(positions, count, frequencies, 1.0f, angles, stream);
         };
       }},
      {"whole heads are rotated", "Phi", "rotary",
       [](TestedKernels& k) {
         k.rotate = [](const HeadRotation& rotation, const AnglesView& angles, const float* norm,
                       float eps, const RowsView& heads, Stream stream) {
           HeadRotation changed = rotation;
           changed.head_dim = 2 * angles.half_dim;
           return LaunchRotate(changed, angles, norm, eps, heads, stream);
         };
       }},
      {"halves instead of neighbours", "DeepSeek", "rotary",
       [](TestedKernels& k) {
         k.rotate = [](const HeadRotation& rotation, const AnglesView& angles, const float* norm,
                       float eps, const RowsView& heads, Stream stream) {
           HeadRotation changed = rotation;
           changed.neighbours = false;
           return LaunchRotate(changed, angles, norm, eps, heads, stream);
         };
       }},
      {"the first elements are rotated", "DeepSeek", "rotary",
       [](TestedKernels& k) {
         k.rotate = [](const HeadRotation& rotation, const AnglesView& angles, const float* norm,
                       float eps, const RowsView& heads, Stream stream) {
           HeadRotation changed = rotation;
           changed.first_element = 0;
           return LaunchRotate(changed, angles, norm, eps, heads, stream);
         };
       }},
  };
}

std::vector<Fault> HeadCopyAndRowListFaults() {
  return {
      {"heads are not copied", "DeepSeek", "head_copy",
       [](TestedKernels& k) {
         k.copy_heads = [](uint32_t, uint32_t, const HeadsView&, const HeadsView&, Stream) {
           return 0;
         };
       }},
      {"too much of each head is copied", "DeepSeek", "head_copy",
       [](TestedKernels& k) {
         k.copy_heads = [](uint32_t heads, uint32_t count, const HeadsView& input,
                           const HeadsView& output, Stream stream) {
           return LaunchCopyHeads(heads - 1, count + 1, input, output, stream);
         };
       }},
      {"rows are not cleared", "Phi", "row_lists",
       [](TestedKernels& k) { k.clear = [](const RowsView&, Stream) { return 0; }; }},
      {"a list ends early", "Phi", "row_lists",
       [](TestedKernels& k) {
         k.add_rows = [](const AddendLists& lists, const RowsView& addend, const RowsView& sum,
                         Stream stream) {
           std::vector<uint32_t> next(lists.next, lists.next + addend.rows);
           for (uint32_t& i : next) i = kNoAddend;
           AddendLists changed = lists;
           changed.next = next.data();
           return LaunchAddRows(changed, addend, sum, stream);
         };
       }},
      {"addends without factors", "Phi", "row_lists",
       [](TestedKernels& k) {
         k.add_rows = [](const AddendLists& lists, const RowsView& addend, const RowsView& sum,
                         Stream stream) {
           const std::vector<float> ones(addend.rows, 1.0f);
           AddendLists changed = lists;
           changed.factors = ones.data();
           return LaunchAddRows(changed, addend, sum, stream);
         };
       }},
  };
}

void ExpectFoundAndRefused(const std::vector<Fault>& faults) {
  for (const Fault& fault : faults) {
    SCOPED_TRACE(fault.name);
    TestedKernels kernels;
    fault.plant(kernels);
    const GpuSelfTestReport report = TestKernels(
        WithoutAttention(ModelNamed(fault.model).Request(ElementType::kBFloat16, 1 << 14)),
        kernels);
    EXPECT_EQ(WrongPartsOf(report), (std::set<std::string>{fault.part}));
    const absl::Status refusal = report.Check();
    EXPECT_EQ(refusal.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(refusal.message()), HasSubstr(fault.part));
  }
}

TEST(SelfTestModelsTest, AFaultInANormOrAnActivationIsFoundAndTheModelIsRefused) {
  ExpectFoundAndRefused(NormAndActivationFaults());
}

TEST(SelfTestModelsTest, AFaultInARotationIsFoundAndTheModelIsRefused) {
  ExpectFoundAndRefused(RotationFaults());
}

TEST(SelfTestModelsTest, AFaultInACopyOfHeadsOrASumOfRowsIsFoundAndTheModelIsRefused) {
  ExpectFoundAndRefused(HeadCopyAndRowListFaults());
}

// Attention that ignores one of its arguments.
TestedKernels Ignoring(const std::function<void(PagedAttentionParams&)>& change) {
  TestedKernels kernels;
  kernels.attention = [=](const PagedAttentionParams& params, const AttentionExecution& execution) {
    PagedAttentionParams changed = params;
    change(changed);
    return kernels::cuda::PagedAttention(changed, execution);
  };
  return kernels;
}

TEST(SelfTestModelsTest, AFaultInAttentionIsFoundInEveryFamily) {
  struct AttentionFault {
    const char* name;
    const char* model;
    ElementType type;
    std::function<void(PagedAttentionParams&)> change;
  };
  const std::vector<AttentionFault> faults = {
      {"no sinks", "gpt-oss", ElementType::kBFloat16,
       [](PagedAttentionParams& params) { params.sink_logits = nullptr; }},
      {"no ALiBi", "Bloom", ElementType::kBFloat16,
       [](PagedAttentionParams& params) { params.alibi_slopes = nullptr; }},
      {"K only of another token", "DeepSeek", ElementType::kBFloat16,
       [](PagedAttentionParams& params) {
         params.kv.keys -= params.kv.token_stride_bytes;
         params.kv.values = params.kv.keys;
       }},
      {"one scale for all slots", "Phi", ElementType::kFloat8E4M3,
       [](PagedAttentionParams& params) { params.kv.scales.slot_stride = 0; }},
      {"values of K only without scales", "DeepSeek", ElementType::kFloat8E4M3,
       [](PagedAttentionParams& params) { params.kv.scales.values = nullptr; }},
  };
  for (const AttentionFault& fault : faults) {
    SCOPED_TRACE(fault.name);
    const GpuSelfTestReport report =
        TestKernels(ModelNamed(fault.model).Request(fault.type, 1 << 14), Ignoring(fault.change));
    EXPECT_FALSE(report.Check().ok());
    int attended = 0;
    for (const GpuKernelResult& result : report.results) {
      const bool attends = result.part == kAttentionDecode || result.part == kAttentionPrefill;
      attended += attends ? 1 : 0;
      EXPECT_EQ(result.outcome == GpuOutcome::kWrong, attends) << Describe(result);
    }
    EXPECT_GE(attended, 2);
  }
}

TEST(SelfTestModelsTest, AFaultInTheCacheWriteIsFound) {
  const auto outcome = [](const char* model, ElementType type, const TestedKernels& kernels) {
    return WrongPartsOf(
        TestKernels(WithoutAttention(ModelNamed(model).Request(type, 1 << 14)), kernels));
  };
  const std::set<std::string> wrong = {"cache_write"};
  TestedKernels kernels;
  // K only: the last element of each key is not written.
  kernels.write_cache = [](const kernels::CacheWriteParams& params, Stream stream) {
    kernels::CacheWriteParams changed = params;
    --changed.kv.head_dim;
    changed.kv.value_dim = 0;
    return kernels::cuda::WriteCache(changed, stream);
  };
  EXPECT_EQ(outcome("DeepSeek", ElementType::kBFloat16, kernels), wrong);
  // Scales are raised, and the earlier tokens of the block stay as they were.
  kernels = {};
  kernels.fit_scales = [](const kernels::CacheWriteParams& params, Stream stream) {
    const uint64_t bytes =
        params.kv.num_slots * params.kv.slot_stride_bytes - params.kv.slot_stride_bytes / 2;
    const std::vector<std::byte> before(params.kv.keys, params.kv.keys + bytes);
    const absl::Status status = kernels::cuda::FitScales(params, stream);
    std::copy(before.begin(), before.end(), params.kv.keys);
    return status;
  };
  EXPECT_EQ(outcome("Phi", ElementType::kFloat8E4M3, kernels), wrong);
  EXPECT_EQ(outcome("DeepSeek", ElementType::kFloat8E4M3, kernels), wrong);
}

}  // namespace
}  // namespace pagoda::cuda
