// What two sequences must have in common to share a block: tokens, extra ids, multimodal items,
// adapter, salt and tenant.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "manager/cache_lists.h"
#include "tests/conformance/conformance.h"

namespace pagoda {
namespace {

using ::testing::IsEmpty;

using ExtraIds = std::vector<uint64_t>;

const Tokens kPrompt = {100, 101, 102, 103, 104, 105, 0, 1, 2};
const ExtraIds kFirstIds = {1, 1, 2, 2, 3, 3, 0, 0, 0};
const ExtraIds kOtherIds = {4, 4, 5, 5, 6, 6, 0, 0, 0};
const ExtraIds kMixedIds = {1, 1, 2, 2, 4, 4, 0, 0, 0};

class KeyIsolationTest : public ConformanceTest {
 protected:
  void SetUp() override { Make(4, 16); }
  // Adds the prompt, releases it as peers do, and returns the matched tokens.
  uint32_t AddWithIds(uint64_t id, const ExtraIds& ids, const NamespaceKey& name_space = {}) {
    const uint32_t matched = Add({.sequence = SequenceId{id},
                                  .name_space = name_space,
                                  .tokens = kPrompt,
                                  .extra_token_ids = ids});
    FreeAsPeersDo(id);
    return matched;
  }
  uint32_t ServeItems(uint64_t id, const Tokens& prompt, std::vector<MultimodalItem> items) {
    const uint32_t matched =
        Add({.sequence = SequenceId{id}, .tokens = prompt, .multimodal_items = std::move(items)});
    Compute(id, static_cast<uint32_t>(prompt.size()));
    Free(id);
    return matched;
  }
  uint32_t MatchItems(const Tokens& prompt, std::vector<MultimodalItem> items) {
    return Run(MatchPrefix{.tokens = prompt, .multimodal_items = std::move(items)})->matched_tokens;
  }
};

// Scenario 9.
TEST_F(KeyIsolationTest, ExtraIdsArePartOfATokensIdentity) {
  EXPECT_EQ(AddWithIds(1, kFirstIds), 0u);
  EXPECT_EQ(AddWithIds(2, kFirstIds), 8u);
  EXPECT_EQ(AddWithIds(3, kOtherIds), 0u);
  EXPECT_EQ(AddWithIds(4, kMixedIds), 4u);
}

// Scenario 10.
TEST_F(KeyIsolationTest, AnAdapterMatchesItsOwnHistory) {
  const NamespaceKey first{.lora_id = 1}, second{.lora_id = 2};
  EXPECT_EQ(AddWithIds(1, kFirstIds, first), 0u);
  EXPECT_EQ(AddWithIds(2, kFirstIds, second), 0u);
  EXPECT_EQ(AddWithIds(3, kFirstIds, first), 8u);
  EXPECT_EQ(AddWithIds(4, kFirstIds, second), 8u);
  EXPECT_EQ(AddWithIds(5, kOtherIds, first), 0u);
  EXPECT_EQ(AddWithIds(6, kMixedIds, first), 4u);
  EXPECT_EQ(AddWithIds(7, kMixedIds, second), 4u);
  EXPECT_EQ(AddWithIds(8, kFirstIds), 0u) << "the base model has none";
}

// A block can match in part up to the first token whose extra id differs.
TEST_F(KeyIsolationTest, ExtraIdsAreComparedTokenByToken) {
  AddWithIds(1, kFirstIds);
  EXPECT_EQ(AddWithIds(2, {1, 1, 2, 2, 3, 9, 0, 0, 0}), 5u);
  EXPECT_EQ(AddWithIds(3, {1, 9, 2, 2, 3, 3, 0, 0, 0}), 1u);
}

TEST_F(KeyIsolationTest, NoExtraIdIsTheExtraIdZero) {
  Serve(1, kPrompt);
  EXPECT_EQ(AddWithIds(2, ExtraIds(kPrompt.size(), 0)), 8u);
  EXPECT_EQ(AddWithIds(3, {0, 0, 0, 0, 0, 0, 0, 1, 0}), 7u);
}

// Peers mix the salt into the first block's hash alone. Here the root's hash includes it, and every
// block below is chained to that.
TEST_F(KeyIsolationTest, SaltsDoNotShare) {
  const NamespaceKey salted{.cache_salt = "a"}, other{.cache_salt = "b"};
  Add(1, kPrompt, salted);
  TakeEvents();
  Compute(1, 8);
  const auto stored = TakeOnly<StoredEvent>();
  EXPECT_EQ(stored.name_space, salted);
  EXPECT_EQ(Match(kPrompt), 0u);
  EXPECT_EQ(Match(kPrompt, other), 0u);
  EXPECT_EQ(Match(kPrompt, {.lora_id = 0, .cache_salt = "a"}), 0u);
  EXPECT_EQ(Match(kPrompt, salted), 8u);

  Add(2, kPrompt, other);
  TakeEvents();
  Compute(2, 8);
  const auto other_stored = TakeOnly<StoredEvent>();
  for (size_t i = 0; i < 2; ++i)
    EXPECT_NE(stored.blocks.at(i).hash, other_stored.blocks.at(i).hash);
}

TEST_F(KeyIsolationTest, TenantsShareWhatBothPublishAsShared) {
  Add(1, kPrompt, {.tenant = "a"});
  Compute(1, 8);
  EXPECT_EQ(Match(kPrompt, {.tenant = "a"}), 8u);
  EXPECT_EQ(Match(kPrompt, {.tenant = "b"}), 0u);
  EXPECT_EQ(Match(kPrompt), 0u);
  EXPECT_EQ(Match(kPrompt, {.cache_salt = "a"}), 0u) << "a tenant is no salt";
}

// Peers do not match a part of a block with multimodal keys. Here an item's tokens are compared one
// by one, so such a block is like any other.
TEST_F(KeyIsolationTest, AMultimodalItemIsPartOfItsTokensIdentity) {
  const ItemDigest cat = {1, 2, 3, 4}, dog = {1, 2, 3, 5};
  const Tokens prompt = Range(10, 21);
  const auto item = [](const ItemDigest& digest) {
    return MultimodalItem{.digest = digest, .token_start = 2, .token_count = 8};
  };
  EXPECT_EQ(ServeItems(1, prompt, {item(cat)}), 0u);
  EXPECT_EQ(MatchItems(prompt, {item(cat)}), 11u);
  EXPECT_EQ(MatchItems(prompt, {item(dog)}), 2u) << "up to the item";
  EXPECT_EQ(MatchItems(prompt, {}), 2u);
  EXPECT_EQ(ServeItems(2, prompt, {item(dog)}), 2u);
  EXPECT_EQ(MatchItems(prompt, {item(dog)}), 11u);
}

TEST_F(KeyIsolationTest, WhereInTheItemATokenIsCounts) {
  const ItemDigest cat = {1, 2, 3, 4};
  const Tokens prompt = Range(10, 21);
  const MultimodalItem from_start{.digest = cat, .token_start = 4, .token_count = 4};
  MultimodalItem from_later = from_start;
  from_later.item_offset = 4;
  ServeItems(1, prompt, {from_start});
  EXPECT_EQ(MatchItems(prompt, {from_later}), 4u);

  // An item in two runs is the same content as in one, if the places are the same.
  const MultimodalItem head{.digest = cat, .token_start = 4, .token_count = 2};
  const MultimodalItem rest{.digest = cat, .token_start = 6, .token_count = 2, .item_offset = 2};
  EXPECT_EQ(MatchItems(prompt, {head, rest}), 11u);
  EXPECT_EQ(MatchItems(prompt, {head}), 6u);
}

TEST_F(KeyIsolationTest, EventsTellExtraIdsAndItems) {
  const MultimodalItem item{.digest = {7, 7, 7, 7}, .token_start = 6, .token_count = 3};
  Add({.sequence = SequenceId{1},
       .tokens = kPrompt,
       .extra_token_ids = {0, 5, 0, 0, 0, 0, 0, 0, 0},
       .multimodal_items = {item}});
  TakeEvents();
  Compute(1, 8);
  const auto stored = TakeOnly<StoredEvent>();
  ASSERT_EQ(stored.extras.size(), 8u);
  EXPECT_EQ(stored.extras.at(1), TokenExtra{.extra_id = 5});
  EXPECT_EQ(stored.extras.at(5), TokenExtra{});
  EXPECT_EQ(stored.extras.at(7),
            (TokenExtra{.digest = {7, 7, 7, 7}, .item_offset = 1, .in_item = true}));
  // The published hash is a function of these.
  const BlockKey all{stored.tokens, stored.extras};
  const BlockHash first = HashBlock(HashNamespace({}), all.First(4));
  EXPECT_EQ(stored.blocks.at(0).hash, first);
  EXPECT_EQ(stored.blocks.at(1).hash, HashBlock(first, all.Sub(4, 4)));

  Append(1, {3, 4, 5}, 12);
  EXPECT_THAT(TakeOnly<StoredEvent>().extras, ::testing::SizeIs(4)) << "the item's third place";
}

// Peers fall back to no keys with a warning, so that two different images may share blocks.
TEST_F(KeyIsolationTest, ItemsAndIdsThatDoNotFitTheTokensAreRefused) {
  const MultimodalItem item{.digest = {1, 2, 3, 4}, .token_start = 2, .token_count = 4};
  MultimodalItem overlapping = item;
  overlapping.token_start = 5;
  MultimodalItem beyond = item;
  beyond.token_start = 6;
  const auto refused = [this](std::vector<MultimodalItem> items) {
    ExpectRefused(Reason::kInvalidArgument, AddSequence{.sequence = SequenceId{1},
                                                        .tokens = kPrompt,
                                                        .multimodal_items = std::move(items)});
  };
  refused({beyond});
  refused({item, overlapping});
  refused({overlapping, item});
  ExpectRefused(Reason::kInvalidArgument,
                AddSequence{.sequence = SequenceId{1}, .tokens = kPrompt, .extra_token_ids = {1}});
  EXPECT_THAT(core_->DumpTree(kFullAttention), IsEmpty());
}

// The operations on prefixes can name everything that AddSequence can name.
class NamedPrefixTest : public ConformanceTest {
 protected:
  // Pins, offloads, prefetches, retains, inspects and invalidates the cached prompt, and nothing
  // else.
  void ExpectNamed(const Tokens& tokens, const ExtraIds& ids,
                   const std::vector<MultimodalItem>& items) {
    Make(4, 8, 8);
    Serve(1, tokens);  // The same tokens without anything else.
    Add({.sequence = SequenceId{2},
         .tokens = tokens,
         .extra_token_ids = ids,
         .multimodal_items = items});
    Compute(2, 8);
    Free(2);
    ASSERT_EQ(CachedBlocks(), 4u);
    const auto named = [&](auto operation) {
      operation.tokens = tokens;
      operation.extra_token_ids = ids;
      operation.multimodal_items = items;
      return operation;
    };
    const SequencePrompt prompt{.name_space = kNowhere,
                                .tokens = tokens,
                                .extra_token_ids = ids,
                                .multimodal_items = items};
    const auto inspect = [&] {
      auto inspected = core_->lists().InspectPrefix(prompt);
      EXPECT_TRUE(inspected.ok()) << inspected.status();
      return *std::move(inspected);
    };
    EXPECT_EQ(inspect().matched_tokens, 8u);
    ASSERT_EQ(inspect().blocks.size(), 2u);

    EXPECT_EQ(Run(named(QueryCapacity{}))->matched_tokens, 7u);
    const auto pinned = Run(named(PinPrefix{}));
    EXPECT_EQ(pinned->pinned_tokens, 8u);
    for (const InspectedBlock& block : inspect().blocks) EXPECT_TRUE(block.pinned);
    EXPECT_EQ(Primary().pinned, 2u);
    EXPECT_TRUE(Run(UnpinPrefix{pinned->pin}).ok());

    SetRetention keep = named(SetRetention{});
    keep.retention.ranges = {{.token_start = 0, .retention = {.priority = Priority{90}}}};
    EXPECT_EQ(Run(keep)->blocks, 2u);
    EXPECT_EQ(Run(named(OffloadPrefix{}))->blocks, 2u);
    for (const InspectedBlock& block : inspect().blocks) {
      EXPECT_EQ(block.tier, Tier(1));
      EXPECT_EQ(block.priority, Priority{90});
    }
    EXPECT_EQ(Run(named(PrefetchPrefix{}))->blocks, 2u);
    EXPECT_EQ(inspect().blocks.front().tier, kPrimaryTier);

    EXPECT_EQ(Run(named(InvalidatePrefix{}))->removed_blocks, 1u) << "what begins with all of it";
    EXPECT_EQ(inspect().matched_tokens, 4u);
    EXPECT_EQ(CachedBlocks(), 3u) << "the plain tokens are another prefix";
    EXPECT_EQ(RequireCached(tokens).priority, kDefaultPriority);
  }

