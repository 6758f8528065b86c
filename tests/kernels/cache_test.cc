// The cache's operations: large ones, at the edge of memory, and refused ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernels/block_copy.h"
#include "kernels/cpu/cache/cache.h"
#include "kernels/cpu/vectors/convert_rows.h"
#include "tests/kernels/cache_model.h"
#include "tests/kernels/guarded_memory.h"
#include "tests/kernels/test_pool.h"

namespace pagoda::kernels {
namespace {

using ::testing::HasSubstr;

constexpr cpu::Isa kIsas[] = {cpu::Isa::kPortable, cpu::Isa::kAvx2, cpu::Isa::kAvx512,
                              cpu::Isa::kAvx512Bf16};

void ExpectRefused(const absl::Status& status, const std::string& name) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << name;
  EXPECT_THAT(std::string(status.message()), HasSubstr(name));
}

// Large enough and aligned for stores that bypass the caches. These exist from AVX2 on.
TEST(LargeCacheTest, PastTheCachesTheSameBytes) {
  for (const ElementType type : {ElementType::kBFloat16, ElementType::kFloat8E4M3}) {
    KvLayer kv{.type = type,
               .num_slots = type == ElementType::kBFloat16 ? 140u : 280u,
               .num_kv_heads = 8,
               .tokens_per_block = 32,
               .head_dim = 128};
    kv.token_stride_bytes = 128 * ElementBytes(type);
    kv.head_stride_bytes = 32 * kv.token_stride_bytes;
    kv.slot_stride_bytes = 2 * 8 * kv.head_stride_bytes;
    const uint64_t pool_bytes = kv.num_slots * kv.slot_stride_bytes;
    ASSERT_GT(pool_bytes, cpu::kPastCachesBytes);
    const GuardedMemory expected(pool_bytes), actual(pool_bytes);
    ASSERT_EQ(reinterpret_cast<uintptr_t>(actual.data()) % cpu::kStreamAlignment, 0u);
    const uint32_t tokens = (kv.num_slots - 1) * 32 + 5;
    const uint64_t rows_bytes = tokens * 1024 * sizeof(uint16_t);
    std::mt19937 random(1);
    std::vector<uint16_t> keys(tokens * 1024), values(keys.size());
    for (uint16_t& key : keys) key = static_cast<uint16_t>(random() & 0xbfff);  // Finite.
    for (uint16_t& value : values) value = static_cast<uint16_t>(random() & 0xbfff);
    const GuardedMemory back((rows_bytes + 4095) / 4096 * 4096);
    const std::vector<int32_t> table = ShuffledSlots(kv.num_slots, random);
    const std::vector<int32_t> starts = {0, static_cast<int32_t>(tokens)}, first = {0};
    cpu::ThreadPool threads(2);
    const auto fill = [&](const GuardedMemory& pool, const cpu::Execution& execution) {
      kv.keys = pool.data();
      kv.values = pool.data() + kv.slot_stride_bytes / 2;
      return cpu::FillCache({.rows = {.keys = keys.data(),
                                      .values = values.data(),
                                      .type = ElementType::kBFloat16,
                                      .key_token_stride = 1024,
                                      .value_token_stride = 1024},
                             .starts = starts,
                             .first_positions = first,
                             .block_tables = table,
                             .block_table_stride = table.size(),
                             .kv = kv},
                            execution);
    };
    ASSERT_TRUE(fill(expected, {.isa = cpu::Isa::kPortable}).ok());
    for (const cpu::Isa isa : kIsas) {
      if (isa > cpu::BestIsa()) continue;
      // Equally large, but not at the start of a line: the stores do not bypass the caches.
      const GuardedMemory between_lines(pool_bytes + 6);
      ASSERT_TRUE(fill(between_lines, {.threads = &threads, .isa = isa}).ok());
      ASSERT_EQ(std::memcmp(between_lines.data(), expected.data(), pool_bytes), 0);
      std::memset(actual.data(), 0, pool_bytes);
      ASSERT_TRUE(fill(actual, {.threads = &threads, .isa = isa}).ok());
      ASSERT_EQ(std::memcmp(actual.data(), expected.data(), pool_bytes), 0) << cpu::IsaName(isa);
      ASSERT_TRUE(cpu::GatherCache({.values = back.data(),
                                    .type = ElementType::kBFloat16,
                                    .starts = starts,
                                    .block_tables = table,
                                    .block_table_stride = table.size(),
                                    .kv = kv},
                                   {.threads = &threads, .isa = isa})
                      .ok());
      if (type != ElementType::kBFloat16) continue;
      ASSERT_EQ(std::memcmp(back.data(), values.data(), rows_bytes), 0) << cpu::IsaName(isa);
    }
  }
}

// A pool of 6 GiB, of which a few pages are touched: slots and elements beyond 2^32 bytes and
// beyond 2^31 elements.
TEST(LargeCacheTest, BeyondFourGigabytes) {
  constexpr uint64_t kBytes = uint64_t{6} << 30;
  const GuardedMemory memory(kBytes);
  KvLayer kv{.keys = memory.data(),
             .type = ElementType::kBFloat16,
             .num_kv_heads = 2,
             .tokens_per_block = 16,
             .head_dim = 64,
             .slot_stride_bytes = 8192,
             .head_stride_bytes = 2048,
             .token_stride_bytes = 128};
  kv.values = kv.keys + 4096;
  kv.num_slots = static_cast<uint32_t>(kBytes / kv.slot_stride_bytes);
  std::mt19937 random(2);
  const std::vector<std::byte> keys = RandomElements(ElementType::kBFloat16, 3 * 128, random);
  const std::vector<std::byte> values = RandomElements(ElementType::kBFloat16, 3 * 128, random);
  const CacheRows rows{.keys = keys.data(),
                       .values = values.data(),
                       .type = ElementType::kBFloat16,
                       .key_token_stride = 128,
                       .value_token_stride = 128};
  const uint32_t last = kv.num_slots - 1;
  const std::vector<int64_t> slots = {int64_t{last} * 16 + 15, int64_t{last} * 16 + 14,
                                      (int64_t{1} << 32) / 512};
  ASSERT_TRUE(cpu::WriteCache({.rows = rows, .token_slots = slots, .kv = kv}).ok());
  for (uint64_t n = 0; n < 3; ++n) {
    for (uint64_t head = 0; head < 2; ++head) {
      const auto token_slot = static_cast<uint64_t>(slots[n]);
      const uint64_t place = token_slot / 16 * 8192 + head * 2048 + token_slot % 16 * 128;
      EXPECT_EQ(std::memcmp(memory.data() + place, keys.data() + (n * 2 + head) * 128, 128), 0);
      EXPECT_EQ(
          std::memcmp(memory.data() + 4096 + place, values.data() + (n * 2 + head) * 128, 128), 0);
    }
  }
  const std::vector<SlotCopy> copies = {{last, last - 1}};
  ASSERT_TRUE(cpu::CopyBlocks({.source = kv.keys,
                               .target = kv.keys,
                               .source_slots = kv.num_slots,
                               .target_slots = kv.num_slots,
                               .slot_bytes = kv.slot_stride_bytes,
                               .copies = copies})
                  .ok());
  const std::vector<int32_t> starts = {0, 16}, table = {static_cast<int32_t>(last - 1)};
  std::vector<std::byte> gathered(16 * 256);
  ASSERT_TRUE(cpu::GatherCache({.values = gathered.data(),
                                .type = ElementType::kBFloat16,
                                .starts = starts,
                                .block_tables = table,
                                .block_table_stride = 1,
                                .kv = kv})
                  .ok());
  EXPECT_EQ(std::memcmp(gathered.data() + 15 * 256, values.data(), 256), 0);
  EXPECT_EQ(std::memcmp(gathered.data() + 14 * 256, values.data() + 256, 256), 0);
}

// Rows, pool and results that end in front of a page without access, or begin behind one.
TEST(GuardedCacheTest, NothingOutsideIsRead) {
  std::mt19937 random(3);
  for (const ElementType type : {ElementType::kFloat32, ElementType::kFloat16,
                                 ElementType::kBFloat16, ElementType::kFloat8E4M3}) {
    for (const uint32_t head_dim : {1u, 5u, 16u, 17u, 64u, 80u, 96u, 127u}) {
      const uint64_t part = 2 * 4 * head_dim * ElementBytes(type);
      const GuardedMemory pool(3 * 2 * part);
      KvLayer kv{.keys = pool.data(),
                 .values = pool.data() + part,
                 .type = type,
                 .num_slots = 3,
                 .num_kv_heads = 2,
                 .tokens_per_block = 4,
                 .head_dim = head_dim,
                 .slot_stride_bytes = 2 * part,
                 .head_stride_bytes = part / 2,
                 .token_stride_bytes = part / 8};
      for (const ElementType row_type : {ElementType::kFloat32, ElementType::kBFloat16}) {
        const uint64_t rows_bytes = 12 * 2 * head_dim * ElementBytes(row_type);
        const GuardedMemory keys(rows_bytes), values(rows_bytes), back(rows_bytes);
        const std::vector<std::byte> numbers = RandomElements(row_type, 24 * head_dim, random);
        std::memcpy(keys.data(), numbers.data(), rows_bytes);
        std::memcpy(values.data(), numbers.data(), rows_bytes);
        const std::vector<int32_t> starts = {0, 12}, first = {0}, table = {2, 0, 1};
        for (const cpu::Isa isa : kIsas) {
          if (isa > cpu::BestIsa()) continue;
          ASSERT_TRUE(cpu::FillCache({.rows = {.keys = keys.data(),
                                               .values = values.data(),
                                               .type = row_type,
                                               .key_token_stride = 2 * head_dim,
                                               .value_token_stride = 2 * head_dim},
                                      .starts = starts,
                                      .first_positions = first,
                                      .block_tables = table,
                                      .block_table_stride = 3,
                                      .kv = kv},
                                     {.isa = isa})
                          .ok());
          ASSERT_TRUE(cpu::GatherCache({.values = back.data(),
                                        .type = row_type,
                                        .starts = starts,
                                        .block_tables = table,
                                        .block_table_stride = 3,
                                        .kv = kv},
                                       {.isa = isa})
                          .ok());
          const float written = ReadElement(row_type, values.data(), 24 * head_dim - 1);
          const float read = ReadElement(row_type, back.data(), 24 * head_dim - 1);
          const float stored =
              VisitElementType(type, [&]<class T>() { return ToFloat(FromFloat<T>(written)); });
          EXPECT_EQ(read, VisitElementType(
                              row_type, [&]<class T>() { return ToFloat(FromFloat<T>(stored)); }));
        }
      }
    }
  }
}

TEST(WriteCacheTest, PaddingAloneLeavesThePoolAsItIs) {
  TestPool pool({.type = ElementType::kFloat8E5M2});
  const std::vector<std::byte> before = pool.bytes();
  const std::vector<float> data(3 * 64, 1.0f);
  const std::vector<int64_t> token_slots = {-1, -2, std::numeric_limits<int64_t>::min()};
  ASSERT_TRUE(cpu::WriteCache({.rows = {.keys = data.data(),
                                        .values = data.data(),
                                        .key_token_stride = 64,
                                        .value_token_stride = 64},
                               .token_slots = token_slots,
                               .kv = pool.kv()})
                  .ok());
  EXPECT_EQ(pool.bytes(), before);
}

TEST(WriteCacheTest, EightBitsSaturateAndRoundToNearestEvenOfTheScaled) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  struct Expectation {
    ElementType type;
    float scale;
    float value;
    float stored;
  };
  const Expectation expectations[] = {
      {ElementType::kFloat8E4M3, 1.0f, 449.0f, 448.0f},
      {ElementType::kFloat8E4M3, 1.0f, -1e9f, -448.0f},
      {ElementType::kFloat8E4M3, 1.0f, kInfinity, 448.0f},
      {ElementType::kFloat8E4M3, 0.5f, 300.0f, 448.0f},
      {ElementType::kFloat8E4M3, 2.0f, 600.0f, 288.0f},  // 300 is nearer to 288 than to 320.
      {ElementType::kFloat8E4M3, 1.0f, 17.0f, 16.0f},    // Between 16 and 18: to even.
      {ElementType::kFloat8E4M3, 1.0f, 19.0f, 20.0f},    // Between 18 and 20.
      {ElementType::kFloat8E4M3, 3.0f, 51.0f, 16.0f},    // 17 again.
      {ElementType::kFloat8E5M2, 1.0f, 57345.0f, 57344.0f},
      {ElementType::kFloat8E5M2, 1.0f, 1e6f, 57344.0f},
      {ElementType::kFloat8E5M2, 1.0f, -kInfinity, -57344.0f},
      {ElementType::kFloat8E5M2, 1.0f, 9.0f, 8.0f},  // Between 8 and 10: to even.
  };
  for (const Expectation& e : expectations) {
    TestPool pool({.type = e.type, .num_kv_heads = 1, .head_dim = 19});
    KvLayer kv = pool.kv();
    kv.scales.keys = kv.scales.values = &e.scale;
    const std::vector<float> row(19, e.value);
    const std::vector<int64_t> token_slots = {33};
    for (const cpu::Isa isa : kIsas) {
      if (isa > cpu::BestIsa()) continue;
      ASSERT_TRUE(cpu::WriteCache({.rows = {.keys = row.data(),
                                            .values = row.data(),
                                            .key_token_stride = 19,
                                            .value_token_stride = 19},
                                   .token_slots = token_slots,
                                   .kv = kv},
                                  {.isa = isa})
                      .ok());
      for (uint32_t i = 0; i < 19; ++i) {
        EXPECT_EQ(pool.Read(kv.keys, 33, 0, i), e.stored)
            << cpu::IsaName(isa) << ", " << e.value << " / " << e.scale;
      }
    }
  }
}

