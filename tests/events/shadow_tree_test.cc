#include "tests/events/shadow_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "events/client_key.h"
#include "tests/events/tree_model.h"

namespace pagoda {
namespace {

using ::testing::HasSubstr;

constexpr WindowSize kSliding{4};
constexpr BlockId kA{5}, kB{9}, kC{2};  // A chain in which ids do not ascend.
const std::vector<TokenId> kTokensA = {1, 2}, kTokensB = {3, 4}, kTokensC = {5};
const BlockHash kRoot = HashNamespace({});
const BlockHash kHashA = HashBlock(kRoot, {kTokensA});
const BlockHash kHashB = HashBlock(kHashA, {kTokensB});
const BlockHash kHashC = HashBlock(kHashB, {kTokensC});

// Gives events their revisions.
class ShadowTreeTest : public ::testing::TestWithParam<WindowSize> {
 protected:
  absl::Status Apply(decltype(Event::what) what) {
    return tree_.Apply({.revision = Revision{revision_++}, .window = window_, .what = what});
  }
  // The error's text; empty if the event fits. The tree is unchanged after an error.
  std::string Refusal(decltype(Event::what) what) const {
    ShadowTree copy = tree_;
    const absl::Status status =
        copy.Apply({.revision = Revision{revision_}, .window = window_, .what = std::move(what)});
    return std::string(status.message());
  }
  void StoreChain() { ASSERT_TRUE(Apply(Chain()).ok()); }

  static StoredEvent Chain() {
    return {.blocks = {{.id = kA, .hash = kHashA, .token_count = 2},
                       {.id = kB, .hash = kHashB, .token_count = 2}},
            .tokens = {1, 2, 3, 4}};
  }
  static StoredEvent TailBelowB(Tier tier = kPrimaryTier) {
    return {.parent_hash = kHashB,
            .parent = kB,
            .blocks = {{.id = kC, .hash = kHashC, .token_count = 1, .tier = tier}},
            .tokens = {5}};
  }
  static RemovedEvent Removed(std::pmr::vector<BlockId> ids, std::pmr::vector<BlockHash> hashes) {
    return {.blocks = std::move(ids), .hashes = std::move(hashes)};
  }
  static UpdatedEvent Moved(BlockId id, BlockHash hash, Tier from, Tier to) {
    return {.id = id, .hash = hash, .tier = Change<Tier>{from, to}};
  }
  static UpdatedEvent Down(BlockId id, BlockHash hash) {
    return Moved(id, hash, kPrimaryTier, Tier(1));
  }
  static UpdatedEvent Up(BlockId id, BlockHash hash) {
    return Moved(id, hash, Tier(1), kPrimaryTier);
  }