  const NamespaceKey kNowhere;
};

TEST_F(NamedPrefixTest, APrefixWithExtraIds) {
  ExpectNamed(Range(0, 7), {1, 1, 2, 2, 3, 3, 0, 0}, {});
}

TEST_F(NamedPrefixTest, APrefixWithAnImage) {
  ExpectNamed(Range(0, 7), {},
              {{.digest = {1, 2, 3, 4}, .token_start = 1, .token_count = 5, .item_offset = 2}});
}

TEST_F(NamedPrefixTest, WhatDoesNotFitTheTokensIsRefused) {
  Make(4, 8, 8);
  Serve(1, Range(0, 7));
  const ExtraIds short_ids = {1, 2};
  const std::vector<MultimodalItem> outside = {{.token_start = 6, .token_count = 3}};
  const auto refuse = [&](auto operation) {
    operation.tokens = Range(0, 7);
    operation.extra_token_ids = short_ids;
    ExpectRefused(Reason::kInvalidArgument, operation);
    operation.extra_token_ids.clear();
    operation.multimodal_items = outside;
    ExpectRefused(Reason::kInvalidArgument, operation);
  };
  refuse(PinPrefix{});
  refuse(OffloadPrefix{});
  refuse(PrefetchPrefix{});
  refuse(SetRetention{});
  refuse(InvalidatePrefix{});
  refuse(QueryCapacity{});
  EXPECT_EQ(ReasonOf(core_->lists()
                         .InspectPrefix({.name_space = kNowhere,
                                         .tokens = Range(0, 7),
                                         .extra_token_ids = short_ids})
                         .status()),
            Reason::kInvalidArgument);
}

}  // namespace
}  // namespace pagoda