TEST(WriteCacheTest, APoolOfKeysAloneTakesNoValues) {
  TestPool pool({});
  KvLayer kv = pool.kv();
  const std::vector<float> row(64);
  const std::vector<int64_t> token_slots = {1};
  const CacheRows keys{.keys = row.data(), .key_token_stride = 64};
  CacheRows both = keys;
  both.values = row.data();
  both.value_token_stride = 64;
  ExpectRefused(cpu::WriteCache({.rows = keys, .token_slots = token_slots, .kv = kv}), "values");
  for (std::byte* values : {static_cast<std::byte*>(nullptr), kv.keys}) {
    kv.values = values;
    ExpectRefused(cpu::WriteCache({.rows = both, .token_slots = token_slots, .kv = kv}),
                  "values is set");
    EXPECT_TRUE(cpu::WriteCache({.rows = keys, .token_slots = token_slots, .kv = kv}).ok());
  }
}

TEST(FillCacheTest, RefusesABadArgumentByNameAndWritesNothing) {
  TestPool pool({});
  const std::vector<std::byte> before = pool.bytes();
  const std::vector<float> data(40 * 64);
  const std::vector<int32_t> starts = {0, 20, 21}, first = {0, 31};
  const std::vector<int32_t> tables = {3, 4, -1, 5, 6, -1};
  const CacheFillParams good{.rows = {.keys = data.data(),
                                      .values = data.data(),
                                      .key_token_stride = 64,
                                      .value_token_stride = 64},
                             .starts = starts,
                             .first_positions = first,
                             .block_tables = tables,
                             .block_table_stride = 3,
                             .kv = pool.kv()};
  const auto refused = [](const CacheFillParams& params, const std::string& name) {
    ExpectRefused(cpu::FillCache(params), name);
  };
  CacheFillParams bad = good;
  const std::vector<int32_t> from_one = {1, 20, 21}, descending = {0, 20, 19}, short_starts = {0};
  (bad = good).starts = from_one;
  refused(bad, "starts begins with 1");
  (bad = good).starts = descending;
  refused(bad, "starts descends at sequence 1");
  (bad = good).starts = short_starts;
  refused(bad, "starts has 1 entry");
  const std::vector<int32_t> negative = {0, -1}, behind = {0, 32}, far = {0, 48};
  (bad = good).first_positions = negative;
  refused(bad, "first_positions[1] is -1");
  (bad = good).first_positions = behind;
  refused(bad, "block_tables[1][2] is -1");
  (bad = good).first_positions = far;
  refused(bad, "block_tables has 3 entries a sequence; the 49 tokens of sequence 1 need 4");
  const std::vector<int32_t> outside = {3, 8, -1, 5, 6, -1};
  (bad = good).block_tables = outside;
  refused(bad, "block_tables[0][1] is 8");
  (bad = good).block_table_stride = 2;
  refused(bad, "block_tables has 6 entries");
  (bad = good).block_table_stride = 0;
  refused(bad, "block_tables has 6 entries");
  (bad = good).rows.type = ElementType::kFloat8E4M3;
  refused(bad, "keys has elements of 8 bits");
  (bad = good).rows.values = reinterpret_cast<const std::byte*>(data.data()) + 2;
  refused(bad, "values is at");
  (bad = good).kv.keys += 1;
  refused(bad, "kv.keys is at");
  (bad = good).kv.token_stride_bytes += 2;
  refused(bad, "kv.token_stride_bytes");
  (bad = good).kv.slot_stride_bytes -= 4096 + 4;
  refused(bad, "kv.slot_stride_bytes");
  (bad = good).kv.value_dim = 33;
  refused(bad, "kv.value_dim is 33");
  const float scale = 1.0f;
  (bad = good).kv.scales.keys = &scale;
  refused(bad, "kv.scales");
  (bad = good).kv.scales = {.per_head = true, .slot_stride = 1};
  refused(bad, "kv.scales.slot_stride is 1; a slot has 2 scales");
  EXPECT_EQ(pool.bytes(), before);
  EXPECT_TRUE(cpu::FillCache(good).ok()) << cpu::FillCache(good);
}

