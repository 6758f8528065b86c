// Faults in the fused kernels are found by the self-test, and the engine then runs without them.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "engine/model/cuda/self_test/self_test.h"
#include "kernels/numeric.h"
#include "tests/engine/cuda/emulated_device.h"
#include "tests/engine/cuda/self_test_models.h"

namespace pagoda::cuda {
namespace {

using kernels::ElementType;

// Tests the fused kernels only: the outcome of everything else is known.
GpuSelfTestReport TestFused(GpuSelfTestRequest request, const TestedKernels& kernels = {}) {
  const char* const known[] = {"cache_write", "block_copy",   "products_bf16", "products_fp16",
                               "embedding",   "norm",         "gate",          "products_fp32",
                               "rows",        "row_lists",    "rounding",      "rotary",
                               "layer_norm",  "clamped_gate", "gelu",          "head_copy"};
  for (const char* part : {kAttentionDecode, kAttentionPrefill}) {
    for (const char* family : {kFamilySm80, kFamilyHopper, "latent", kFamilyGeneric}) {
      request.known.push_back({.part = part, .family = family, .outcome = GpuOutcome::kRight});
    }
  }
  for (const char* part : known) {
    for (const char* family : {"portable", "cublaslt"}) {
      request.known.push_back({.part = part, .family = family, .outcome = GpuOutcome::kRight});
    }
  }
  EmulatedDevice::State state;
  EmulatedDevice device(&state);
  HostProducts products;
  return RunSelfTest(
      device, products, request, [](const GpuKernelResult&) {}, kernels);
}

struct Fault {
  const char* name;
  const char* model;
  const char* part;
  std::function<void(TestedKernels&)> plant;
};

std::vector<Fault> FusedRowFaults() {
  return {
      {"an addend is not normed", "Phi", kFusedRows,
       [](TestedKernels& k) {
         k.add_norm = [](const AddNormArgs& args, Stream stream) {
           AddNormArgs changed = args;
           changed.addend_norm = nullptr;
           return LaunchAddNorm(changed, stream);
         };
       }},
      {"the sum is not kept", "Phi", kFusedRows,
       [](TestedKernels& k) {
         k.add_norm = [](const AddNormArgs& args, Stream stream) {
           const int error = LaunchAddNorm(args, stream);
           args.sum.data[1] -= 0.01f;
           return error;
         };
       }},
      {"16 bits are cut off instead of rounded", "gpt-oss", kFusedRows,
       [](TestedKernels& k) {
         k.gate = [](const GateArgs& gate, const RowsView& gate_up, const RowsView& output,
                     Stream stream) {
           const int error = LaunchGate(gate, gate_up, output, stream);
           if (output.type == ElementType::kBFloat16) {
             auto& bits = reinterpret_cast<uint16_t*>(output.data)[2];
             bits = static_cast<uint16_t>(bits + 2);
           }
           return error;
         };
       }},
      {"rows of 16 bits are taken as if they had 32", "Bloom", kFusedRows,
       [](TestedKernels& k) {
         k.take_rows = [](const uint32_t* rows, const RowsView& input, const RowsView& output,
                          Stream stream) {
           RowsView wide = input, target = output;
           wide.type = target.type = ElementType::kFloat32;
           target.cols = wide.cols = output.cols / 2;
           return LaunchTakeRows(rows, wide, target, stream);
         };
       }},
  };
}

std::vector<Fault> FusedHeadFaults() {
  return {
      {"keys are not rotated as queries are", "Phi", kFusedHeads,
       [](TestedKernels& k) {
         k.place_heads = [](const PlaceHeadsArgs& args, Stream stream) {
           PlaceHeadsArgs changed = args;
           changed.key_norm = args.query_norm;
           return LaunchPlaceHeads(changed, stream);
         };
       }},
      {"padding is written", "gpt-oss", kFusedHeads,
       [](TestedKernels& k) {
         k.place_heads = [](const PlaceHeadsArgs& args, Stream stream) {
           std::vector<int64_t> slots(args.token_slots, args.token_slots + args.keys.rows);
           for (int64_t& slot : slots) slot = slot < 0 ? 5 : slot;
           PlaceHeadsArgs changed = args;
           changed.token_slots = slots.data();
           return LaunchPlaceHeads(changed, stream);
         };
       }},
      {"values are written where keys belong", "Bloom", kFusedHeads,
       [](TestedKernels& k) {
         k.place_heads = [](const PlaceHeadsArgs& args, Stream stream) {
           PlaceHeadsArgs changed = args;
           changed.kv.values = args.kv.keys;
           return LaunchPlaceHeads(changed, stream);
         };
       }},
      {"angles are those of another row", "Phi", kFusedHeads,
       [](TestedKernels& k) {
         k.place_heads = [](const PlaceHeadsArgs& args, Stream stream) {
           PlaceHeadsArgs changed = args;
           changed.angles.sines = args.angles.cosines;
           return LaunchPlaceHeads(changed, stream);
         };
       }},
  };
}

std::vector<Fault> TokenDrawFaults() {
  return {
      {"the random number is not used", "Phi", kTokenDraws,
       [](TestedKernels& k) { k.draw = [](const DrawArgs&, Stream) { return 0; }; }},
      {"the weights are not summed", "Bloom", kTokenDraws,
       [](TestedKernels& k) {
         k.draw_weights = [](const DrawArgs& args, Stream) {
           std::fill_n(args.sums, args.logits.rows * args.blocks(), 1.0);
           return 0;
         };
       }},
      {"the most likely token is not the first one", "Phi", kTokenDraws,
       [](TestedKernels& k) {
         k.most_likely = [](const DrawArgs& args, Stream stream) {
           const int error = LaunchMostLikely(args, stream);
           ++args.tokens[0];
           return error;
         };
       }},
  };
}

TEST(SelfTestFusedTest, RightKernelsRunForEachModelAndPool) {
  for (const TestedModel& model : TestedModels()) {
    for (const ElementType type : {ElementType::kBFloat16, ElementType::kFloat16,
                                   ElementType::kFloat32, ElementType::kFloat8E4M3}) {
      SCOPED_TRACE(model.name);
      const GpuSelfTestReport report = TestFused(model.Request(type, 1 << 14));
      EXPECT_TRUE(report.Check().ok()) << report.Check();
      // Latents have separate kernels.
      const bool has_heads = !model.config.latent.has_value();
      EXPECT_EQ(report.fused(), (FusedChoice{.rows = true, .heads = has_heads}));
    }
  }
}

// Each fault is found, the part that has it is left out, and the model runs.
void ExpectLeftOut(const std::vector<Fault>& faults) {
  for (const Fault& fault : faults) {
    SCOPED_TRACE(fault.name);
    TestedKernels kernels;
    fault.plant(kernels);
    const GpuSelfTestReport report =
        TestFused(ModelNamed(fault.model).Request(ElementType::kBFloat16, 1 << 14), kernels);
    EXPECT_TRUE(report.Check().ok()) << report.Check();
    for (const GpuKernelResult& result : report.results) {
      if (result.part != kFusedRows && result.part != kFusedHeads && result.part != kTokenDraws) {
        continue;
      }
      EXPECT_EQ(result.outcome,
                result.part == std::string(fault.part) ? GpuOutcome::kWrong : GpuOutcome::kRuns)
          << Describe(result);
    }
    EXPECT_EQ(report.fused(), (FusedChoice{.rows = fault.part != std::string(kFusedRows),
                                           .heads = fault.part != std::string(kFusedHeads),
                                           .draws = fault.part != std::string(kTokenDraws)}));
  }
}

TEST(SelfTestFusedTest, AFaultInRowsLeavesThemOutAndTheModelRuns) {
  ExpectLeftOut(FusedRowFaults());
}

TEST(SelfTestFusedTest, AFaultInHeadsLeavesThemOutAndTheModelRuns) {
  ExpectLeftOut(FusedHeadFaults());
}

TEST(SelfTestFusedTest, AFaultInDrawsLeavesThemOutAndTheModelRuns) {
  ExpectLeftOut(TokenDrawFaults());
}

TEST(SelfTestFusedTest, WhatWasNotTestedDoesNotRun) {
  EXPECT_EQ(GpuSelfTestReport().fused(),
            (FusedChoice{.rows = false, .heads = false, .draws = false, .products = false}));
}

}  // namespace
}  // namespace pagoda::cuda
