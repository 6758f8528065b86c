#include "tests/kernels/exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernels/cpu/attention/attention.h"
#include "tests/kernels/test_pool.h"

namespace pagoda::kernels {
namespace {

using ::testing::HasSubstr;

constexpr ExchangeForm kForms[] = {ExchangeForm::kSplitByX, ExchangeForm::kTransposed,
                                   ExchangeForm::kTiled32};

// A pool in which every byte is random.
void Randomize(TestPool& pool, uint32_t seed) {
  std::mt19937 random(seed);
  for (std::byte& byte : pool.bytes()) byte = static_cast<std::byte>(random());
}

// The index of element [head][token][i] of a block in the other form, from that form's nested
// loops: the indices of a contiguous array, from the slowest to the fastest.
uint64_t Index(std::initializer_list<std::pair<uint64_t, uint64_t>> index_of_size) {
  uint64_t flat = 0;
  for (const auto& [index, size] : index_of_size) flat = flat * size + index;
  return flat;
}

uint64_t PlaceOf(ExchangeForm form, const KvLayer& kv, uint64_t dim, uint64_t block, uint64_t head,
                 uint64_t token, uint64_t i) {
  const uint64_t H = kv.num_kv_heads, T = kv.tokens_per_block, B = 1000;
  switch (form) {
    case ExchangeForm::kSplitByX: {
      const uint64_t x = 16 / ElementBytes(kv.type);
      return Index({{block, B}, {head, H}, {i / x, dim / x}, {token, T}, {i % x, x}});
    }
    case ExchangeForm::kTransposed:
      return Index({{block, B}, {head, H}, {i, dim}, {token, T}});
    case ExchangeForm::kTiled32:
      return Index({{block, B},
                    {head, H},
                    {token / 32, T / 32},
                    {i / 32, dim / 32},
                    {token / 16 % 2, 2},
                    {i / 16 % 2, 2},
                    {token % 16, 16},
                    {i % 16, 16}});
  }
  return 0;
}

const std::byte* InPool(const KvLayer& kv, const std::byte* part, uint32_t slot, uint32_t head,
                        uint32_t token, uint64_t i) {
  return part + kv.offset_bytes(slot, head, token) + i * ElementBytes(kv.type);
}

struct Case {
  ElementType type;
  uint32_t tokens_per_block;
  uint32_t head_dim;
  uint32_t value_dim;
};

constexpr Case kCases[] = {{ElementType::kBFloat16, 32, 64, 0},
                           {ElementType::kFloat32, 64, 96, 32},
                           {ElementType::kFloat16, 128, 128, 0},
                           {ElementType::kFloat8E4M3, 32, 128, 64},
                           {ElementType::kFloat8E5M2, 32, 32, 0}};

TEST(ExchangeTest, PutsEachElementWhereItsFormSays) {
  for (const Case& c : kCases) {
    TestPool pool({.type = c.type,
                   .num_slots = 5,
                   .num_kv_heads = 3,
                   .tokens_per_block = c.tokens_per_block,
                   .head_dim = c.head_dim});
    Randomize(pool, 1);
    KvLayer kv = pool.kv();
    kv.value_dim = c.value_dim;
    const std::vector<uint32_t> slots = {4, 0, 2};
    for (const ExchangeForm form : kForms) {
      for (const std::byte* part : {kv.keys, kv.values}) {
        const uint64_t dim = part == kv.keys ? kv.head_dim : kv.value_elements();
        ExchangeParams params{.form = form, .part = part, .slots = slots, .kv = kv};
        ASSERT_EQ(ExchangeBytes(params), 3 * c.tokens_per_block * dim * ElementBytes(c.type));
        std::vector<std::byte> blocks(slots.size() * ExchangeBytes(params));
        params.blocks = blocks.data();
        ASSERT_TRUE(cpu::ExportBlocks(params).ok()) << cpu::ExportBlocks(params);
        for (uint32_t block = 0; block < slots.size(); ++block) {
          for (uint32_t head = 0; head < 3; ++head) {
            for (uint32_t token = 0; token < c.tokens_per_block; ++token) {
              for (uint64_t i = 0; i < dim; ++i) {
                const uint64_t place = PlaceOf(form, kv, dim, block, head, token, i);
                ASSERT_EQ(std::memcmp(blocks.data() + place * ElementBytes(c.type),
                                      InPool(kv, part, slots[block], head, token, i),
                                      ElementBytes(c.type)),
                          0)
                    << "form " << static_cast<int>(form) << ", block " << block << ", head " << head
                    << ", token " << token << ", element " << i;
              }
            }
          }
        }
      }
    }
  }
}

TEST(ExchangeTest, ComesBackByteForByteAndTouchesNothingElse) {
  for (const Case& c : kCases) {
    TestPool pool({.type = c.type,
                   .num_slots = 4,
                   .num_kv_heads = 2,
                   .tokens_per_block = c.tokens_per_block,
                   .head_dim = c.head_dim});
    Randomize(pool, 2);
    const std::vector<std::byte> before = pool.bytes();
    KvLayer kv = pool.kv();
    kv.value_dim = c.value_dim;
    const std::vector<uint32_t> slots = {3, 1};
    for (const ExchangeForm form : kForms) {
      ExchangeParams params{.form = form, .part = kv.values, .slots = slots, .kv = kv};
      const uint64_t size = slots.size() * ExchangeBytes(params);
      std::vector<std::byte> blocks(size + 2, std::byte{0x5a});
      params.blocks = blocks.data() + 1;  // Not aligned.
      ASSERT_TRUE(cpu::ExportBlocks(params).ok());
      EXPECT_EQ(blocks.front(), std::byte{0x5a});
      EXPECT_EQ(blocks.back(), std::byte{0x5a});
      // Values of other slots and all keys must not change. Exported bytes are imported again.
      for (const uint32_t slot : slots) {
        for (uint32_t head = 0; head < 2; ++head) {
          for (uint32_t token = 0; token < c.tokens_per_block; ++token) {
            std::memset(kv.values + kv.offset_bytes(slot, head, token), 0,
                        kv.value_elements() * ElementBytes(c.type));
          }
        }
      }
      ASSERT_NE(pool.bytes(), before);
      ASSERT_TRUE(cpu::ImportBlocks(params).ok());
      ASSERT_EQ(pool.bytes(), before) << "form " << static_cast<int>(form);
    }
  }
}

// vLLM's blocks, exchanged on load: K is split by x, V is transposed.
TEST(ExchangeTest, AttentionOverImportedBlocksIsThatOverTheTokensThemselves) {
  const Case c{ElementType::kBFloat16, 16, 64, 0};
  constexpr int32_t kContext = 59;  // In the slots 6, 0, 3 and 5.
  const std::vector<int32_t> table = {6, 0, 3, 5}, query_starts = {0, 2}, contexts = {kContext};
  const std::vector<uint32_t> slots = {6, 0, 3, 5};
  const PoolShape shape{.type = c.type, .num_kv_heads = 3, .tokens_per_block = 16, .head_dim = 64};
  TestPool written(shape), imported(shape);
  std::mt19937 random(4);
  const std::vector<float> queries = RandomFloats(2 * 6 * 64, random);
  for (const ExchangeForm form : {ExchangeForm::kSplitByX, ExchangeForm::kTransposed}) {
    const bool is_keys = form == ExchangeForm::kSplitByX;
    const std::byte* const part = is_keys ? written.kv().keys : written.kv().values;
    ExchangeParams params{.form = form,
                          .part = is_keys ? imported.kv().keys : imported.kv().values,
                          .slots = slots,
                          .kv = imported.kv()};
    // Behind the last token NaN.
    std::vector<std::byte> blocks(slots.size() * ExchangeBytes(params), std::byte{0xff});
    params.blocks = blocks.data();
    for (uint32_t t = 0; t < kContext; ++t) {
      for (uint32_t head = 0; head < 3; ++head) {
        for (uint64_t i = 0; i < 64; ++i) {
          const auto number = FromFloat<BFloat16>(RandomFloats(1, random).front());
          std::memcpy(
              const_cast<std::byte*>(InPool(written.kv(), part, slots[t / 16], head, t % 16, i)),
              &number, sizeof(number));
          std::memcpy(blocks.data() + 2 * PlaceOf(form, written.kv(), 64, t / 16, head, t % 16, i),
                      &number, sizeof(number));
        }
      }
    }
    ASSERT_TRUE(cpu::ImportBlocks(params).ok());
  }
  std::vector<std::vector<float>> outputs;
  for (const TestPool* const pool : {&written, &imported}) {
    std::vector<float>& output = outputs.emplace_back(2 * 6 * 64);
    ASSERT_TRUE(cpu::PagedAttention({.query = queries.data(),
                                     .output = output.data(),
                                     .query_token_stride = 6 * 64,
                                     .output_token_stride = 6 * 64,
                                     .num_heads = 6,
                                     .scale = 0.125f,
                                     .query_starts = query_starts,
                                     .context_lengths = contexts,
                                     .block_tables = table,
                                     .block_table_stride = table.size(),
                                     .kv = pool->kv()})
                    .ok());
    for (const float number : output) ASSERT_TRUE(std::isfinite(number));
  }
  EXPECT_EQ(outputs[0], outputs[1]);
}

TEST(ExchangeTest, OnSeveralThreadsTheSame) {
  TestPool pool({.type = ElementType::kBFloat16,
                 .num_slots = 40,
                 .num_kv_heads = 4,
                 .tokens_per_block = 32,
                 .head_dim = 64});
  Randomize(pool, 3);
  std::vector<uint32_t> slots(40);
  std::iota(slots.begin(), slots.end(), 0);
  cpu::ThreadPool threads(3);
  ExchangeParams params{.part = pool.kv().keys, .slots = slots, .kv = pool.kv()};
  std::vector<std::byte> one(40 * ExchangeBytes(params)), three(one.size());
  ASSERT_GT(one.size(), size_t{4} << 16);
  params.blocks = one.data();
  ASSERT_TRUE(cpu::ExportBlocks(params).ok());
  params.blocks = three.data();
  ASSERT_TRUE(cpu::ExportBlocks(params, {.threads = &threads}).ok());
  EXPECT_EQ(one, three);
}

TEST(ExchangeTest, RefusesABadArgumentByNameAndWritesNothing) {
  TestPool pool({.type = ElementType::kFloat16, .tokens_per_block = 32, .head_dim = 64});
  const std::vector<std::byte> before = pool.bytes();
  const std::vector<uint32_t> slots = {0, 7}, outside = {0, 8};
  std::vector<std::byte> blocks(2 * 2 * 32 * 64 * 2);
  const ExchangeParams good{
      .part = pool.kv().keys, .blocks = blocks.data(), .slots = slots, .kv = pool.kv()};
  const auto refused = [](const ExchangeParams& params, const std::string& name) {
    for (const absl::Status& status : {cpu::ExportBlocks(params), cpu::ImportBlocks(params)}) {
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << name;
      EXPECT_THAT(std::string(status.message()), HasSubstr(name));
    }
  };
  ExchangeParams bad = good;
  (bad = good).slots = outside;
  refused(bad, "slots[1] is 8");
  (bad = good).part = nullptr;
  refused(bad, "part");
  (bad = good).part = pool.kv().keys + 2;
  refused(bad, "part");
  (bad = good).blocks = nullptr;
  refused(bad, "blocks");
  (bad = good).kv.head_dim = 60;
  refused(bad, "kv.head_dim is 60, not a multiple of 8");
  bad.form = ExchangeForm::kTiled32;
  bad.kv.head_dim = 48;
  refused(bad, "kv.head_dim is 48, not a multiple of 32");
  (bad = good).form = ExchangeForm::kTiled32;
  bad.kv.tokens_per_block = 16;
  refused(bad, "kv.tokens_per_block is 16");
  EXPECT_EQ(pool.bytes(), before);
  EXPECT_TRUE(cpu::ImportBlocks(good).ok());
}

}  // namespace
}  // namespace pagoda::kernels
