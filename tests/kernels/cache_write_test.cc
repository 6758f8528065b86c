#include "kernels/cpu/cache/cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>

#include "tests/kernels/test_pool.h"

namespace pagoda::kernels {
namespace {

using ::testing::HasSubstr;

constexpr ElementType kTypes[] = {ElementType::kFloat32, ElementType::kFloat16,
                                  ElementType::kBFloat16};

float Rounded(ElementType type, float value) {
  return VisitElementType(type, [&]<class T>() { return ToFloat(FromFloat<T>(value)); });
}

TEST(WriteCacheTest, PutsEachTokenIntoItsTokenSlotAndTouchesNothingElse) {
  std::mt19937 random(1);
  for (const ElementType type : kTypes) {
    const PoolShape shape{.type = type, .num_kv_heads = 3, .tokens_per_block = 8, .head_dim = 5};
    TestPool pool(shape);
    const std::vector<int64_t> token_slots = {63, -1, 0, 17, -9, 16, 40};
    const uint64_t row = uint64_t{shape.num_kv_heads} * shape.head_dim;
    const std::vector<float> keys = RandomFloats(token_slots.size() * row, random);
    const std::vector<float> values = RandomFloats(token_slots.size() * row, random);
    ASSERT_TRUE(cpu::WriteCache({.rows = {.keys = keys.data(),
                                          .values = values.data(),
                                          .key_token_stride = row,
                                          .value_token_stride = row},
                                 .token_slots = token_slots,
                                 .kv = pool.kv()})
                    .ok());
    uint64_t written = 0;
    for (int64_t token_slot = 0; token_slot < 64; ++token_slot) {
      const auto it = std::find(token_slots.begin(), token_slots.end(), token_slot);
      const bool named = it != token_slots.end();
      const auto n = static_cast<uint64_t>(it - token_slots.begin());
      written += named ? 1 : 0;
      for (uint32_t head = 0; head < shape.num_kv_heads; ++head) {
        for (uint32_t i = 0; i < shape.head_dim; ++i) {
          const float key = pool.Read(pool.kv().keys, token_slot, head, i);
          const float value = pool.Read(pool.kv().values, token_slot, head, i);
          if (!named) {
            ASSERT_TRUE(std::isnan(key) && std::isnan(value)) << "token slot " << token_slot;
            continue;
          }
          const uint64_t source = n * row + head * shape.head_dim + i;
          ASSERT_EQ(key, Rounded(type, keys[source]));
          ASSERT_EQ(value, Rounded(type, values[source]));
        }
      }
    }
    EXPECT_EQ(written, 5u);
  }
}

TEST(WriteCacheTest, FollowsTheTokenStrides) {
  std::mt19937 random(2);
  TestPool pool({.num_kv_heads = 1, .head_dim = 4});
  const std::vector<float> fused = RandomFloats(3 * 11, random);
  const std::vector<int64_t> token_slots = {5, 6, 7};
  ASSERT_TRUE(cpu::WriteCache({.rows = {.keys = fused.data(),
                                        .values = fused.data() + 4,
                                        .key_token_stride = 11,
                                        .value_token_stride = 11},
                               .token_slots = token_slots,
                               .kv = pool.kv()})
                  .ok());
  for (uint64_t n = 0; n < 3; ++n) {
    EXPECT_EQ(pool.Read(pool.kv().keys, token_slots[n], 0, 3), fused[n * 11 + 3]);
    EXPECT_EQ(pool.Read(pool.kv().values, token_slots[n], 0, 3), fused[n * 11 + 7]);
  }
}

TEST(WriteCacheTest, RefusesABadArgumentByNameAndWritesNothing) {
  TestPool pool({});
  const std::vector<std::byte> before = pool.bytes();
  const std::vector<float> data(2 * 64);
  const std::vector<int64_t> token_slots = {0, 127};
  const CacheWriteParams good{.rows = {.keys = data.data(),
                                       .values = data.data(),
                                       .key_token_stride = 64,
                                       .value_token_stride = 64},
                              .token_slots = token_slots,
                              .kv = pool.kv()};
  const auto refused = [](const CacheWriteParams& params, const std::string& name) {
    const absl::Status status = cpu::WriteCache(params);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_THAT(std::string(status.message()), HasSubstr(name));
  };
  const std::vector<int64_t> outside = {0, 128};
  CacheWriteParams bad = good;
  bad.token_slots = outside;
  refused(bad, "token_slots[1] is 128");
  (bad = good).rows.keys = nullptr;
  refused(bad, "keys");
  (bad = good).rows.value_token_stride = 63;
  refused(bad, "value_token_stride");
  (bad = good).kv.token_stride_bytes = 127;
  refused(bad, "token_stride_bytes");
  (bad = good).kv.head_dim = 0;
  refused(bad, "head_dim");
  EXPECT_EQ(std::memcmp(before.data(), pool.bytes().data(), before.size()), 0);
  EXPECT_TRUE(cpu::WriteCache(good).ok());
}

}  // namespace
}  // namespace pagoda::kernels
