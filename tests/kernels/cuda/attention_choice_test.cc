// The family of kernels that a call takes, and what the choice depends on.
#include "kernels/cuda/attention_choice.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"

namespace pagoda::kernels::cuda {
namespace {

constexpr HopperChoice kNone = {};
constexpr HopperChoice kBoth = {.decode = true, .prefill = true};
constexpr HopperChoice kAll = {
    .decode = true, .decode_float8 = true, .prefill = true, .latent = true};
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
  const ProvedKernels float8[] = {{.device = "NVIDIA H200", .hopper_decode_float8 = true}};
  EXPECT_EQ(ChooseHopper(AttentionKernels::kAuto, kH200, float8),
            (HopperChoice{.decode_float8 = true}));
  const ProvedKernels latent[] = {{.device = "NVIDIA H200", .hopper_latent = true}};
  EXPECT_EQ(ChooseHopper(AttentionKernels::kAuto, kH200, latent), (HopperChoice{.latent = true}));
}

TEST(AttentionChoiceTest, WhatIsAskedByNameIsTaken) {
  EXPECT_EQ(ChooseHopper(AttentionKernels::kHopper, kH200, {}), kAll);
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
  const auto params = [&](ElementType query, ElementType pool, uint32_t block, uint32_t dim) {
    const uint64_t row = dim * ElementBytes(pool);
    return PagedAttentionParams{.query = memory,
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
                                       .token_stride_bytes = row}};
  };
  const auto family = [&](AttentionKernels kernels, ElementType query, ElementType pool,
                          uint32_t block = 16, uint32_t dim = 64) {
    return FamilyOf(params(query, pool, block, dim), kernels);
  };
  constexpr ElementType kBf16 = ElementType::kBFloat16;
  constexpr ElementType kFp32 = ElementType::kFloat32;
  EXPECT_EQ(family(AttentionKernels::kHopper, kBf16, kBf16), AttentionFamily::kHopper);
  EXPECT_EQ(family(AttentionKernels::kSm80, kBf16, kBf16), AttentionFamily::kSm80);
  EXPECT_EQ(family(AttentionKernels::kGeneric, kBf16, kBf16), AttentionFamily::kGeneric);
  EXPECT_EQ(family(AttentionKernels::kHopper, kBf16, kBf16, 12), AttentionFamily::kSm80);
  EXPECT_EQ(family(AttentionKernels::kHopper, kBf16, ElementType::kFloat8E4M3),
            AttentionFamily::kHopper);
  EXPECT_EQ(family(AttentionKernels::kHopper, kBf16, ElementType::kFloat8E5M2),
            AttentionFamily::kSm80);
  EXPECT_EQ(family(AttentionKernels::kHopper, kFp32, kFp32), AttentionFamily::kGeneric);
  EXPECT_EQ(family(AttentionKernels::kSm80, kBf16, kBf16, 16, 60), AttentionFamily::kGeneric);
  for (const uint32_t block : {16u, 12u}) {
    PagedAttentionParams latents = params(kBf16, kBf16, block, 576);
    latents.kv.value_dim = 512;
    EXPECT_EQ(FamilyOf(latents, AttentionKernels::kSm80), AttentionFamily::kLatent);
    const AttentionFamily hopper =
        block == 16 ? AttentionFamily::kHopper : AttentionFamily::kLatent;
    EXPECT_EQ(FamilyOf(latents, AttentionKernels::kHopper), hopper);
    EXPECT_EQ(FamilyOfLongItems(latents, AttentionKernels::kHopper), hopper);
  }
  // Long items have no Hopper kernel over 8 bits.
  EXPECT_EQ(
      FamilyOfLongItems(params(kBf16, ElementType::kFloat8E4M3, 16, 64), AttentionKernels::kHopper),
      AttentionFamily::kSm80);
  EXPECT_EQ(FamilyOfLongItems(params(kBf16, kBf16, 16, 64), AttentionKernels::kHopper),
            AttentionFamily::kHopper);
}

// One results.json of tests/gpu/run.sh.
struct Results {
  std::string gpu;
  std::map<std::string, double> figures;
};

Results ReadResults(const std::filesystem::path& file) {
  Results results;
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    char name[100] = "";
    double value = 0;
    if (std::sscanf(line.c_str(), R"({"date":%*[^,],"gpu":"%99[^,])", name) == 1) {
      results.gpu = name;
    } else if (std::sscanf(line.c_str(), R"({"figure": "%99[^"]", "value": %lf)", name, &value) ==
               2) {
      results.figures[name] = value;
    }
  }
  return results;
}

// The geometric mean of the Hopper kernels' figures, divided by those of the kernels for sm_80.
double MeanRatio(const Results& results, const std::string& shapes, int fewest = 12) {
  double logarithms = 0;
  int count = 0;
  for (const auto& [name, value] : results.figures) {
    const std::string hopper = absl::StrCat("gpu_hopper_", shapes);
    if (name.compare(0, hopper.size(), hopper) != 0) continue;
    const auto other = results.figures.find(absl::StrCat("gpu_", name.substr(11)));
    if (other == results.figures.end()) continue;
    logarithms += std::log(value / other->second);
    ++count;
  }
  EXPECT_GE(count, fewest) << shapes;
  return std::exp(logarithms / count);
}

// What the table says is what the figures of its results say.
TEST(AttentionChoiceTest, WhatCountsAsProvedWasFasterOnThatDevice) {
  for (const ProvedKernels& kernels : AllProved()) {
    const Results results = ReadResults(std::filesystem::path(PAGODA_SOURCE_DIR) /
                                        "tests/gpu/results" / std::string(kernels.results));
    EXPECT_EQ(results.gpu, kernels.device);
    // Figures of speed, but for small batches figures of time.
    EXPECT_EQ(kernels.hopper_decode,
              MeanRatio(results, "decode_bf16_") > 1 && MeanRatio(results, "decode_small_") < 1)
        << kernels.device;
    EXPECT_EQ(kernels.hopper_prefill, MeanRatio(results, "prefill_bf16_") > 1) << kernels.device;
    // The first results have no figures of 8 bits, and none of latents by the Hopper kernels.
    if (results.figures.count("gpu_hopper_decode_fp8_p16_kv4096_b128") != 0) {
      EXPECT_EQ(kernels.hopper_decode_float8, MeanRatio(results, "decode_fp8_", 4) > 1)
          << kernels.device;
    } else {
      EXPECT_FALSE(kernels.hopper_decode_float8) << kernels.device;
    }
    if (results.figures.count("gpu_hopper_decode_mla_h16_kv4096_b128") != 0) {
      EXPECT_EQ(kernels.hopper_latent, MeanRatio(results, "decode_mla_", 4) > 1) << kernels.device;
    } else {
      EXPECT_FALSE(kernels.hopper_latent) << kernels.device;
    }
  }
}

TEST(AttentionChoiceTest, AnH100TakesPrefillOnly) {
  const HopperDevice h100 = {
      .present = true, .num_multiprocessors = 132, .name = "NVIDIA H100 80GB HBM3"};
  EXPECT_EQ(ChooseHopper(AttentionKernels::kAuto, h100, AllProved()),
            (HopperChoice{.decode = false, .prefill = true}));
  EXPECT_EQ(ChooseHopper(AttentionKernels::kAuto, kH200, AllProved()), kAll);
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
