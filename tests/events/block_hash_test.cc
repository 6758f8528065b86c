#include "events/block_hash.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "events/client_key.h"

namespace pagoda {
namespace {

std::vector<TokenId> UpTo(TokenId end) {
  std::vector<TokenId> tokens(end);
  std::iota(tokens.begin(), tokens.end(), 0);
  return tokens;
}

// The digest of the bytes 0 to 31, and that of 32 bytes 255.
constexpr ItemDigest kD = {0x0706050403020100, 0x0f0e0d0c0b0a0908, 0x1716151413121110,
                           0x1f1e1d1c1b1a1918};
constexpr ItemDigest kE = {~uint64_t{0}, ~uint64_t{0}, ~uint64_t{0}, ~uint64_t{0}};

struct Vector {
  std::vector<TokenId> tokens;
  size_t tokens_per_block;
  std::vector<uint64_t> hashes;
  NamespaceKey name_space = {};
  std::vector<uint64_t> extra_ids = {};
  std::vector<MultimodalItem> items = {};

  // Empty if the vector has neither extra ids nor items.
  std::vector<TokenExtra> Extras() const {
    if (extra_ids.empty() && items.empty()) return {};
    std::vector<TokenExtra> extras(tokens.size());
    for (size_t i = 0; i < extra_ids.size(); ++i) extras[i].extra_id = extra_ids[i];
    for (const MultimodalItem& item : items) {
      for (uint32_t i = 0; i < item.token_count; ++i) {
        TokenExtra& extra = extras[item.token_start + i];
        extra.digest = item.digest;
        extra.item_offset = item.item_offset + i;
        extra.in_item = true;
      }
    }
    return extras;
  }

