// Attention of random shapes with every instruction set, compared with the fp64 reference.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>

#include "tests/kernels/attention_batch.h"

namespace pagoda::kernels {
namespace {

constexpr uint32_t kSeeds = kShortForm ? 160 : 2000;
constexpr uint32_t kShards = 4;

// A plan with cuts in unusual places, so that parts are merged in small shapes too.
AttentionPlan RandomPlan(const AttentionBatch& batch, std::mt19937& random) {
  return PlanAttention(batch.plan_shape(),
                       {.num_workers = 1 + static_cast<uint32_t>(random() % 5),
                        .query_tokens = 1 + static_cast<uint32_t>(random() % 20),
                        .split_tokens = 1 + static_cast<uint32_t>(random() % 100),
                        .split_query_tokens = 1 + static_cast<uint32_t>(random() % 8)});
}

// The number of shapes that a shard must run, set by the build: PAGODA_LEAST_SHAPES, or 1.
uint32_t LeastShapes() {
  const char* least = std::getenv("PAGODA_LEAST_SHAPES");
  return least == nullptr ? 1 : static_cast<uint32_t>(std::strtoul(least, nullptr, 10));
}

class AttentionRandomTest : public testing::TestWithParam<uint32_t> {};

TEST_P(AttentionRandomTest, AgreesWithTheReference) {
  cpu::ThreadPool threads(3);
  uint32_t shapes = 0;
  uint32_t comparisons = 0;
  for (uint32_t i = 0; i < kSeeds; ++i) {
    const uint32_t seed = i * kShards + GetParam();
    std::mt19937 random(seed);
    const AttentionBatch batch(RandomBatchShape(random, i % 8 == 0 ? 700 : 120), random);
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + batch.shape().Describe());
    const AttentionRows expected = batch.Expected();
    const AttentionPlan plan = RandomPlan(batch, random);
    for (const cpu::Isa isa : Isas()) {
      SCOPED_TRACE(std::string(IsaName(isa)));
      const Runner runner = {
          .isa = isa,
          .decode_isa = random() % 2 == 0 ? isa : cpu::Isa::kAvx2,
          .fetch = random() % 2 == 0 ? cpu::FetchAhead::kNear : cpu::FetchAhead::kFar,
          .threads = random() % 2 == 0 ? &threads : nullptr,
          .plan = random() % 2 == 0 ? &plan : nullptr};
      SCOPED_TRACE("decode by " + std::string(IsaName(runner.decode_isa)) + ", fetched " +
                   std::string(FetchAheadName(runner.fetch)) +
                   (runner.threads == nullptr ? "" : ", on threads") +
                   (runner.plan == nullptr ? ", its own plan" : ", a random plan"));
      ExpectClose(batch, batch.Run(runner), expected, ToleranceOf(batch.shape(), isa));
      if (HasFailure()) return;
      ++comparisons;
      if (cpu::BestMatrixUnit() == cpu::MatrixUnit::kNone || isa < cpu::Isa::kAvx512) continue;
      Runner with_amx = runner;
      with_amx.matrices = cpu::BestMatrixUnit();
      SCOPED_TRACE("with AMX");
      ExpectClose(batch, batch.Run(with_amx), expected,
                  ToleranceOf(batch.shape(), isa, with_amx.matrices));
      if (HasFailure()) return;
      ++comparisons;
    }
    ++shapes;
  }
  std::printf("%u random shapes, %u comparisons\n", shapes, comparisons);
  RecordProperty("shapes", static_cast<int>(shapes));
  EXPECT_GE(shapes, LeastShapes());
}

INSTANTIATE_TEST_SUITE_P(Shards, AttentionRandomTest, testing::Range(0u, kShards));

}  // namespace
}  // namespace pagoda::kernels