  WindowSize window_ = kFullAttention;
  uint64_t revision_ = 1;
  ShadowTree tree_;
};

class ShadowTreeOfEitherKindTest : public ShadowTreeTest {
 protected:
  ShadowTreeOfEitherKindTest() { window_ = GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Windows, ShadowTreeOfEitherKindTest,
                         ::testing::Values(kFullAttention, kSliding),
                         [](const auto& test) { return WindowName(test.param); });

TEST_P(ShadowTreeOfEitherKindTest, AChainIsStoredWithItsParents) {
  StoreChain();
  const std::vector<TreeEntry> entries = tree_.Dump(window_);
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[0].id, kA);
  EXPECT_EQ(entries[0].parent, kNoBlock);
  EXPECT_EQ(entries[1].parent, kA);
  EXPECT_EQ(entries[1].tokens, kTokensB);
  EXPECT_EQ(tree_.revision(), Revision{1});
}

TEST_P(ShadowTreeOfEitherKindTest, RevisionsHaveNoHoles) {
  StoreChain();
  revision_ = 1;
  EXPECT_THAT(Refusal(CreatedEvent{}), HasSubstr("revision 1 follows 1"));
  revision_ = 3;
  EXPECT_THAT(Refusal(CreatedEvent{}), HasSubstr("revision 3 follows 1"));
  revision_ = 2;
  EXPECT_EQ(Refusal(CreatedEvent{}), "");
}

TEST_P(ShadowTreeOfEitherKindTest, RefusesAStoreThatDoesNotFit) {
  StoredEvent event = Chain();
  event.tokens[3] = 7;
  EXPECT_THAT(Refusal(event), HasSubstr("wrong hash: block 9"));
  event = Chain();
  event.tokens.push_back(7);
  EXPECT_THAT(Refusal(event), HasSubstr("too many tokens"));
  event.tokens.resize(3);
  EXPECT_THAT(Refusal(event), HasSubstr("too few tokens"));
  event = Chain();
  event.extras.resize(3);
  EXPECT_THAT(Refusal(event), HasSubstr("extras do not fit the tokens"));
  event = Chain();
  event.parent = kC;
  EXPECT_THAT(Refusal(event), HasSubstr("parent hash without parent"));

  StoreChain();
  EXPECT_THAT(Refusal(Chain()), HasSubstr("stored twice: block 5"));
  event = TailBelowB();
  event.name_space = NamespaceKey{.tenant = "t"};
  EXPECT_THAT(Refusal(event), HasSubstr("another namespace"));
  event = TailBelowB();
  event.parent_hash = kHashA;
  event.blocks[0].hash = HashBlock(kHashA, {kTokensC});
  EXPECT_THAT(Refusal(event), HasSubstr("wrong parent hash"));

  ASSERT_TRUE(Apply(TailBelowB()).ok());
  event = {.parent_hash = kHashC, .parent = kC, .tokens = {6, 7}};
  event.blocks = {{.id = BlockId{1}, .hash = HashBlock(kHashC, {event.tokens}), .token_count = 2}};
  EXPECT_THAT(Refusal(event), HasSubstr("below a tail"));
}

TEST_P(ShadowTreeOfEitherKindTest, RefusesARemovalThatDoesNotFit) {
  StoreChain();
  EXPECT_THAT(Refusal(Removed({kB}, {kHashA})), HasSubstr("wrong hash"));
  EXPECT_THAT(Refusal(Removed({kC}, {kHashC})), HasSubstr("not cached: block 2"));
  EXPECT_THAT(Refusal(Removed({kB}, {})), HasSubstr("differ in number"));
  ASSERT_TRUE(Apply(Removed({kB, kA}, {kHashB, kHashA})).ok());
  EXPECT_TRUE(tree_.Dump(window_).empty());
  EXPECT_THAT(Refusal(Removed({kA}, {kHashA})), HasSubstr("not cached"));
}

TEST_P(ShadowTreeOfEitherKindTest, AnUpdateChangesTierAndPriority) {
  StoreChain();
  UpdatedEvent both = Down(kB, kHashB);
  both.priority = Change<Priority>{kDefaultPriority, Priority{80}};
  ASSERT_TRUE(Apply(both).ok());
  EXPECT_EQ(tree_.Dump(window_)[1].tier, Tier(1));
  EXPECT_EQ(tree_.Dump(window_)[1].priority, Priority{80});

  EXPECT_THAT(Refusal(both), HasSubstr("wrong old priority"));
  EXPECT_THAT(Refusal(Down(kB, kHashB)), HasSubstr("wrong old tier"));
  EXPECT_THAT(Refusal(Down(kA, kHashB)), HasSubstr("updated with a wrong hash"));
  EXPECT_THAT(Refusal(Down(kC, kHashC)), HasSubstr("updated but not cached"));
  EXPECT_THAT(Refusal(UpdatedEvent{.id = kA, .hash = kHashA}), HasSubstr("without a change"));
  EXPECT_THAT(Refusal(Moved(kA, kHashA, kPrimaryTier, Tier{7})), HasSubstr("no such tier"));
}

TEST_P(ShadowTreeOfEitherKindTest, AnUpdateChangesLowerCopies) {
  StoreChain();
  const TierSet below = TierSet::FromBits(0b10);
  UpdatedEvent copied{.id = kB, .hash = kHashB};
  copied.lower = Change<TierSet>{{}, below};
  ASSERT_TRUE(Apply(copied).ok());
  EXPECT_EQ(tree_.Dump(window_)[1].lower, below);
  EXPECT_THAT(Refusal(copied), HasSubstr("other lower copies"));
  EXPECT_THAT(Refusal(Down(kB, kHashB)), HasSubstr("a lower copy in no farther tier"));
  UpdatedEvent down = Down(kB, kHashB);
  down.lower = Change<TierSet>{below, {}};
  ASSERT_TRUE(Apply(down).ok());
  EXPECT_EQ(tree_.Dump(window_)[1].tier, Tier(1));
  EXPECT_TRUE(tree_.Dump(window_)[1].lower.empty());
}

TEST_P(ShadowTreeOfEitherKindTest, AClearedWindowIsEmptyAndOthersStay) {
  StoreChain();
  ASSERT_TRUE(tree_
                  .Apply({.revision = Revision{revision_++},
                          .window = WindowSize{8},
                          .what = RemovedEvent{.reason = RemovalReason::kCleared,
                                               .scope = RemovedEvent::Scope::kWindow}})
                  .ok());
  EXPECT_EQ(tree_.Dump(window_).size(), 2u);
  ASSERT_TRUE(
      Apply(RemovedEvent{.reason = RemovalReason::kCleared, .scope = RemovedEvent::Scope::kWindow})
          .ok());
  EXPECT_TRUE(tree_.Dump(window_).empty());
  EXPECT_TRUE(tree_.Compare(window_, {}).ok());
  StoreChain();
}

TEST_P(ShadowTreeOfEitherKindTest, WithThePoolsEverythingGoes) {
  StoreChain();
  ASSERT_TRUE(
      Apply(RemovedEvent{.reason = RemovalReason::kReleased, .scope = RemovedEvent::Scope::kPools})
          .ok());
  EXPECT_TRUE(tree_.Dump(window_).empty());
}

TEST_P(ShadowTreeOfEitherKindTest, RawBlocksAreNotInTheTree) {
  StoreChain();
  ASSERT_TRUE(Apply(CreatedEvent{.blocks = {kC}}).ok());
  ASSERT_TRUE(Apply(RemovedEvent{.reason = RemovalReason::kReleased, .blocks = {kC}}).ok());
  EXPECT_EQ(tree_.Dump(window_).size(), 2u);
}

TEST_P(ShadowTreeOfEitherKindTest, ExtrasArePartOfTheContent) {
  StoredEvent event = Chain();
  event.extras.resize(4);
  event.extras[3].extra_id = 8;
  EXPECT_THAT(Refusal(event), HasSubstr("wrong hash: block 9"));
  event.blocks[1].hash = HashBlock(kHashA, BlockKey{event.tokens, event.extras}.Sub(2, 2));
  ASSERT_TRUE(Apply(event).ok());
  const std::vector<TreeEntry> entries = tree_.Dump(window_);
  EXPECT_TRUE(entries[0].extras.empty()) << "they say nothing";
  ASSERT_EQ(entries[1].extras.size(), 2u);
  EXPECT_EQ(entries[1].extras[1].extra_id, 8u);
}

TEST_F(ShadowTreeTest, AFullAttentionBlockNeedsItsParent) {
  EXPECT_THAT(Refusal(TailBelowB()), HasSubstr("parent that is not cached: block 2"));
  StoreChain();
  EXPECT_THAT(Refusal(Removed({kA, kB}, {kHashA, kHashB})), HasSubstr("before its children"));
}

TEST_F(ShadowTreeTest, AFullAttentionChildIsNeverNearerThanItsParent) {
  StoreChain();
  EXPECT_THAT(Refusal(Down(kA, kHashA)), HasSubstr("below its children: block 5"));
  ASSERT_TRUE(Apply(Down(kB, kHashB)).ok());
  EXPECT_THAT(Refusal(TailBelowB()), HasSubstr("nearer tier than its parent"));
  EXPECT_EQ(Refusal(TailBelowB(Tier(1))), "");
  ASSERT_TRUE(Apply(Down(kA, kHashA)).ok());
  EXPECT_THAT(Refusal(Up(kB, kHashB)), HasSubstr("above its parent: block 9"));
  ASSERT_TRUE(Apply(Up(kA, kHashA)).ok());
  EXPECT_EQ(Refusal(Up(kB, kHashB)), "");
}

TEST_F(ShadowTreeTest, ARemovedChildHoldsItsParentNoMore) {
  StoreChain();
  ASSERT_TRUE(Apply(Removed({kB}, {kHashB})).ok());
  EXPECT_EQ(Refusal(Down(kA, kHashA)), "");
  EXPECT_EQ(Refusal(Removed({kA}, {kHashA})), "");
}

class SlidingShadowTreeTest : public ShadowTreeTest {
 protected:
  SlidingShadowTreeTest() { window_ = kSliding; }
};

TEST_F(SlidingShadowTreeTest, AHoleKeepsItsPlace) {
  StoreChain();
  ASSERT_TRUE(Apply(Removed({kA}, {kHashA})).ok());
  ASSERT_EQ(tree_.Dump(kSliding).size(), 1u);
  EXPECT_EQ(tree_.Dump(kSliding)[0].parent, kA);
  EXPECT_THAT(Refusal(Removed({kA}, {kHashA})), HasSubstr("removed but not cached"));
  EXPECT_THAT(Refusal(Down(kA, kHashA)), HasSubstr("updated but not cached"));

  StoredEvent other{.blocks = {{.id = kA, .token_count = 2}}, .tokens = {8, 8}};
  other.blocks[0].hash = HashBlock(kRoot, {other.tokens});
  EXPECT_THAT(Refusal(other), HasSubstr("other content than below it: block 5"));
  StoredEvent same = Chain();
  same.blocks.pop_back();
  same.tokens.resize(2);
  ASSERT_TRUE(Apply(same).ok());
  EXPECT_EQ(tree_.Dump(kSliding).size(), 2u);
}

TEST_F(SlidingShadowTreeTest, ABlockIsStoredBelowAHole) {
  StoreChain();
  ASSERT_TRUE(Apply(TailBelowB()).ok());
  ASSERT_TRUE(Apply(Removed({kB}, {kHashB})).ok());
  StoredEvent sibling = TailBelowB();
  sibling.tokens = {6};
  sibling.blocks[0].id = BlockId{3};
  sibling.blocks[0].hash = HashBlock(kHashA, {sibling.tokens});
  sibling.parent_hash = kHashA;
  EXPECT_THAT(Refusal(sibling), HasSubstr("wrong parent hash"));
  sibling.blocks[0].hash = HashBlock(kHashB, {sibling.tokens});
  sibling.parent_hash = kHashB;
  EXPECT_EQ(Refusal(sibling), "");
}

TEST_F(SlidingShadowTreeTest, AHoleWithNothingBelowIsForgotten) {
  StoreChain();
  ASSERT_TRUE(Apply(TailBelowB()).ok());
  ASSERT_TRUE(Apply(Removed({kA, kB}, {kHashA, kHashB})).ok());
  StoredEvent other{.blocks = {{.id = kA, .token_count = 1}}, .tokens = {8}};
  other.blocks[0].hash = HashBlock(kRoot, {other.tokens});
  EXPECT_THAT(Refusal(other), HasSubstr("other content")) << "C hangs below B, and B below A";
  ASSERT_TRUE(Apply(Removed({kC}, {kHashC})).ok());
  EXPECT_EQ(Refusal(other), "");
}

TEST_F(SlidingShadowTreeTest, AHoleKeepsItsParent) {
  StoreChain();
  ASSERT_TRUE(Apply(TailBelowB()).ok());
  ASSERT_TRUE(Apply(Removed({kB}, {kHashB})).ok());
  StoredEvent twin = Chain();  // The content of A under another id, with B below it.
  twin.blocks[0].id = BlockId{7};
  EXPECT_THAT(Refusal(twin), HasSubstr("another parent than before: block 9"));
}

TEST_F(SlidingShadowTreeTest, AParentMayNeverHaveBeenCached) {
  ASSERT_TRUE(Apply(TailBelowB()).ok());
  StoredEvent b = Chain();
  b.blocks.erase(b.blocks.begin());
  b.tokens.assign(kTokensB.begin(), kTokensB.end());
  b.parent = kA;
  b.parent_hash = kHashA;
  ASSERT_TRUE(Apply(b).ok());
  EXPECT_EQ(tree_.Dump(kSliding).size(), 2u);
}

TEST_F(SlidingShadowTreeTest, TiersAreFree) {
  StoreChain();
  ASSERT_TRUE(Apply(Down(kA, kHashA)).ok());
  EXPECT_EQ(Refusal(TailBelowB(Tier(1))), "");
}

// --- Against a model on random events ---

TEST_P(ShadowTreeOfEitherKindTest, EqualsAModelOnRandomEvents) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    TreeModel model(window_, seed);
    tree_ = ShadowTree();
    size_t most = 0;
    for (revision_ = 1; revision_ <= 500;) {
      const absl::Status applied = Apply(model.Next());
      ASSERT_TRUE(applied.ok()) << applied << " at revision " << revision_;
      const std::vector<TreeEntry> entries = model.Entries();
      most = std::max(most, entries.size());
      ASSERT_EQ(tree_.Dump(window_), entries);
      const absl::Status compared = tree_.Compare(window_, entries);
      ASSERT_TRUE(compared.ok()) << compared;
    }
    EXPECT_GT(most, 6u);
  }
}

