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

TEST(CopyBlocksTest, RefusesCopiesThatTouchEachOthersSlots) {
  std::vector<std::byte> pool = RandomPool(8), other = RandomPool(9);
  const std::vector<std::byte> before = pool, other_before = other;
  const auto message = [](const BlockCopyParams& params) {
    EXPECT_EQ(cpu::CopyBlockTokens(params, kRuns, 1).message(), cpu::CopyBlocks(params).message());
    return std::string(cpu::CopyBlocks(params).message());
  };
  const std::vector<SlotCopy> twice = {{0, 4}, {1, 5}, {2, 4}}, chain = {{0, 1}, {3, 5}, {1, 2}};
  EXPECT_THAT(message(Params(pool, pool, twice)), HasSubstr("slot 4 as target twice"));
  EXPECT_THAT(message(Params(pool, other, twice)), HasSubstr("slot 4 as target twice"));
  EXPECT_THAT(message(Params(pool, pool, chain)), HasSubstr("copies[2].source is slot 1"));
  EXPECT_EQ(pool, before);
  EXPECT_EQ(other, other_before);
  EXPECT_TRUE(cpu::CopyBlocks(Params(pool, other, chain)).ok());  // Slot 1 of another pool.
}

TEST(CopyBlocksTest, RefusesPoolsThatOverlapAndAreNotOne) {
  std::vector<std::byte> memory(2 * kSlots * kSlotBytes);
  const std::vector<SlotCopy> copies = {{0, 3}};
  BlockCopyParams params = Params(memory, memory, copies);
  for (const uint64_t offset : {uint64_t{1}, kSlotBytes, kSlots * kSlotBytes - 1}) {
    params.source = memory.data();
    params.target = memory.data() + offset;
    EXPECT_THAT(std::string(cpu::CopyBlocks(params).message()), HasSubstr("overlap"));
    params.source = memory.data() + offset;
    params.target = memory.data();
    EXPECT_THAT(std::string(cpu::CopyBlocks(params).message()), HasSubstr("overlap"));
  }
  params.source = memory.data() + kSlots * kSlotBytes;
  EXPECT_TRUE(cpu::CopyBlocks(params).ok());
}

// Slots of sizes near the units and streams into which a copy is divided. Some calls use stores
// that bypass the caches.
TEST(CopyBlocksTest, EverySizeOnEveryPathTheSameBytes) {
  cpu::ThreadPool threads(3);
  std::mt19937 random(10);
  for (const uint64_t slot_bytes :
       {uint64_t{1}, uint64_t{63}, uint64_t{64}, uint64_t{1000}, uint64_t{1024}, uint64_t{4160},
        uint64_t{65536}, uint64_t{65536 + 64}, uint64_t{3 << 16}, uint64_t{(1 << 20) + 1},
        uint64_t{1 << 20}}) {
    // The largest ones once more, in a call of more than 16 MiB.
    for (const uint32_t count : {3u, slot_bytes >= 1 << 20 ? 17u : 5u}) {
      std::vector<std::byte> source(slot_bytes * count), target(slot_bytes * (count + 1) + 64);
      for (uint64_t i = 0; i < source.size(); i += 1 + random() % 16) {
        source[i] = static_cast<std::byte>(random());
      }
      std::byte* aligned =
          target.data() + (-reinterpret_cast<uintptr_t>(target.data()) & uintptr_t{63});
      std::vector<SlotCopy> copies(count);
      for (uint32_t i = 0; i < count; ++i) copies[i] = {.source = i, .target = count - i};
      for (const cpu::Isa isa : {cpu::Isa::kPortable, cpu::Isa::kAvx2, cpu::Isa::kAvx512}) {
        if (isa > cpu::BestIsa()) continue;
        std::fill(target.begin(), target.end(), std::byte{0xee});
        ASSERT_TRUE(cpu::CopyBlocks({.source = source.data(),
                                     .target = aligned,
                                     .source_slots = count,
                                     .target_slots = count + 1,
                                     .slot_bytes = slot_bytes,
                                     .copies = copies},
                                    {.threads = &threads, .isa = isa})
                        .ok());
        const auto untouched = [](const std::byte* begin, const std::byte* end) {
          return std::all_of(begin, end, [](std::byte byte) { return byte == std::byte{0xee}; });
        };
        ASSERT_TRUE(untouched(aligned, aligned + slot_bytes));
        for (uint32_t i = 0; i < count; ++i) {
          ASSERT_TRUE(std::equal(source.data() + i * slot_bytes,
                                 source.data() + (i + 1) * slot_bytes,
                                 aligned + (count - i) * slot_bytes))
              << cpu::IsaName(isa) << ", slots of " << slot_bytes << ", copy " << i;
        }
        ASSERT_TRUE(untouched(aligned + (count + 1) * slot_bytes, target.data() + target.size()));
      }
    }
  }
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
