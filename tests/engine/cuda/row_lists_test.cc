// The backend's lists of rows: each addition has its own lists, while earlier ones may still run.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "engine/model/backend/backend.h"
#include "tests/base/require.h"
#include "tests/engine/cuda/test_backend.h"

namespace pagoda {
namespace {

// Adapters add rows many times in a step, and nothing waits for the device between. On a GPU, lists
// that overwrite those of an addition that has not run yet change its result.
TEST(CudaRowListsTest, EachAdditionHasItsOwnLists) {
  if (const std::string why = WhyNoBackend(); !why.empty()) GTEST_SKIP() << why;
  constexpr uint64_t kCols = 512, kAddends = 24, kSums = 8, kAdditions = 40;
  std::mt19937 random(5);
  // Small whole numbers: sums are exact in any order.
  std::vector<float> table(kAddends * kCols);
  for (float& number : table) number = static_cast<float>(random() % 15) - 7;

  const auto backend = MakeTestBackend(ComputeType::kFloat32);
  const TensorInfo matrix = {
      .type = TensorType::kFloat32,
      .shape = {kAddends, kCols},
      .bytes = {reinterpret_cast<const std::byte*>(table.data()), table.size() * sizeof(float)}};
  const auto embedding = Require(backend->MakeEmbedding(matrix));
  const FloatMemory addends = Require(backend->Allocate(kAddends * kCols));
  const FloatMemory sums = Require(backend->Allocate(kSums * kCols));
  const RowsView addend = {.data = addends.get(), .stride = kCols, .rows = kAddends, .cols = kCols};
  const RowsView sum = {.data = sums.get(), .stride = kCols, .rows = kSums, .cols = kCols};

  ModelInput input;
  for (uint32_t i = 0; i < kAddends; ++i) {
    input.tokens.push_back(i);
    input.positions.push_back(static_cast<int32_t>(i));
  }
  input.query_starts = {0, int32_t{kAddends}};
  input.context_lengths = {int32_t{kAddends}};
  const ModelConfig config = {.num_heads = 1, .head_dim = 64};
  backend->BeginStep(input, config);
  backend->Embed(*embedding, 1.0f, addend);
  backend->Clear(sum);
  std::vector<float> expected(kSums * kCols);
  for (uint64_t a = 0; a < kAdditions; ++a) {
    // There are at most as many rows as addends.
    std::vector<uint32_t> rows(1 + random() % kAddends);
    std::vector<float> factors(rows.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      rows[i] = static_cast<uint32_t>(random() % kSums);
      factors[i] = static_cast<float>(1 + random() % 4);
      for (uint64_t c = 0; c < kCols; ++c) {
        expected[rows[i] * kCols + c] += factors[i] * table[i * kCols + c];
      }
    }
    backend->AddRows(rows, factors,
                     {.data = addend.data, .stride = kCols, .rows = rows.size(), .cols = kCols},
                     sum);
  }
  const absl::Span<const float> result = backend->ToHost(sum);
  EXPECT_EQ(std::vector<float>(result.begin(), result.end()), expected);
  EXPECT_TRUE(backend->EndStep(/*soft_cap=*/0, {}).ok());
}

}  // namespace
}  // namespace pagoda