TEST(GatherCacheTest, RefusesABadArgumentByNameAndWritesNothing) {
  TestPool pool({});
  std::vector<float> keys(20 * 64, 7.0f), values = keys;
  const std::vector<float> before = keys;
  const std::vector<int32_t> starts = {0, 20, 20}, tables = {3, 4, -1, -1};
  const CacheGatherParams good{.keys = keys.data(),
                               .values = values.data(),
                               .starts = starts,
                               .block_tables = tables,
                               .block_table_stride = 2,
                               .kv = pool.kv()};
  const auto refused = [](const CacheGatherParams& params, const std::string& name) {
    ExpectRefused(cpu::GatherCache(params), name);
  };
  CacheGatherParams bad = good;
  bad.keys = bad.values = nullptr;
  refused(bad, "keys and values are null");
  (bad = good).kv.values = nullptr;
  refused(bad, "values is set");
  (bad = good).type = ElementType::kFloat8E5M2;
  refused(bad, "keys has elements of 8 bits");
  (bad = good).values = reinterpret_cast<std::byte*>(values.data()) + 1;
  refused(bad, "values is at");
  (bad = good).starts = {};
  refused(bad, "starts is empty");
  const std::vector<int32_t> longer = {0, 33, 33}, negative = {-1, 3, 4}, other = {3, 8, -1, -1};
  (bad = good).starts = longer;
  refused(bad, "the 33 tokens of sequence 0 need 3");
  (bad = good).starts = negative;
  refused(bad, "starts begins with -1");
  (bad = good).block_tables = other;
  refused(bad, "block_tables[0][1] is 8");
  (bad = good).block_table_stride = 1;
  refused(bad, "block_tables has 4 entries");
  EXPECT_EQ(keys, before);
  EXPECT_EQ(values, before);
  EXPECT_TRUE(cpu::GatherCache(good).ok());
}

}  // namespace
}  // namespace pagoda::kernels