// --- Comparing ---

class ShadowTreeCompareTest : public ShadowTreeTest {
 protected:
  ShadowTreeCompareTest() {
    StoreChain();
    entries_ = tree_.Dump(kFullAttention);
  }
  std::string Difference() const {
    return std::string(tree_.Compare(kFullAttention, entries_).message());
  }

  std::vector<TreeEntry> entries_;
};

TEST_F(ShadowTreeCompareTest, EveryPartOfABlockCounts) {
  EXPECT_EQ(Difference(), "");
  TreeEntry& b = entries_[1];
  const TreeEntry right = b;
  b.hash = kHashA;
  EXPECT_EQ(Difference(), "the events tell of another hash: block 9");
  b = right;
  b.parent = kNoBlock;
  EXPECT_EQ(Difference(), "the events tell of another parent: block 9");
  b = right;
  b.tier = Tier(1);
  EXPECT_EQ(Difference(), "the events tell of another tier: block 9");
  b = right;
  b.priority = Priority{36};
  EXPECT_EQ(Difference(), "the events tell of another priority: block 9");
  b = right;
  b.tokens[1] = 5;
  EXPECT_EQ(Difference(), "the events tell of other tokens: block 9");
  b = right;
  b.extras.resize(2);
  EXPECT_EQ(Difference(), "") << "extras that say nothing";
  EXPECT_EQ(b, right);
  b.extras[0].extra_id = 1;
  EXPECT_EQ(Difference(), "the events tell of other tokens: block 9");
  EXPECT_FALSE(b == right);
  b = right;
  b.name_space.cache_salt = "s";
  EXPECT_EQ(Difference(), "the events tell of another namespace: block 9");
}

