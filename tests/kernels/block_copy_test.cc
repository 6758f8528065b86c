#include "kernels/block_copy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

namespace pagoda::kernels {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kSlots = 6;
constexpr uint64_t kSlotBytes = 96;
// 4 runs of 3 tokens of 8 bytes.
constexpr TokenRuns kRuns{.num_runs = 4, .run_bytes = 24, .token_bytes = 8};

std::vector<std::byte> RandomPool(uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> bytes(kSlots * kSlotBytes);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

BlockCopyParams Params(const std::vector<std::byte>& source, std::vector<std::byte>& target,
                       const std::vector<SlotCopy>& copies) {
  return {.source = source.data(),
          .target = target.data(),
          .source_slots = kSlots,
          .target_slots = kSlots,
          .slot_bytes = kSlotBytes,
          .copies = copies};
}

// The same, byte by byte.
std::vector<std::byte> Expected(const std::vector<std::byte>& source, std::vector<std::byte> target,
                                const std::vector<SlotCopy>& copies, uint64_t num_tokens) {
  for (const SlotCopy& copy : copies) {
    for (uint64_t i = 0; i < kSlotBytes; ++i) {
      if (i % kRuns.run_bytes / kRuns.token_bytes >= num_tokens) continue;
      target[copy.target * kSlotBytes + i] = source[copy.source * kSlotBytes + i];
    }
  }
  return target;
}

TEST(CopyBlocksTest, CopiesBetweenPools) {
  const std::vector<std::byte> source = RandomPool(1);
  std::vector<std::byte> target = RandomPool(2);
  const std::vector<SlotCopy> copies = {{5, 0}, {2, 3}, {5, 5}};
  const std::vector<std::byte> expected = Expected(source, target, copies, 3);
  ASSERT_TRUE(cpu::CopyBlocks(Params(source, target, copies)).ok());
  EXPECT_EQ(target, expected);
}

TEST(CopyBlocksTest, CopiesInsideAPool) {
  std::vector<std::byte> pool = RandomPool(3);
  const std::vector<SlotCopy> copies = {{1, 4}, {0, 2}};
  const std::vector<std::byte> expected = Expected(pool, pool, copies, 3);
  ASSERT_TRUE(cpu::CopyBlocks(Params(pool, pool, copies)).ok());
  EXPECT_EQ(pool, expected);
}

TEST(CopyBlockTokensTest, CopiesTheFirstTokensOfEveryRunOnly) {
  for (uint32_t num_tokens = 0; num_tokens <= 3; ++num_tokens) {
    const std::vector<std::byte> source = RandomPool(4);
    std::vector<std::byte> target = RandomPool(5);
    const std::vector<SlotCopy> copies = {{0, 5}, {3, 1}};
    const std::vector<std::byte> expected = Expected(source, target, copies, num_tokens);
    ASSERT_TRUE(cpu::CopyBlockTokens(Params(source, target, copies), kRuns, num_tokens).ok());
    EXPECT_EQ(target, expected) << num_tokens << " tokens";
  }
}

TEST(CopyBlocksTest, RefusesABadArgumentByNameAndCopiesNothing) {
  std::vector<std::byte> pool = RandomPool(6);
  const std::vector<std::byte> before = pool;
  const auto refused = [&](const std::vector<SlotCopy>& copies, const std::string& name) {
    const absl::Status status = cpu::CopyBlocks(Params(pool, pool, copies));
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_THAT(std::string(status.message()), HasSubstr(name));
  };
  refused({{0, 1}, {6, 2}}, "copies[1].source is slot 6");
  refused({{0, 1}, {2, 6}}, "copies[1].target is slot 6");
  refused({{0, 1}, {2, 2}}, "copies[1] copies slot 2 onto itself");
  EXPECT_EQ(pool, before);
}

TEST(CopyBlockTokensTest, RefusesRunsThatDoNotFit) {
  std::vector<std::byte> pool = RandomPool(7);
  const std::vector<SlotCopy> copies = {{0, 1}};
  const BlockCopyParams params = Params(pool, pool, copies);
  const auto message = [&](const TokenRuns& runs, uint32_t num_tokens) {
    return std::string(cpu::CopyBlockTokens(params, runs, num_tokens).message());
  };
  EXPECT_THAT(message(kRuns, 4), HasSubstr("num_tokens is 4"));
  EXPECT_THAT(message({.num_runs = 5, .run_bytes = 24, .token_bytes = 8}, 1), HasSubstr("runs"));
  EXPECT_THAT(message({.num_runs = 4, .run_bytes = 24, .token_bytes = 0}, 1),
              HasSubstr("token_bytes 0"));
}

}  // namespace
}  // namespace pagoda::kernels
