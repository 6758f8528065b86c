#include "clients/command_line/options/cache_spec.h"

#include <string>

#include "base/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pagoda {
namespace {

using ::testing::HasSubstr;

v1::LayerGroup Parsed(const std::string& text) {
  const auto group = ParseLayerGroup(text);
  EXPECT_TRUE(group.ok()) << group.status();
  return group.ok() ? *group : v1::LayerGroup();
}

TEST(CacheSpecTest, LayersOfKeyAndValue) {
  const v1::LayerGroup group = Parsed("32x8x128:float16");
  EXPECT_EQ(group.count(), 32u);
  EXPECT_EQ(group.kind(), v1::LAYER_KIND_KEY_VALUE);
  EXPECT_EQ(group.num_kv_heads(), 8u);
  EXPECT_EQ(group.head_dim(), 128u);
  EXPECT_EQ(group.dtype(), v1::DTYPE_FLOAT16);
  EXPECT_EQ(group.window_size(), 0u);
  EXPECT_EQ(group.bytes_per_block(), 0u);
  EXPECT_EQ(Parsed("32x8x128").dtype(), v1::DTYPE_BFLOAT16) << "the default";
}

TEST(CacheSpecTest, LayersOfKeysAlone) {
  const v1::LayerGroup one = Parsed("61xK576:bfloat16");
  EXPECT_EQ(one.kind(), v1::LAYER_KIND_KEY_ONLY);
  EXPECT_EQ(one.num_kv_heads(), 1u);
  EXPECT_EQ(one.head_dim(), 576u);
  const v1::LayerGroup four = Parsed("61xK4x64:float32");
  EXPECT_EQ(four.kind(), v1::LAYER_KIND_KEY_ONLY);
  EXPECT_EQ(four.num_kv_heads(), 4u);
  EXPECT_EQ(four.head_dim(), 64u);
  EXPECT_EQ(four.dtype(), v1::DTYPE_FLOAT32);
}

TEST(CacheSpecTest, OpaqueLayersHaveBytes) {
  for (const char* text : {"24xopaque:65536", "24xopaque:64KiB"}) {
    const v1::LayerGroup group = Parsed(text);
    EXPECT_EQ(group.count(), 24u) << text;
    EXPECT_EQ(group.kind(), v1::LAYER_KIND_OPAQUE) << text;
    EXPECT_EQ(group.bytes_per_block(), 65536u) << text;
    EXPECT_EQ(group.num_kv_heads(), 0u) << text;
    EXPECT_EQ(group.dtype(), v1::DTYPE_UNSPECIFIED) << text;
  }
}

TEST(CacheSpecTest, AWindowStandsAtTheEnd) {
  EXPECT_EQ(Parsed("26x8x128:bfloat16@4096").window_size(), 4096u);
  EXPECT_EQ(Parsed("26xK576@7").window_size(), 7u);
  EXPECT_EQ(Parsed("26xopaque:10@1024").window_size(), 1024u);
}

TEST(CacheSpecTest, ATextIsReadAsItIsWritten) {
  for (const char* text :
       {"32x8x128:float16", "61xK576:bfloat16", "61xK4x64:float32", "24xopaque:65536",
        "26x8x128:bfloat16@4096", "1xopaque:1@1", "26xK576:bfloat16@7"}) {
    EXPECT_EQ(LayerGroupText(Parsed(text)), text);
  }
}

TEST(CacheSpecTest, WhatAreNoLayersIsRefusedWithTheText) {
  for (const char* text : {"",
                           "32",
                           "32x",
                           "32x8",
                           "x8x128",
                           "0x8x128",
                           "32x0x128",
                           "32x8x0",
                           "32x8x128x2",
                           "-1x8x128",
                           "32x8x128@",
                           "32x8x128@0",
                           "32x8x128@full",
                           "32xK",
                           "32xK0",
                           "32xKx64",
                           "32xK4x64x2",
                           "24xopaque",
                           "24xopaque:",
                           "24xopaque:0",
                           "24xopaque:64XB",
                           "24xopaque:-1",
                           "32x8x128@4096:bfloat16",
                           "5000000000x8x128",
                           "32x8x128 "}) {
    const auto group = ParseLayerGroup(text);
    ASSERT_FALSE(group.ok()) << text;
    EXPECT_EQ(ReasonOf(group.status()), Reason::kInvalidArgument) << text;
    EXPECT_THAT(std::string(group.status().message()), HasSubstr(text)) << text;
  }
  const auto dtype = ParseLayerGroup("1x1x1:int3");
  EXPECT_THAT(std::string(dtype.status().message()),
              HasSubstr("unknown dtype int3; the dtypes are float32, float16, bfloat16"));
  EXPECT_FALSE(ParseLayerGroup("1x1x1:").ok());
  EXPECT_FALSE(ParseLayerGroup("1x1x1:unspecified").ok());
}

TEST(CacheSpecTest, ASizeIsBytesOrAShare) {
  const auto bytes = ParseTierSize("8GiB", v1::MEDIUM_GPU);
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  EXPECT_EQ(bytes->medium(), v1::MEDIUM_GPU);
  EXPECT_EQ(bytes->size_case(), v1::TierSize::kBytes);
  EXPECT_EQ(bytes->bytes(), uint64_t{8} << 30);
  const struct {
    const char* text;
    uint32_t permille;
  } shares[] = {{"50%", 500}, {"12.5%", 125}, {"100%", 1000}, {"100.0%", 1000}, {"0.1%", 1}};
  for (const auto& [text, permille] : shares) {
    const auto share = ParseTierSize(text, v1::MEDIUM_DISK);
    ASSERT_TRUE(share.ok()) << share.status();
    EXPECT_EQ(share->medium(), v1::MEDIUM_DISK);
    EXPECT_EQ(share->size_case(), v1::TierSize::kFreePermille);
    EXPECT_EQ(share->free_permille(), permille) << text;
  }
}

TEST(CacheSpecTest, WhatIsNoSizeIsRefusedWithTheText) {
  for (const char* text : {"", "8", "8G", "0B", "-1GiB", "0%", "0.0%", "100.1%", "101%", "1.25%",
                           ".5%", "5.%", "%", "50 %", "+5%", "half"}) {
    const auto size = ParseTierSize(text, v1::MEDIUM_HOST);
    ASSERT_FALSE(size.ok()) << text;
    EXPECT_EQ(ReasonOf(size.status()), Reason::kInvalidArgument) << text;
    EXPECT_THAT(std::string(size.status().message()), HasSubstr(text)) << text;
  }
}

TEST(CacheSpecTest, MediaHaveTheirNames) {
  EXPECT_EQ(MediumText(v1::MEDIUM_GPU), "gpu");
  EXPECT_EQ(MediumText(v1::MEDIUM_HOST), "host");
  EXPECT_EQ(MediumText(v1::MEDIUM_DISK), "disk");
  EXPECT_EQ(MediumText(static_cast<v1::Medium>(9)), "medium 9") << "of a later daemon";
}

}  // namespace
}  // namespace pagoda
