// The keys of a cache's contents, and of the memory for caches that clients open.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "server/config/config.h"

namespace pagoda::server {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// The message with which a text is refused; "accepted" if it is valid.
std::string Refusal(const std::string& text) {
  const absl::StatusOr<Config> config = ParseConfig(text, "pagodad.yaml");
  if (config.ok()) return "accepted";
  EXPECT_EQ(ReasonOf(config.status()), Reason::kInvalidArgument);
  return std::string(config.status().message());
}

// --- Memory for clients' caches ---

TEST(CachesConfigTest, MemoryWithoutALayoutWaitsForClients) {
  const auto config = ParseConfig("memory: {host: 64GiB}\n", "pagodad.yaml");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_FALSE(config->own_cache);
  EXPECT_EQ(config->memory.host, uint64_t{64} << 30);
  for (const char* text : {"", "memory: {}\n", "memory: {host: 64GiB}\ncache: {primary: 8}\n",
                           "memory: {host: 64GiB}\nengine: {model_dir: /models/x}\n"}) {
    const auto with_cache = ParseConfig(text, "pagodad.yaml");
    ASSERT_TRUE(with_cache.ok()) << with_cache.status();
    EXPECT_TRUE(with_cache->own_cache) << text;
  }
}

TEST(CachesConfigTest, EveryKeyOfMemoryIsReadAndPrinted) {
  const auto config = ParseConfig(
      "memory:\n  gpu: 1GiB\n  host: 2GB\n"
      "  disk: {size: 3TiB, path: /kv, write_bytes_per_second: 44MB}\n"
      "  max_caches: 5\n  linger: 90s\n  reservation: sparse\n"
      "tenants: {name: a, tokens_file: a.tokens, cache_memory: {host: 1MiB}}\n",
      "pagodad.yaml");
  ASSERT_TRUE(config.ok()) << config.status();
  const std::string printed = PrintConfig(*config);
  EXPECT_THAT(printed, Not(HasSubstr("cache:\n")));
  const auto again = ParseConfig(printed, "pagodad.yaml");
  ASSERT_TRUE(again.ok()) << again.status();
  for (const Config& one : {*config, *again}) {
    EXPECT_FALSE(one.own_cache);
    EXPECT_EQ(one.memory.gpu, uint64_t{1} << 30);
    EXPECT_EQ(one.memory.host, 2'000'000'000u);
    EXPECT_EQ(one.memory.disk.size, uint64_t{3} << 40);
    EXPECT_EQ(one.memory.disk.path, "/kv");
    EXPECT_EQ(one.memory.disk.write_bytes_per_second, 44'000'000u);
    EXPECT_EQ(one.memory.max_caches, 5u);
    EXPECT_EQ(one.memory.linger, absl::Seconds(90));
    EXPECT_EQ(one.memory.reservation, Reservation::kSparse);
    ASSERT_EQ(one.tenants.size(), 1u);
    EXPECT_EQ(one.tenants[0].cache_memory.host, 1u << 20);
  }
}

TEST(CachesConfigTest, MemoryThatContradictsItselfIsRefused) {
  EXPECT_THAT(Refusal("memory: {host: 1GiB, disk: {size: 1GiB}}"), HasSubstr("memory.disk.path"));
  EXPECT_THAT(Refusal("memory: {host: 1GiB, disk: {path: /kv}}"), HasSubstr("memory.disk.size"));
  EXPECT_THAT(Refusal("memory: {disk: {size: 1GiB, path: /kv}}"), HasSubstr("memory.host"));
  EXPECT_THAT(Refusal("memory: {warm_restart: true}"), HasSubstr("memory.warm_restart"));
  EXPECT_THAT(Refusal("memory: {host: 1GiB, warm_restart: true, reservation: sparse}"),
              HasSubstr("memory.reservation"));
  EXPECT_THAT(Refusal("memory: {host: 1GiB}\nevents: {smg: {enabled: true}}"),
              HasSubstr("events.smg"));
  EXPECT_THAT(Refusal("memory: {host: much}"), AllOf(HasSubstr("host"), HasSubstr("0 for none")));
  EXPECT_THAT(Refusal("memory: {host: 1GiB, max_caches: 1025}"), HasSubstr("1024"));
  EXPECT_THAT(Refusal("memory: {host: 1GiB, linger: 0s}"), HasSubstr("linger"));
}

TEST(CachesConfigTest, ACachesNameIsNoPath) {
  for (const char* good : {"a", "Qwen3-0.6B_v1", "..."}) {
    EXPECT_TRUE(CheckCacheName(good).ok()) << good;
  }
  for (const std::string& bad :
       {std::string(), std::string("."), std::string(".."), std::string("a/b"), std::string("a b"),
        std::string("a\0b", 3), std::string(65, 'a'), std::string("\xc3\xa9")}) {
    EXPECT_EQ(ReasonOf(CheckCacheName(bad)), Reason::kInvalidArgument) << bad;
  }
}

// --- Layers ---

TEST(CachesConfigTest, OpaqueLayersHaveBytesInPlaceOfHeads) {
  const auto config = ParseConfig(
      "cache:\n  kv_dtype: fp8_e5m2\n  layers:\n"
      "  - {count: 3, kind: opaque, bytes_per_block: 4097, window: 64}\n"
      "  - {kind: key_only, num_kv_heads: 1, head_dim: 576}\n",
      "pagodad.yaml");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(
      config->cache.layers[0].Spec(config->cache.kv_dtype),
      (LayerSpec{.window = WindowSize(64), .kind = KvKind::kOpaque, .bytes_per_block = 4097}));
  EXPECT_EQ(config->cache.layers[1].Spec(config->cache.kv_dtype),
            (LayerSpec{.num_kv_heads = 1,
                       .head_dim = 576,
                       .dtype = DType::kFloat8E5M2,
                       .kind = KvKind::kKeyOnly}));
  const auto again = ParseConfig(PrintConfig(*config), "pagodad.yaml");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->cache.layers[0].bytes_per_block, 4097u);
  EXPECT_EQ(again->cache.layers[1].head_dim, 576u);
  EXPECT_EQ(again->cache.kv_dtype, DType::kFloat8E5M2);
}

TEST(CachesConfigTest, OpaqueLayersThatAreNoneAreRefusedByName) {
  EXPECT_EQ(Refusal("cache:\n  layers: {kind: opaque}\n"),
            "pagodad.yaml:2: kind is opaque, and bytes_per_block is not set");
  EXPECT_EQ(Refusal("cache:\n  layers:\n  - {}\n  - bytes_per_block: 8\n"),
            "pagodad.yaml:4: bytes_per_block is only for layers with kind: opaque");
  EXPECT_EQ(
      Refusal("cache:\n  layers:\n    kind: opaque\n    bytes_per_block: 8\n    head_dim: 64\n"),
      "pagodad.yaml:5: head_dim is not for layers with kind: opaque");
  for (const char* bytes : {"0", "1073741825", "-1", "18446744073709551616", "x"}) {
    EXPECT_THAT(
        Refusal(absl::StrCat("cache: {layers: {kind: opaque, bytes_per_block: \"", bytes, "\"}}")),
        AllOf(HasSubstr("bytes_per_block"), HasSubstr("1 to 1073741824")));
  }
}

TEST(CachesConfigTest, LayersThatAModelReplacesAreNotPrinted) {
  EXPECT_THAT(PrintConfig(Config()), HasSubstr("layers:"));
  for (const char* text : {"cache: {model_dir: /m}", "engine: {model_dir: /m}",
                           "engine: {model_dir: /m}\ncache: {layers: {count: 3}}"}) {
    const auto config = ParseConfig(text, "pagodad.yaml");
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_THAT(PrintConfig(*config), Not(HasSubstr("layers:"))) << text;
  }
}

}  // namespace
}  // namespace pagoda::server
