#include "server/peers/peer_cache.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "manager/cache_lists.h"
#include "manager/exchange/stored_prefix.h"
#include "tests/manager/exchange/exchanged_cache.h"
#include "tests/manager/fixtures/prompt_of.h"

namespace pagoda::server {
namespace {

class PeerCacheTest : public testing::Test {
 protected:
  PeerCacheTest() {
    peer_ = *PeerCache::Create({.name = "cache",
                                .manager = &cache_.manager(),
                                .pools = &cache_.pools(),
                                .between_looks = [this] {
                                  if (between_ != nullptr) between_();
                                }});
    cache_.Compute(tokens_);
  }
  DigestIndex::Name Name(const Tokens& tokens, uint32_t block) {
    return DigestsOf({.name_space = {}, .tokens = tokens}, TokensPerBlock(kBlockTokens), block + 1)
        .back()
        .bytes;
  }
  // What Get says if `between` happens meanwhile.
  std::optional<PeerCache::Value> GetWhile(std::function<void()> between) {
    between_ = std::move(between);
    std::optional<PeerCache::Value> value = peer_->Get(0, Name(tokens_, 1));
    between_ = nullptr;
    return value;
  }
  // Runs an operation of another engine.
  template <class Result>
  Result Run(const Operation& operation) {
    return *RunOne<Result>(*client_, operation);
  }

  ExchangedCache cache_{{.blocks = 8, .lower_blocks = 8}};
  const Tokens tokens_ = TokensOf(1, 3 * kBlockTokens);
  std::function<void()> between_;
  std::shared_ptr<PeerCache> peer_;
  std::unique_ptr<CacheClient> client_ = *OpenLocalCacheClient(&cache_.manager(), "another");
};

TEST_F(PeerCacheTest, AValueIsTheBlocksHeaderAndItsSlots) {
  const std::optional<PeerCache::Value> value = GetWhile([] {});
  ASSERT_TRUE(value.has_value());
  const BlockHandle block = cache_.manager().Read([&](const BlockManager& core) {
    return core.lists().InspectPrefix(PromptOf({}, tokens_))->blocks.at(1).block;
  });
  ASSERT_EQ(value->parts.size(), 2u);
  std::vector<absl::Span<const std::byte>> pieces;
  uint64_t bytes = kStoredHeaderBytes;
  for (uint32_t pool = 0; pool < 2; ++pool) {
    const absl::Span<std::byte> slot = cache_.pools().pool(0, pool).slot(block.slot);
    EXPECT_EQ(value->parts[pool].bytes.data(), slot.data());
    EXPECT_EQ(value->parts[pool].bytes.size(), slot.size());
    EXPECT_EQ(value->parts[pool].checksum, ChecksumOf(slot));
    pieces.push_back(slot);
    bytes += slot.size();
  }
  EXPECT_EQ(value->bytes, bytes);
  const StoreKey key = {.layout = StoredLayout(cache_.pools().layout(), 0).bytes,
                        .digest = Name(tokens_, 1),
                        .window_size = 0};
  EXPECT_EQ(value->header, MakeStoredHeader(key, "", pieces));
}

TEST_F(PeerCacheTest, WhatDoesNotConcernTheBlockDoesNotMatter) {
  EXPECT_TRUE(GetWhile([&] { cache_.Compute(TokensOf(2, kBlockTokens)); }).has_value());
}

TEST_F(PeerCacheTest, ABlockThatLeavesMeanwhileIsAMiss) {
  EXPECT_FALSE(GetWhile([&] { cache_.manager().ResetPrefixCache(); }).has_value());
}

TEST_F(PeerCacheTest, ABlockWhoseSlotHasOtherBytesIsAMiss) {
  EXPECT_FALSE(GetWhile([&] {
                 cache_.manager().ResetPrefixCache();
                 cache_.Compute(TokensOf(2, 8 * kBlockTokens));
               }).has_value());
}

TEST_F(PeerCacheTest, ABlockThatMovesMeanwhileIsAMiss) {
  const auto tier = [&] {
    return cache_.manager().Read([&](const BlockManager& core) {
      return core.lists().InspectPrefix(PromptOf({}, tokens_))->blocks.at(1).tier;
    });
  };
  ASSERT_EQ(tier(), kPrimaryTier);
  EXPECT_FALSE(GetWhile([&] {
                 cache_.Compute(TokensOf(2, 8 * kBlockTokens));
                 cache_.WaitForCopies();
               }).has_value());
  EXPECT_EQ(tier(), Tier(1));
  EXPECT_TRUE(GetWhile([] {}).has_value());
}

TEST_F(PeerCacheTest, ABlockThatLeftAndCameBackInItsSlotIsAMiss) {
  EXPECT_FALSE(GetWhile([&] {
                 cache_.manager().ResetPrefixCache();
                 cache_.Compute(tokens_);
               }).has_value());
  EXPECT_TRUE(GetWhile([] {}).has_value());
}

// The sequence goes on in its block, which keeps its generation and its slot, and gets the same
// content again. Only the index knows that it was away.
TEST_F(PeerCacheTest, ABlockThatItsSequenceCutAndFilledAgainIsAMiss) {
  cache_.manager().ResetPrefixCache();
  // The block is the last one: what has children is copied instead.
  const uint32_t count = 2 * kBlockTokens;
  const Tokens tokens(tokens_.begin(), tokens_.begin() + count);
  const SequenceId id(1);
  Run<AddedSequence>(AddSequence{.sequence = id, .tokens = tokens});
  Run<CommittedTokens>(CommitTokens{.sequence = id, .computed_tokens = count});
  const auto look = [&] {
    return cache_.manager().Read([&](const BlockManager& core) {
      const BlockId block = core.lists().InspectPrefix(PromptOf({}, tokens))->blocks.at(1).block.id;
      return core.lists().LocateBlocks(0, {&block, 1}).blocks.front();
    });
  };
  const std::optional<LocatedBlock> before = look();
  ASSERT_TRUE(before.has_value());
  EXPECT_FALSE(GetWhile([&] {
                 Run<TruncatedSequence>(
                     TruncateSequence{.sequence = id, .token_count = kBlockTokens + 1});
                 Run<AppendedTokens>(
                     AppendTokens{.sequence = id,
                                  .tokens = Tokens(tokens.begin() + kBlockTokens + 1, tokens.end()),
                                  .computed_tokens = count});
               }).has_value());
  EXPECT_EQ(look(), before) << "the core cannot tell";
  EXPECT_TRUE(GetWhile([] {}).has_value());
}

}  // namespace
}  // namespace pagoda::server
