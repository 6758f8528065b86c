#include "events/block_hash.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace pagoda {
namespace {

struct Vector {
  std::vector<TokenId> tokens;
  uint32_t tokens_per_block;
  NamespaceKey name_space;
  std::vector<uint64_t> hashes;
};

std::vector<TokenId> UpTo(TokenId end) {
  std::vector<TokenId> tokens(end);
  std::iota(tokens.begin(), tokens.end(), 0);
  return tokens;
}

// The table of events/README.md, where a Python function reproduces it.
TEST(BlockHashTest, MatchesThePublishedVectors) {
  const std::vector<Vector> vectors = {
      {{1, 2, 3, 4}, 4, {}, {0x6fc1ebd4f4d6ea31}},
      {{0}, 4, {}, {0x48b2c92616fc193d}},
      {UpTo(8), 4, {}, {0xa1d0bd893c9531ac, 0x244c2e40bdc3593d}},
      {UpTo(8), 4, {.cache_salt = "tenant-a"}, {0xcf4f0ee4c07101e2, 0xc12009cf6f3092bd}},
      {UpTo(8), 4, {.lora_id = 7}, {0xff12d20b914e6490, 0xcf137f191cd2ee90}},
      {UpTo(70), 32, {}, {0x34509d8372e62e6d, 0xb6d4b45a4f054b73, 0x6c1cf1cce3827822}},
      {UpTo(1024), 512, {}, {0xed23844e189677f1, 0x6479ba7506f1d25a}},
      {{4294967295, 4294967295}, 1, {}, {0xcd6b1c920d3f662c, 0x18b7ace266ab5fb7}}};
  for (const Vector& vector : vectors) {
    BlockHash parent = HashNamespace(vector.name_space);
    absl::Span<const TokenId> rest = vector.tokens;
    for (const uint64_t hash : vector.hashes) {
      const size_t count = std::min<size_t>(vector.tokens_per_block, rest.size());
      parent = HashBlock(parent, rest.first(count));
      EXPECT_EQ(parent.value(), hash);
      rest.remove_prefix(count);
    }
    EXPECT_TRUE(rest.empty());
  }
}

TEST(BlockHashTest, MatchesThePublishedRoots) {
  EXPECT_EQ(HashNamespace({}).value(), 0u);
  EXPECT_EQ(HashNamespace({.lora_id = 0}).value(), 0x313c2dd2ec996e80);
  EXPECT_EQ(HashNamespace({.lora_id = 7}).value(), 0xa37a4d57e7457851);
  EXPECT_EQ(HashNamespace({.cache_salt = "tenant-a"}).value(), 0x357f5d40d015980b);
  EXPECT_EQ(HashNamespace({.lora_id = 7, .cache_salt = "tenant-a"}).value(), 0xc48f527fcc8c42e9);
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
