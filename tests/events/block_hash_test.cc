#include "events/block_hash.h"

#include <gtest/gtest.h>

#include <array>

namespace pagoda {
namespace {

// The vectors of events/README.md, computed with Python's xxhash.
TEST(BlockHashTest, MatchesThePublishedVectors) {
  const std::array<TokenId, 4> first = {1, 2, 3, 4};
  const std::array<TokenId, 4> second = {5, 6, 7, 8};
  const BlockHash root = HashNamespace({});
  EXPECT_EQ(root.value(), 0u);
  const BlockHash a = HashBlock(root, first);
  const BlockHash b = HashBlock(a, second);
  EXPECT_EQ(a.value(), 0x6fc1ebd4f4d6ea31ull);
  EXPECT_EQ(b.value(), 0xe31356ba2da654a2ull);
  const BlockHash lora = HashNamespace({.lora_id = 42, .cache_salt = "tenant"});
  EXPECT_EQ(lora.value(), 0x998f99e749eebcb9ull);
  EXPECT_EQ(HashBlock(lora, first).value(), 0x2685ec449aba3eaeull);
}

TEST(BlockHashTest, NamespacesDiffer) {
  const NamespaceKey base;
  const NamespaceKey zero_lora{.lora_id = 0};
  const NamespaceKey salted{.cache_salt = "a"};
  EXPECT_NE(HashNamespace(base), HashNamespace(zero_lora));
  EXPECT_NE(HashNamespace(base), HashNamespace(salted));
  EXPECT_NE(HashNamespace(zero_lora), HashNamespace(salted));
}

}  // namespace
}  // namespace pagoda