TEST_F(ShadowTreeCompareTest, EveryBlockCountsOnce) {
  entries_.push_back(entries_[1]);
  EXPECT_EQ(Difference(), "not shown in order of ids: block 9");
  entries_.back().id = BlockId{10};
  EXPECT_EQ(Difference(), "in the tree, but not reported by the events: block 10");
  entries_.resize(1);
  EXPECT_EQ(Difference(), "reported by the events, but not in the tree: block 9");
  entries_.clear();
  EXPECT_EQ(Difference(), "reported by the events, but not in the tree: block 5");
  EXPECT_TRUE(tree_.Compare(kSliding, entries_).ok()) << "nothing was ever in that window";
}

// Blocks that keys name.
class KeyedShadowTreeTest : public ShadowTreeTest {
 protected:
  static StoredEvent Keyed(const std::vector<std::string>& names) {
    StoredEvent stored{.name_space = NamespaceKey{.keyed = true}};
    BlockHash parent = HashNamespace(*stored.name_space);
    for (const std::string& name : names) {
      const ClientKey key = *ClientKey::Make(name);
      parent = HashBlock(parent, key.block_key());
      const BlockId id{static_cast<uint32_t>(stored.blocks.size())};
      stored.blocks.push_back({.id = id, .hash = parent, .token_count = 2});
      stored.tokens.insert(stored.tokens.end(), key.words().begin(), key.words().end());
    }
    return stored;
  }
};

