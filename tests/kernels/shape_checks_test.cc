#include "kernels/shape_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <string>

namespace pagoda::kernels {
namespace {

using ::testing::HasSubstr;

// 2 heads of 4 tokens of 8 fp32 elements, in the pool's order [kv_head][token][head_dim].
constexpr uint64_t kTokenBytes = 32;
alignas(8) std::byte memory[2 * 2 * 4 * kTokenBytes];

KvLayer GoodLayer() {
  return {.keys = memory,
          .values = memory + 2 * 4 * kTokenBytes,
          .num_slots = 1,
          .num_kv_heads = 2,
          .tokens_per_block = 4,
          .head_dim = 8,
          .slot_stride_bytes = sizeof(memory),
          .head_stride_bytes = 4 * kTokenBytes,
          .token_stride_bytes = kTokenBytes};
}

void ExpectRefused(const KvLayer& kv, const std::string& name) {
  const absl::Status status = CheckKvLayer(kv);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << name;
  EXPECT_THAT(std::string(status.message()), HasSubstr(name));
}

TEST(CheckKvLayerTest, TakesHeadsOfTokensAndTokensOfHeads) {
  KvLayer kv = GoodLayer();
  EXPECT_TRUE(CheckKvLayer(kv).ok()) << CheckKvLayer(kv);
  kv.head_stride_bytes = kTokenBytes;
  kv.token_stride_bytes = 2 * kTokenBytes;
  EXPECT_TRUE(CheckKvLayer(kv).ok()) << CheckKvLayer(kv);
}

TEST(CheckKvLayerTest, TheStrideOfASingleHeadOrTokenDoesNotMatter) {
  KvLayer kv = GoodLayer();
  kv.num_kv_heads = 1;
  kv.head_stride_bytes = kTokenBytes;
  EXPECT_TRUE(CheckKvLayer(kv).ok()) << CheckKvLayer(kv);
  kv.num_kv_heads = 2;
  kv.tokens_per_block = 1;
  EXPECT_TRUE(CheckKvLayer(kv).ok()) << CheckKvLayer(kv);
}

TEST(CheckKvLayerTest, RefusesHeadsAndTokensThatOverlap) {
  KvLayer kv = GoodLayer();
  kv.head_stride_bytes = kTokenBytes;
  ExpectRefused(kv, "kv.head_stride_bytes is 32 and kv.token_stride_bytes is 32");
  // One element too close, in either order.
  kv.head_stride_bytes = 4 * kTokenBytes - 4;
  ExpectRefused(kv, "kv.head_stride_bytes is 124");
  kv.head_stride_bytes = kTokenBytes;
  kv.token_stride_bytes = 2 * kTokenBytes - 4;
  ExpectRefused(kv, "kv.token_stride_bytes is 60");
  // An extent that would wrap around in 64 bits.
  kv.token_stride_bytes = kv.head_stride_bytes = uint64_t{1} << 63;
  ExpectRefused(kv, "kv.head_stride_bytes");
}

TEST(CheckKvLayerTest, RefusesPointersThatAreNotAlignedToTheElements) {
  KvLayer kv = GoodLayer();
  kv.keys += 2;
  ExpectRefused(kv, "kv.keys");
  kv = GoodLayer();
  kv.values += 2;
  ExpectRefused(kv, "kv.values");
  // Two bytes suffice for 2-byte elements.
  kv.type = ElementType::kBFloat16;
  EXPECT_TRUE(CheckKvLayer(kv).ok()) << CheckKvLayer(kv);
  kv.values += 1;
  ExpectRefused(kv, "kv.values");
}

}  // namespace
}  // namespace pagoda::kernels
