// The GPU's attention against the fp64 reference, on whatever device_memory.h stands for.
#include <gtest/gtest.h>

#include "tests/kernels/cuda/attention_case.h"

namespace pagoda::kernels::cuda {
namespace {

std::string Check(const AttentionCase& attention_case) {
  AttentionData data(attention_case);
  const absl::StatusOr<AttentionResult> result = data.Run();
  if (!result.ok()) return attention_case.Describe() + ": " + result.status().ToString();
  const std::string difference = Compare(attention_case, *result, data.Reference());
  return difference.empty() ? "" : attention_case.Describe() + ": " + difference;
}

TEST(CudaAttentionTest, Generic) {
  EXPECT_EQ(Check({.lengths = {{1, 40}, {3, 20}}, .kernels = AttentionKernels::kGeneric}), "");
}
TEST(CudaAttentionTest, Decode) {
  EXPECT_EQ(Check({.lengths = {{1, 40}, {1, 1}, {1, 300}}}), "");
  EXPECT_EQ(Check({.head_dim = 128, .lengths = {{1, 40}, {1, 1}, {1, 300}}}), "");
  EXPECT_EQ(Check({.group = 16, .head_dim = 256, .lengths = {{1, 40}, {1, 1}, {1, 300}}}), "");
}
TEST(CudaAttentionTest, DecodeFp8) {
  EXPECT_EQ(Check({.pool_type = ElementType::kFloat8E4M3, .lengths = {{1, 40}, {1, 1}, {1, 300}}}),
            "");
  EXPECT_EQ(Check({.pool_type = ElementType::kFloat8E5M2,
                   .head_dim = 128,
                   .lengths = {{1, 40}, {1, 1}, {1, 300}}}),
            "");
  EXPECT_EQ(Check({.query_type = ElementType::kFloat16,
                   .pool_type = ElementType::kFloat8E5M2,
                   .group = 16,
                   .head_dim = 256,
                   .lengths = {{1, 40}, {1, 1}, {1, 300}}}),
            "");
}
TEST(CudaAttentionTest, Prefill) {
  EXPECT_EQ(Check({.lengths = {{40, 40}, {1, 1}, {20, 150}}}), "");
  EXPECT_EQ(Check({.head_dim = 128, .lengths = {{40, 40}, {1, 1}, {20, 150}}}), "");
  EXPECT_EQ(Check({.group = 16, .head_dim = 256, .lengths = {{40, 40}, {1, 1}, {20, 150}}}), "");
}
TEST(CudaAttentionTest, PrefillFp8) {
  EXPECT_EQ(
      Check({.pool_type = ElementType::kFloat8E4M3, .lengths = {{40, 40}, {1, 1}, {20, 150}}}), "");
  EXPECT_EQ(Check({.query_type = ElementType::kFloat16,
                   .pool_type = ElementType::kFloat8E5M2,
                   .head_dim = 128,
                   .lengths = {{40, 40}, {1, 1}, {20, 150}}}),
            "");
}

}  // namespace
}  // namespace pagoda::kernels::cuda