TEST_F(KeyedShadowTreeTest, AChainHasItsKeys) {
  ASSERT_TRUE(Apply(Keyed({"a", std::string(64, 'x')})).ok());
  const std::vector<TreeEntry> entries = tree_.Dump(window_);
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(ClientKeyBytes(entries[0].key()), "a");
  EXPECT_EQ(ClientKeyBytes(entries[1].key()), std::string(64, 'x'));
  EXPECT_EQ(entries[1].parent, BlockId{0});
}

TEST_F(KeyedShadowTreeTest, WhatIsNoKeyDoesNotFit) {
  StoredEvent no_key = Keyed({"a"});
  no_key.tokens[0] = 65;
  no_key.blocks[0].hash =
      HashBlock(HashNamespace(*no_key.name_space), no_key.KeyAt(0, no_key.blocks[0]));
  EXPECT_THAT(Refusal(no_key), HasSubstr("no key"));
  StoredEvent few = Keyed({"a", "b"});
  few.tokens.pop_back();
  EXPECT_THAT(Refusal(few), HasSubstr("too few tokens"));
  StoredEvent of_tokens = Keyed({"a"});
  of_tokens.name_space = NamespaceKey{};
  EXPECT_THAT(Refusal(of_tokens), HasSubstr("wrong hash"));
}

}  // namespace
}  // namespace pagoda
