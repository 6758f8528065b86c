#include "server/bridges/vllm_wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <msgpack.hpp>

#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace pagoda::server {
namespace {

using ::testing::Contains;
using ::testing::Key;
using ::testing::Not;

constexpr WindowSize kSliding{1024};

// The events of a batch, each value as msgpack's JSON.
using Fields = std::map<std::string, std::string>;

std::string Text(const msgpack::object& value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

struct Decoded {
  std::string ts;
  std::vector<Fields> events;
  std::string rank;
};

constexpr size_t kOnePayload = 1 << 30;

Decoded Decode(const std::string& bytes) {
  size_t end = 0;
  const msgpack::object_handle handle = msgpack::unpack(bytes.data(), bytes.size(), end);
  EXPECT_EQ(end, bytes.size()) << "nothing is behind the batch";
  const msgpack::object_array& array = handle->via.array;
  EXPECT_EQ(array.size, 3u);
  Decoded decoded{.ts = Text(array.ptr[0]), .rank = Text(array.ptr[2])};
  for (uint32_t i = 0; i < array.ptr[1].via.array.size; ++i) {
    Fields fields;
    const msgpack::object_map& map = array.ptr[1].via.array.ptr[i].via.map;
    for (uint32_t k = 0; k < map.size; ++k) {
      fields[map.ptr[k].key.as<std::string>()] = Text(map.ptr[k].val);
    }
    decoded.events.push_back(std::move(fields));
  }
  return decoded;
}

std::vector<std::string> Payloads(std::vector<RouterEvent> events, const VllmShape& shape,
                                  size_t max_bytes) {
  RouterBatch batch;
  batch.time = absl::UnixEpoch() + absl::Milliseconds(1500);
  batch.events = std::move(events);
  return EncodeVllmBatch(batch, shape, max_bytes);
}

Decoded Encode(std::vector<RouterEvent> events, const VllmShape& shape) {
  const std::vector<std::string> payloads = Payloads(std::move(events), shape, kOnePayload);
  EXPECT_EQ(payloads.size(), 1u);
  return Decode(payloads.at(0));
}

VllmShape OneWindow() { return {.tokens_per_block = 2, .windows = {kFullAttention}}; }
VllmShape TwoWindows() {
  return {.tokens_per_block = 2, .windows = {kSliding, kFullAttention}, .data_parallel_rank = 3};
}

BlocksStored TwoBlocks(NamespaceKey name_space = {}) {
  return {.name_space = std::make_shared<NamespaceKey>(std::move(name_space)),
          .hashes = {BlockHash(0xffffffffffffffff), BlockHash(2)},
          .tokens = {10, 70000, 4294967295, 1}};
}

TEST(VllmWireTest, AStoreHasTheKeysThatVllmAlwaysSends) {
  const Decoded decoded = Encode({{.what = TwoBlocks()}}, OneWindow());
  EXPECT_EQ(decoded.ts, "1.5");
  EXPECT_EQ(decoded.rank, "0");
  ASSERT_EQ(decoded.events.size(), 1u);
  EXPECT_EQ(decoded.events[0], (Fields{{"type", "\"BlockStored\""},
                                       {"block_hashes", "[18446744073709551615,2]"},
                                       {"parent_block_hash", "null"},
                                       {"token_ids", "[10,70000,4294967295,1]"},
                                       {"block_size", "2"},
                                       {"lora_id", "null"},
                                       {"medium", "\"GPU\""},
                                       {"lora_name", "null"}}));
}

TEST(VllmWireTest, ARemovalAndAClear) {
  const Decoded decoded = Encode(
      {{.what = BlocksRemoved{.tier = Tier(1), .hashes = {BlockHash(7)}}}, {.what = AllCleared{}}},
      OneWindow());
  ASSERT_EQ(decoded.events.size(), 2u);
  EXPECT_EQ(decoded.events[0],
            (Fields{{"type", "\"BlockRemoved\""}, {"block_hashes", "[7]"}, {"medium", "\"CPU\""}}));
  EXPECT_EQ(decoded.events[1], (Fields{{"type", "\"AllBlocksCleared\""}}));
}

// All tiers below the first are one medium, so the second copy there is not reported.
TEST(VllmWireTest, WhatAMediumHasAnywayIsNotTold) {
  BlocksStored again = TwoBlocks();
  again.tier = Tier{2};
  again.also_below = true;
  const BlocksRemoved one_of_two{.tier = Tier{2}, .also_below = true, .hashes = {BlockHash(2)}};
  EXPECT_TRUE(Payloads({{.what = again}, {.what = one_of_two}}, OneWindow(), kOnePayload).empty());
  const Decoded decoded = Encode({{.what = again}, {.what = TwoBlocks()}}, OneWindow());
  ASSERT_EQ(decoded.events.size(), 1u);
  EXPECT_EQ(decoded.events[0].at("medium"), "\"GPU\"");
}

TEST(VllmWireTest, WithSeveralWindowsEachIsAGroup) {
  BlocksStored sliding = TwoBlocks();
  sliding.window = kSliding;
  sliding.parent = BlockHash(9);
  const Decoded decoded = Encode(
      {{.what = sliding}, {.what = TwoBlocks()}, {.what = BlocksRemoved{.window = kSliding}}},
      TwoWindows());
  EXPECT_EQ(decoded.rank, "3");
  ASSERT_EQ(decoded.events.size(), 3u);
  Fields first = decoded.events[0];
  EXPECT_EQ(first["parent_block_hash"], "9");
  EXPECT_EQ(first["group_idx"], "0");
  EXPECT_EQ(first["kv_cache_spec_kind"], "\"sliding_window\"");
  EXPECT_EQ(first["kv_cache_spec_sliding_window"], "1024");
  Fields second = decoded.events[1];
  EXPECT_EQ(second["group_idx"], "1");
  EXPECT_EQ(second["kv_cache_spec_kind"], "\"full_attention\"");
  EXPECT_THAT(second, Not(Contains(Key("kv_cache_spec_sliding_window"))));
  EXPECT_EQ(decoded.events[2].at("group_idx"), "0");
}

TEST(VllmWireTest, ANamespaceIsInTheKeysThatRoutersLookAt) {
  const Decoded decoded = Encode(
      {{.what = TwoBlocks({.lora_id = 7, .cache_salt = "s", .tenant = "alice"})}}, OneWindow());
  Fields fields = decoded.events.at(0);
  EXPECT_EQ(fields["lora_id"], "7");
  EXPECT_EQ(fields["lora_name"], "\"7\"");
  EXPECT_EQ(fields["cache_salt"], "\"alice\\/s\"");
  EXPECT_EQ(fields["extra_keys"], "[[\"7\",\"alice\\/s\"],[\"7\"]]");
}

TEST(VllmWireTest, TheSaltsOfTwoNamespacesAreNeverTheSame) {
  // All tenants and salts of up to three of the characters that separate and escape names.
  std::vector<std::string> texts = {""};
  for (size_t i = 0; texts[i].size() < 3; ++i) {
    for (const char letter : {'/', '%', '2', 'F'}) texts.push_back(texts[i] + letter);
  }
  std::map<std::string, NamespaceKey> seen;
  for (const std::string& tenant : texts) {
    for (const std::string& salt : texts) {
      if (tenant.empty() && salt.empty()) continue;
      const NamespaceKey key{.cache_salt = salt, .tenant = tenant};
      const Decoded decoded = Encode({{.what = TwoBlocks(key)}}, OneWindow());
      const auto [it, fresh] = seen.emplace(decoded.events.at(0).at("cache_salt"), key);
      ASSERT_TRUE(fresh) << it->first << ": of '" << tenant << "' and '" << salt << "', and of '"
                         << it->second.tenant << "' and '" << it->second.cache_salt << "'";
    }
  }
  EXPECT_EQ(seen.size(), 85u * 85 - 1);
}

TEST(VllmWireTest, ASaltIsAnExtraKeyOfASequencesFirstBlockAlone) {
  BlocksStored below = TwoBlocks({.cache_salt = "s"});
  below.parent = BlockHash(9);
  const Decoded decoded =
      Encode({{.what = TwoBlocks({.cache_salt = "s"})}, {.what = below}}, OneWindow());
  EXPECT_EQ(decoded.events.at(0).at("extra_keys"), "[[\"s\"],null]");
  EXPECT_EQ(decoded.events.at(0).at("cache_salt"), "\"s\"");
  EXPECT_THAT(decoded.events.at(1), Not(Contains(Key("extra_keys"))));
  EXPECT_EQ(decoded.events.at(1).at("cache_salt"), "\"s\"");
}

TEST(VllmWireTest, ItemsAndExtraIdsAreExtraKeysOfTheirBlocks) {
  BlocksStored stored = TwoBlocks();
  stored.extras.resize(4);
  stored.extras[1] = {.digest = {1, 0, 0, uint64_t{2} << 56}, .item_offset = 5, .in_item = true};
  stored.extras[3].extra_id = 44;
  const Decoded decoded = Encode({{.what = stored}}, OneWindow());
  const std::string digest = "01" + std::string(60, '0') + "02";
  EXPECT_EQ(decoded.events.at(0).at("extra_keys"),
            "[[[\"" + digest + "\",-4]],[\"extra_ids:0,44\"]]");
}

// This many blocks of two tokens, with hashes from 1 on.
BlocksStored Chain(uint32_t blocks) {
  BlocksStored stored = TwoBlocks({.cache_salt = "s"});
  stored.hashes.clear();
  stored.tokens.clear();
  for (uint32_t i = 0; i < blocks; ++i) {
    stored.hashes.emplace_back(i + 1);
    stored.tokens.insert(stored.tokens.end(), {2 * i, 2 * i + 1});
  }
  stored.extras.resize(stored.tokens.size());
  return stored;
}

// The contents of events, block by block: hash, parent, tokens and extra keys of stored blocks, and
// the hashes of removed blocks.
std::vector<std::string> BlockForBlock(const std::vector<RouterEvent>& events, size_t max_bytes,
                                       size_t* payloads) {
  std::vector<std::string> blocks;
  for (const std::string& payload : Payloads(events, OneWindow(), max_bytes)) {
    ++*payloads;
    EXPECT_LE(payload.size(), max_bytes);
    const msgpack::object_handle handle = msgpack::unpack(payload.data(), payload.size());
    std::vector<std::map<std::string, msgpack::object>> told;
    handle->via.array.ptr[1].convert(told);
    EXPECT_FALSE(told.empty());
    for (auto& event : told) {
      if (event.count("block_hashes") == 0) {
        blocks.push_back(Text(event["type"]));
        continue;
      }
      const bool stored = event.count("token_ids") > 0;
      std::string parent = stored ? Text(event["parent_block_hash"]) : "";
      for (size_t i = 0; i < event["block_hashes"].via.array.size; ++i) {
        const std::string hash = Text(event["block_hashes"].via.array.ptr[i]);
        std::string block = absl::StrCat(hash, " below ", parent);
        for (size_t t = 2 * i; stored && t < 2 * i + 2; ++t) {
          absl::StrAppend(&block, " ", Text(event["token_ids"].via.array.ptr[t]));
        }
        if (event.count("extra_keys") > 0) {
          const std::string keys = Text(event["extra_keys"].via.array.ptr[i]);
          if (keys != "null") absl::StrAppend(&block, " ", keys);
        }
        blocks.push_back(block);
        if (stored) parent = hash;
      }
    }
  }
  return blocks;
}

TEST(VllmWireTest, WhatIsCutSaysTheSame) {
  BlocksStored with_ids = Chain(40);
  with_ids.extras[31].extra_id = 44;
  BlocksStored below = Chain(3);
  below.parent = BlockHash(9);
  BlocksRemoved removed;
  for (uint64_t i = 0; i < 500; ++i) removed.hashes.emplace_back(~i);
  const std::vector<RouterEvent> events = {{.what = with_ids},
                                           {.what = below},
                                           {.what = removed},
                                           {.what = AllCleared{}},
                                           {.what = below}};
  size_t whole = 0;
  const std::vector<std::string> expected = BlockForBlock(events, kOnePayload, &whole);
  EXPECT_EQ(whole, 1u);
  EXPECT_EQ(expected.size(), 40u + 3 + 500 + 1 + 3);
  size_t before = whole;
  for (const size_t max_bytes : {8192, 4000, 1000, 300}) {
    size_t payloads = 0;
    EXPECT_EQ(BlockForBlock(events, max_bytes, &payloads), expected) << max_bytes;
    EXPECT_GE(payloads, before);
    before = payloads;
  }
  EXPECT_GT(before, 20u) << "it was cut";
}

// The largest block: every token has a long id of each kind and a separate item, and the names have
// their maximal length.
TEST(VllmWireTest, NoBlockIsLargerThanTheBoundSays) {
  for (const uint32_t tokens : {1u, 32u, 1024u}) {
    const VllmShape shape{.tokens_per_block = tokens,
                          .windows = {kSliding, kFullAttention},
                          .data_parallel_rank = 65535};
    BlocksStored stored;
    stored.window = kSliding;
    stored.name_space =
        std::make_shared<NamespaceKey>(NamespaceKey{.lora_id = ~uint64_t{0},
                                                    .cache_salt = std::string(256, '/'),
                                                    .tenant = std::string(128, '%')});
    for (uint64_t i = 0; i < 3; ++i) stored.hashes.emplace_back(~i);
    stored.tokens.assign(3 * tokens, ~TokenId{0});
    for (uint64_t i = 0; i < 3 * tokens; ++i) {
      stored.extras.push_back(
          {.extra_id = ~i, .digest = {~i, i, i, i}, .item_offset = ~uint32_t{0}, .in_item = true});
    }
    const auto payloads = Payloads({{.what = stored}}, shape, 1000);
    ASSERT_EQ(payloads.size(), 3u);
    const size_t bound = LargestVllmPayload(shape, 1000);
    for (const std::string& payload : payloads) {
      EXPECT_LE(payload.size(), bound);
      EXPECT_GT(payload.size() + 2048, bound / 2) << "and the bound is not much too large";
    }
    EXPECT_EQ(LargestVllmPayload(shape, 1 << 20), size_t{1} << 20);
  }
}

}  // namespace
}  // namespace pagoda::server