  std::vector<uint64_t> BlockHashes() const {
    const std::vector<TokenExtra> extras = Extras();
    const BlockKey prompt{tokens, extras};
    BlockHash parent = HashNamespace(name_space);
    std::vector<uint64_t> computed;
    for (size_t begin = 0; begin < tokens.size(); begin += tokens_per_block) {
      parent = HashBlock(parent, prompt.Sub(begin, tokens_per_block));
      computed.push_back(parent.value());
    }
    return computed;
  }
};

// The table of events/README.md, which also has a Python function for these hashes.
TEST(BlockHashTest, MatchesThePublishedVectors) {
  const NamespaceKey all_three{.lora_id = 7, .cache_salt = "s", .tenant = "acme"};
  const std::vector<Vector> vectors = {
      {{1, 2, 3, 4}, 4, {0x6fc1ebd4f4d6ea31}},
      {{0}, 4, {0x48b2c92616fc193d}},
      {UpTo(8), 4, {0xa1d0bd893c9531ac, 0x244c2e40bdc3593d}},
      {UpTo(8), 4, {0xcf4f0ee4c07101e2, 0xc12009cf6f3092bd}, {.cache_salt = "tenant-a"}},
      {UpTo(8), 4, {0xff12d20b914e6490, 0xcf137f191cd2ee90}, {.lora_id = 7}},
      {UpTo(8), 4, {0x5c81be421856d63b, 0x648ad2f169f6d5ee}, {.tenant = "acme"}},
      {UpTo(8), 4, {0x182cf8528d287f7d, 0x4552266c6a8a264e}, all_three},
      {UpTo(70), 32, {0x34509d8372e62e6d, 0xb6d4b45a4f054b73, 0x6c1cf1cce3827822}},
      {UpTo(1024), 512, {0xed23844e189677f1, 0x6479ba7506f1d25a}},
      {{4294967295, 4294967295}, 1, {0xcd6b1c920d3f662c, 0x18b7ace266ab5fb7}},
      {UpTo(8), 4, {0x739d8dcfe911ee8d, 0x5c40f1cc67c4070a}, {}, {9, 0, 0, 0, 0, 0, 0, 0}},
      {UpTo(8),
       4,
       {0xa1d0bd893c9531ac, 0x9919e8418ea61ffe},
       {},
       {0, 0, 0, 0, 0, 0, 0, ~uint64_t{0}}},
      {UpTo(8), 4, {0xa1d0bd893c9531ac, 0x244c2e40bdc3593d}, {}, {0, 0, 0, 0, 0, 0, 0, 0}},
      {UpTo(8), 4, {0xe09d9755e6288584, 0xb863f1748ac54fa1}, {}, {}, {{kD, 1, 6, 0}}},
      {UpTo(8), 4, {0xbacd5664c5875012, 0xdebd957a430b1601}, {}, {}, {{kD, 1, 6, 3}}},
      {UpTo(8),
       4,
       {0xdc10fd14c81834de, 0x9e28ec41a944a6b7},
       {},
       {},
       {{kD, 0, 2, 0}, {kE, 2, 2, 0}, {kD, 6, 1, 5}}},
      {UpTo(6),
       4,
       {0x421afa9d0c230a4e, 0xb4ff9b6df75321fd},
       all_three,
       {1, 2, 3, 4, 5, 6},
       {{kD, 2, 3, 0}}},
      {UpTo(70),
       32,
       {0xe187f0fe15f84a2a, 0x42462a4d08612d90, 0xe306657493afb33e},
       {},
       {},
       {{kD, 5, 60, 7}}}};
  for (size_t i = 0; i < vectors.size(); ++i) {
    EXPECT_EQ(vectors[i].BlockHashes(), vectors[i].hashes) << "vector " << i;
  }
}

// The same table for keyed namespaces.
TEST(BlockHashTest, MatchesThePublishedVectorsOfKeys) {
  const NamespaceKey keyed{.keyed = true};
  const NamespaceKey named{.lora_id = 7, .cache_salt = "s", .tenant = "acme", .keyed = true};
  EXPECT_EQ(HashNamespace(keyed).value(), 0xee53fd1b240e9dc6);
  EXPECT_EQ(HashNamespace(named).value(), 0x8aee59b22a0044ed);
  const auto hashes = [](const NamespaceKey& name_space, const std::vector<std::string>& keys) {
    std::vector<uint64_t> computed;
    BlockHash parent = HashNamespace(name_space);
    for (const std::string& bytes : keys) {
      parent = HashBlock(parent, ClientKey::Make(bytes)->block_key());
      computed.push_back(parent.value());
    }
    return computed;
  };
  std::string ascending;
  for (int i = 0; i < 64; ++i) ascending.push_back(static_cast<char>(i));
  using Hashes = std::vector<uint64_t>;
  EXPECT_EQ(hashes(keyed, {"a", "b"}), (Hashes{0x73edd732bef386ed, 0xe3ee8443c9c88d63}));
  EXPECT_EQ(hashes(keyed, {std::string("a\0", 2), "a"}),
            (Hashes{0x0ea1d15e719a8119, 0xf909882b988f3d8a}));
  EXPECT_EQ(hashes(keyed, {ascending, ascending.substr(0, 32)}),
            (Hashes{0xfe3ae918287c26f2, 0x92e383785770a81a}));
  EXPECT_EQ(hashes(named, {ascending.substr(0, 32)}), (Hashes{0x0d5d6c9230a366f1}));
}

TEST(BlockHashTest, MatchesThePublishedRoots) {
  EXPECT_EQ(HashNamespace({}).value(), 0u);
  EXPECT_EQ(HashNamespace({.lora_id = 0}).value(), 0x313c2dd2ec996e80);
  EXPECT_EQ(HashNamespace({.lora_id = 7}).value(), 0xa37a4d57e7457851);
  EXPECT_EQ(HashNamespace({.cache_salt = "tenant-a"}).value(), 0x357f5d40d015980b);
  EXPECT_EQ(HashNamespace({.lora_id = 7, .cache_salt = "tenant-a"}).value(), 0xc48f527fcc8c42e9);
  EXPECT_EQ(HashNamespace({.tenant = "acme"}).value(), 0xf8d4e97fca6cce07);
  EXPECT_EQ(HashNamespace({.cache_salt = "cme", .tenant = "a"}).value(), 0xe2c18b8cb8948082);
  EXPECT_EQ(HashNamespace({.lora_id = 7, .cache_salt = "s", .tenant = "acme"}).value(),
            0xdb53621077dd72be);
}

TEST(BlockHashTest, NamespacesDiffer) {
  const NamespaceKey base;
  const NamespaceKey zero_lora{.lora_id = 0};
  const NamespaceKey salted{.cache_salt = "a"};
  const NamespaceKey tenant{.tenant = "a"};
  EXPECT_NE(HashNamespace(base), HashNamespace(zero_lora));
  EXPECT_NE(HashNamespace(base), HashNamespace(salted));
  EXPECT_NE(HashNamespace(zero_lora), HashNamespace(salted));
  EXPECT_NE(HashNamespace(salted), HashNamespace(tenant));
  EXPECT_NE(HashNamespace(base), HashNamespace({.keyed = true}));
  EXPECT_NE(HashNamespace(salted), HashNamespace({.cache_salt = "a", .keyed = true}));
}

// Adjacent places of one item are one run, however the client divides them.
TEST(BlockHashTest, AnItemInPiecesIsTheSameItem) {
  const Vector whole{UpTo(8), 8, {}, {}, {}, {{kD, 1, 6, 0}}};
  const Vector cut{UpTo(8), 8, {}, {}, {}, {{kD, 1, 2, 0}, {kD, 3, 4, 2}}};
  EXPECT_EQ(whole.BlockHashes(), cut.BlockHashes());
  const Vector twice{UpTo(8), 8, {}, {}, {}, {{kD, 1, 2, 0}, {kD, 3, 4, 0}}};
  EXPECT_NE(whole.BlockHashes(), twice.BlockHashes());
}

}  // namespace
}  // namespace pagoda
