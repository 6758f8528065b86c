// The family of kernels that a call takes, and what the choice depends on.
#include "kernels/cuda/attention_choice.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <filesystem>
#include <string>

namespace pagoda::kernels::cuda {
namespace {

constexpr HopperChoice kNone = {};
constexpr HopperChoice kBoth = {.decode = true, .prefill = true};
const HopperDevice kH200 = {.present = true, .num_multiprocessors = 132, .name = "NVIDIA H200"};
const HopperDevice kA100 = {.present = false, .num_multiprocessors = 108, .name = "NVIDIA A100"};

TEST(AttentionChoiceTest, AutoTakesWhatIsProvedOnThisDeviceAndNothingElse) {
  const ProvedKernels other[] = {{.device = "NVIDIA H100 80GB HBM3",
                                  .hopper_decode = true,
                                  .hopper_prefill = true,
                                  .results = "h100.json"}};
  EXPECT_EQ(ChooseHopper(AttentionKernels::kAuto, kH200, {}), kNone);
  EXPECT_EQ(ChooseHopper(AttentionKernels::kAuto, kH200, other), kNone);
}

TEST(AttentionChoiceTest, DecodeAndPrefillAreDecidedApart) {
  const ProvedKernels decode[] = {{.device = "NVIDIA H200", .hopper_decode = true}};
  EXPECT_EQ(ChooseHopper(AttentionKernels::kAuto, kH200, decode),
            (HopperChoice{.decode = true, .prefill = false}));
  const ProvedKernels prefill[] = {{.device = "NVIDIA A100", .hopper_decode = true},
                                   {.device = "NVIDIA H200", .hopper_prefill = true}};
  EXPECT_EQ(ChooseHopper(AttentionKernels::kAuto, kH200, prefill),
            (HopperChoice{.decode = false, .prefill = true}));
}

TEST(AttentionChoiceTest, WhatIsAskedByNameIsTaken) {
  EXPECT_EQ(ChooseHopper(AttentionKernels::kHopper, kH200, {}), kBoth);
  const ProvedKernels all[] = {
      {.device = "NVIDIA H200", .hopper_decode = true, .hopper_prefill = true}};
  EXPECT_EQ(ChooseHopper(AttentionKernels::kAuto, kH200, all), kBoth);
  EXPECT_EQ(ChooseHopper(AttentionKernels::kSm80, kH200, all), kNone);
  EXPECT_EQ(ChooseHopper(AttentionKernels::kGeneric, kH200, all), kNone);
}

TEST(AttentionChoiceTest, ADeviceThatIsNoHopperHasNone) {
  const ProvedKernels wrong[] = {
      {.device = "NVIDIA A100", .hopper_decode = true, .hopper_prefill = true}};
  EXPECT_EQ(ChooseHopper(AttentionKernels::kAuto, kA100, wrong), kNone);
  EXPECT_EQ(ChooseHopper(AttentionKernels::kHopper, kA100, wrong), kNone);
}

// The family depends only on the call's types, shapes and strides; memory is not read.
TEST(AttentionChoiceTest, AFamilyIsNamedByWhatItsKernelsTake) {
  alignas(16) std::byte memory[16] = {};
  const auto family = [&](AttentionKernels kernels, ElementType query, ElementType pool,
                          uint32_t block = 16, uint32_t dim = 64) {
    const uint64_t row = dim * ElementBytes(pool);
    return FamilyOf({.query = memory,
                     .output = memory,
                     .query_type = query,
                     .query_token_stride = 8 * dim,
                     .output_token_stride = 8 * dim,
                     .num_heads = 8,
                     .kv = {.keys = memory,
                            .values = memory,
                            .type = pool,
                            .num_slots = 2,
                            .num_kv_heads = 2,
                            .tokens_per_block = block,
                            .head_dim = dim,
                            .slot_stride_bytes = 4 * block * row,
                            .head_stride_bytes = block * row,
                            .token_stride_bytes = row}},
                    kernels);
  };
  constexpr ElementType kBf16 = ElementType::kBFloat16;
  constexpr ElementType kFp32 = ElementType::kFloat32;
  EXPECT_EQ(family(AttentionKernels::kHopper, kBf16, kBf16), AttentionFamily::kHopper);
  EXPECT_EQ(family(AttentionKernels::kSm80, kBf16, kBf16), AttentionFamily::kSm80);
  EXPECT_EQ(family(AttentionKernels::kGeneric, kBf16, kBf16), AttentionFamily::kGeneric);
  EXPECT_EQ(family(AttentionKernels::kHopper, kBf16, kBf16, 12), AttentionFamily::kSm80);
  EXPECT_EQ(family(AttentionKernels::kHopper, kBf16, ElementType::kFloat8E4M3),
            AttentionFamily::kSm80);
  EXPECT_EQ(family(AttentionKernels::kHopper, kFp32, kFp32), AttentionFamily::kGeneric);
  EXPECT_EQ(family(AttentionKernels::kSm80, kBf16, kBf16, 16, 60), AttentionFamily::kGeneric);
}

// Fails if a row is added without its results.
TEST(AttentionChoiceTest, WhatCountsAsProvedHasItsResults) {
  const std::filesystem::path folder =
      std::filesystem::path(PAGODA_SOURCE_DIR) / "tests/gpu/results";
  if (!std::filesystem::exists(folder)) {
    EXPECT_TRUE(AllProved().empty()) << "there are no results";
  }
  for (const ProvedKernels& kernels : AllProved()) {
    EXPECT_FALSE(kernels.results.empty());
    EXPECT_TRUE(std::filesystem::is_regular_file(folder / kernels.results)) << kernels.results;
  }
}

}  // namespace
}  // namespace pagoda::kernels::cuda
