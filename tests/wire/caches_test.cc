#include "wire/caches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"

namespace pagoda {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

OpenCacheCall Call() {
  const LayerSpec sliding{
      .window = WindowSize(64), .num_kv_heads = 2, .head_dim = 16, .dtype = DType::kBFloat16};
  const LayerSpec latent{
      .num_kv_heads = 1, .head_dim = 576, .dtype = DType::kFloat16, .kind = KvKind::kKeyOnly};
  const LayerSpec pages{.kind = KvKind::kOpaque, .bytes_per_block = 65'536};
  return {.name = "a",
          .identity = {.model = "org/model",
                       .revision = "r1",
                       .dtype = "bfloat16",
                       .layout = "NHD",
                       .kernel_packing = "none"},
          .tokens_per_block = 16,
          .layers = {sliding, sliding, latent, sliding, pages, pages},
          .tiers = {{.medium = Medium::kGpu, .bytes = 5},
                    {.medium = Medium::kHost, .free_permille = 250},
                    {.medium = Medium::kDisk, .bytes = uint64_t{1} << 50}},
          .eviction_policy = "lru"};
}

v1::OpenCacheRequest Proto(const OpenCacheCall& call) {
  v1::OpenCacheRequest proto;
  OpenCacheToProto(call, &proto);
  return proto;
}

TEST(WireCachesTest, ACallComesBackAsItWas) {
  const OpenCacheCall call = Call();
  const v1::OpenCacheRequest proto = Proto(call);
  ASSERT_EQ(proto.layers_size(), 4) << "neighbours that are alike are one group";
  EXPECT_EQ(proto.layers(0).count(), 2u);
  const absl::StatusOr<OpenCacheCall> back = OpenCacheFromProto(proto);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->name, call.name);
  EXPECT_EQ(back->identity, call.identity);
  EXPECT_EQ(back->tokens_per_block, call.tokens_per_block);
  EXPECT_EQ(back->layers, call.layers);
  EXPECT_EQ(back->tiers, call.tiers);
  EXPECT_EQ(back->eviction_policy, call.eviction_policy);
}

TEST(WireCachesTest, WithoutTiersItIsHalfOfTheHost) {
  v1::OpenCacheRequest proto = Proto(Call());
  proto.clear_tiers();
  const absl::StatusOr<OpenCacheCall> call = OpenCacheFromProto(proto);
  ASSERT_TRUE(call.ok()) << call.status();
  EXPECT_THAT(call->tiers, ElementsAre(TierWish{.medium = Medium::kHost, .free_permille = 500}));
}

TEST(WireCachesTest, WhatIsNoCacheIsRefusedByItsField) {
  using Change = std::function<void(v1::OpenCacheRequest&)>;
  const std::vector<std::pair<std::string, Change>> changes = {
      {"identity.model", [](auto& p) { p.clear_identity(); }},
      {"identity.model", [](auto& p) { p.mutable_identity()->set_model("two words"); }},
      {"identity.revision", [](auto& p) { p.mutable_identity()->set_revision("\n"); }},
      {"identity.dtype", [](auto& p) { p.mutable_identity()->set_dtype(std::string(257, 'x')); }},
      {"identity.layout", [](auto& p) { p.mutable_identity()->set_layout(std::string(1, '\0')); }},
      {"identity.kernel_packing",
       [](auto& p) { p.mutable_identity()->set_kernel_packing("\x7f"); }},
      {"no layers", [](auto& p) { p.clear_layers(); }},
      {"layers[1]: count", [](auto& p) { p.mutable_layers(1)->set_count(0); }},
      {"layers[1]: count", [](auto& p) { p.mutable_layers(1)->set_count(1025); }},
      {"4096 layers",
       [](auto& p) {
         p.clear_layers();
         for (int i = 0; i < 5; ++i) {
           *p.add_layers() = Proto(Call()).layers(0);
           p.mutable_layers(i)->set_count(1024);
         }
       }},
      {"layers[0]: there is no kind", [](auto& p) { p.mutable_layers(0)->clear_kind(); }},
      {"layers[0]: there is no dtype", [](auto& p) { p.mutable_layers(0)->clear_dtype(); }},
      {"layers[0]: bytes_per_block", [](auto& p) { p.mutable_layers(0)->set_bytes_per_block(1); }},
      {"layers[3]: an opaque layer", [](auto& p) { p.mutable_layers(3)->set_head_dim(1); }},
      {"layers[3]: an opaque layer",
       [](auto& p) { p.mutable_layers(3)->set_dtype(v1::DTYPE_FLOAT32); }},
      {"tiers[0]: there is no medium", [](auto& p) { p.mutable_tiers(0)->clear_medium(); }},
      {"tiers[0]: it has no size", [](auto& p) { p.mutable_tiers(0)->clear_size(); }},
      {"tiers[0]: it has no size", [](auto& p) { p.mutable_tiers(0)->set_bytes(0); }},
      {"tiers[1]: free_permille", [](auto& p) { p.mutable_tiers(1)->set_free_permille(0); }},
      {"tiers[1]: free_permille", [](auto& p) { p.mutable_tiers(1)->set_free_permille(1001); }},
      {"at most 3", [](auto& p) { *p.add_tiers() = p.tiers(2); }},
      {"order", [](auto& p) { p.mutable_tiers(1)->set_medium(v1::MEDIUM_GPU); }},
      {"first tier is on disk",
       [](auto& p) {
         p.clear_tiers();
         *p.add_tiers() = Proto(Call()).tiers(2);
       }},
      {"needs one on the host",
       [](auto& p) {
         p.clear_tiers();
         *p.add_tiers() = Proto(Call()).tiers(0);
         *p.add_tiers() = Proto(Call()).tiers(2);
       }},
  };
  for (const auto& [field, change] : changes) {
    v1::OpenCacheRequest proto = Proto(Call());
    change(proto);
    const absl::Status refused = OpenCacheFromProto(proto).status();
    EXPECT_EQ(ReasonOf(refused), Reason::kInvalidArgument) << field;
    EXPECT_THAT(std::string(refused.message()), HasSubstr(field));
  }
}

TEST(WireCachesTest, TwoIdentitiesNeverHaveOneText) {
  std::set<std::string> texts = {CacheIdentity{.model = "m"}.Text()};
  for (const CacheIdentity& identity :
       {CacheIdentity{.model = "model=m"}, CacheIdentity{.model = "m2"},
        CacheIdentity{.model = "m", .revision = "r"}, CacheIdentity{.model = "m", .dtype = "r"},
        CacheIdentity{.model = "m", .layout = "r"},
        CacheIdentity{.model = "m", .kernel_packing = "r"}}) {
    EXPECT_TRUE(texts.insert(identity.Text()).second) << identity.Text();
  }
  EXPECT_THAT(texts, SizeIs(7));
}

}  // namespace
}  // namespace pagoda
