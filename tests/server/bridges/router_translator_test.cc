#include "server/bridges/router_translator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <random>
#include <set>
#include <string>

#include "events/client_key.h"
#include "tests/events/shadow_tree.h"

namespace pagoda::server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr uint32_t kTokensPerBlock = 2;
constexpr WindowSize kSliding{4};
const BlockHash kRoot = HashNamespace({});

BlockHash HashOf(BlockHash parent, const std::vector<TokenId>& tokens) {
  return HashBlock(parent, {.tokens = tokens, .extras = {}});
}
const BlockHash kHashA = HashOf(kRoot, {1, 2});
const BlockHash kHashB = HashOf(kHashA, {3, 4});

class RouterTranslatorTest : public ::testing::Test {
 protected:
  explicit RouterTranslatorTest(std::vector<WindowSize> windows = {kFullAttention})
      : translator_({.tokens_per_block = kTokensPerBlock, .windows = std::move(windows)}) {}

  std::vector<RouterEvent> Translate(decltype(Event::what) what,
                                     WindowSize window = kFullAttention) {
    std::vector<RouterEvent> out;
    translator_.Translate({.window = window, .tenant = TenantId(3), .what = std::move(what)}, out);
    return out;
  }

  // Two blocks below the root, with the ids 5 and 9.
  static StoredEvent Chain() {
    return {.blocks = {{.id = BlockId(5), .hash = kHashA, .token_count = 2},
                       {.id = BlockId(9), .hash = kHashB, .token_count = 2}},
            .tokens = {1, 2, 3, 4}};
  }
  static BlocksStored StoredChain(WindowSize window = kFullAttention) {
    return {.window = window,
            .name_space = std::make_shared<NamespaceKey>(),
            .hashes = {kHashA, kHashB},
            .tokens = {1, 2, 3, 4}};
  }
  static UpdatedEvent Down(BlockId id, BlockHash hash) {
    return {.id = id, .hash = hash, .tier = Change<Tier>{kPrimaryTier, Tier(1)}};
  }
  static RouterEvent Mine(decltype(RouterEvent::what) what) {
    return {TenantId(3), std::move(what)};
  }

  RouterTranslator translator_;
};

TEST_F(RouterTranslatorTest, AChainIsStoredAtOnce) {
  EXPECT_THAT(Translate(Chain()), ElementsAre(Mine(StoredChain())));
  EXPECT_EQ(translator_.cached_blocks(), 2u);
}

// A router finds blocks by their tokens.
TEST_F(RouterTranslatorTest, BlocksThatKeysNameAreLeftOut) {
  StoredEvent keyed{.name_space = NamespaceKey{.keyed = true}};
  BlockHash parent = HashNamespace(*keyed.name_space);
  for (const std::string name : {"a", "b"}) {
    const ClientKey key = *ClientKey::Make(name);
    parent = HashBlock(parent, key.block_key());
    const BlockId id(static_cast<uint32_t>(20 + keyed.blocks.size()));
    keyed.blocks.push_back({.id = id, .hash = parent, .token_count = 2});
    keyed.tokens.insert(keyed.tokens.end(), key.words().begin(), key.words().end());
  }
  EXPECT_THAT(Translate(keyed), IsEmpty());
  EXPECT_EQ(translator_.cached_blocks(), 0u);
  EXPECT_THAT(Translate(Chain()), ElementsAre(Mine(StoredChain())));
  EXPECT_THAT(Translate(Down(BlockId(21), parent)), IsEmpty());
  EXPECT_THAT(Translate(RemovedEvent{.blocks = {BlockId(21), BlockId(20)},
                                     .hashes = {parent, keyed.blocks[0].hash}}),
              IsEmpty());
  EXPECT_EQ(translator_.misfits(), 0u);
}

TEST_F(RouterTranslatorTest, ABlockBelowAnotherNamesIt) {
  Translate(Chain());
  StoredEvent below = {.parent_hash = kHashB,
                       .parent = BlockId(9),
                       .blocks = {{.id = BlockId(1),
                                   .hash = HashOf(kHashB, {5, 6}),
                                   .token_count = 2,
                                   .tier = Tier(1)}},
                       .tokens = {5, 6}};
  EXPECT_THAT(Translate(below),
              ElementsAre(Mine(BlocksStored{.tier = Tier(1),
                                            .parent = kHashB,
                                            .name_space = std::make_shared<NamespaceKey>(),
                                            .hashes = {HashOf(kHashB, {5, 6})},
                                            .tokens = {5, 6}})));
}

TEST_F(RouterTranslatorTest, AMoveIsARemovalAndAStoreWithTokensAndParent) {
  StoredEvent chain = Chain();
  chain.extras.resize(4);
  chain.extras[2].extra_id = 7;
  Translate(chain);
  const std::vector<TokenExtra> extras(chain.extras.begin() + 2, chain.extras.end());
  EXPECT_THAT(Translate(Down(BlockId(9), kHashB)),
              ElementsAre(Mine(BlocksRemoved{.tier = kPrimaryTier, .hashes = {kHashB}}),
                          Mine(BlocksStored{.tier = Tier(1),
                                            .parent = kHashA,
                                            .name_space = std::make_shared<NamespaceKey>(),
                                            .hashes = {kHashB},
                                            .tokens = {3, 4},
                                            .extras = extras})));
  RemovedEvent removed = {.blocks = {BlockId(9)}, .hashes = {kHashB}};
  EXPECT_THAT(Translate(removed),
              ElementsAre(Mine(BlocksRemoved{.tier = Tier(1), .hashes = {kHashB}})));
}

// A copy in a farther tier counts as a separate block. If a block with such a copy is onboarded,
// only the nearer tier reports it stored; if it is offloaded to its copy, only the nearer tier
// reports it removed.
TEST_F(RouterTranslatorTest, ACopyIsToldInItsTierAndGoesThere) {
  StoredEvent chain = Chain();
  chain.blocks[0].tier = Tier(1);
  chain.blocks[1].tier = Tier(1);
  Translate(chain);
  const TierSet below = TierSet::FromBits(2);
  UpdatedEvent up = {.id = BlockId(5), .hash = kHashA};
  up.tier = Change<Tier>{Tier(1), kPrimaryTier};
  up.lower = Change<TierSet>{{}, below};
  EXPECT_THAT(
      Translate(up),
      ElementsAre(Mine(BlocksStored{
          .name_space = std::make_shared<NamespaceKey>(), .hashes = {kHashA}, .tokens = {1, 2}})));
  UpdatedEvent dropped = {.id = BlockId(5), .hash = kHashA};
  dropped.lower = Change<TierSet>{below, {}};
  EXPECT_THAT(Translate(dropped),
              ElementsAre(Mine(BlocksRemoved{.tier = Tier(1), .hashes = {kHashA}})));
  dropped.lower = Change<TierSet>{{}, below};
  EXPECT_THAT(Translate(dropped),
              ElementsAre(Mine(BlocksStored{.tier = Tier(1),
                                            .name_space = std::make_shared<NamespaceKey>(),
                                            .hashes = {kHashA},
                                            .tokens = {1, 2}})));
  UpdatedEvent down = Down(BlockId(5), kHashA);
  down.lower = Change<TierSet>{below, {}};
  EXPECT_THAT(Translate(down), ElementsAre(Mine(BlocksRemoved{.hashes = {kHashA}})));
}

TEST_F(RouterTranslatorTest, AChainAndItsCopiesAreARunEach) {
  StoredEvent chain = Chain();
  for (StoredBlock& block : chain.blocks) block.lower = TierSet::FromBits(0b110);
  BlocksStored second = StoredChain(), third = StoredChain();
  second.tier = Tier(1);
  third.tier = Tier{2};
  third.also_below = true;
  EXPECT_THAT(Translate(chain), ElementsAre(Mine(StoredChain()), Mine(second), Mine(third)));
  EXPECT_EQ(translator_.cached_blocks(), 2u);
  std::vector<RouterEvent> late;
  translator_.EmitAll([&](RouterEvent event) { late.push_back(std::move(event)); });
  EXPECT_THAT(late, ElementsAre(Mine(StoredChain()), Mine(second), Mine(third)));

  const RemovedEvent removed = {.blocks = {BlockId(9), BlockId(5)}, .hashes = {kHashB, kHashA}};
  const std::vector<BlockHash> both = {kHashB, kHashA};
  EXPECT_THAT(Translate(removed),
              ElementsAre(Mine(BlocksRemoved{.tier = Tier{2}, .also_below = true, .hashes = both}),
                          Mine(BlocksRemoved{.tier = Tier(1), .hashes = both}),
                          Mine(BlocksRemoved{.hashes = both})));
}

TEST_F(RouterTranslatorTest, WhatRoutersDoNotKnowIsLeftOut) {
  Translate(Chain());
  EXPECT_THAT(Translate(CreatedEvent{.blocks_per_tier = {64, 0}}), IsEmpty());
  EXPECT_THAT(Translate(UpdatedEvent{.id = BlockId(5),
                                     .hash = kHashA,
                                     .priority = Change<Priority>{Priority(35), Priority(80)}}),
              IsEmpty());
  EXPECT_THAT(Translate(RemovedEvent{.reason = RemovalReason::kReleased, .blocks = {BlockId(40)}}),
              IsEmpty());
  EXPECT_EQ(translator_.misfits(), 0u);
}

TEST_F(RouterTranslatorTest, ATailIsNobodysBusiness) {
  const BlockHash tail = HashOf(kHashA, {3});
  StoredEvent stored = {.blocks = {{.id = BlockId(5), .hash = kHashA, .token_count = 2},
                                   {.id = BlockId(6), .hash = tail, .token_count = 1}},
                        .tokens = {1, 2, 3}};
  EXPECT_THAT(
      Translate(stored),
      ElementsAre(Mine(BlocksStored{
          .name_space = std::make_shared<NamespaceKey>(), .hashes = {kHashA}, .tokens = {1, 2}})));
  EXPECT_THAT(Translate(Down(BlockId(6), tail)), IsEmpty());
  EXPECT_THAT(Translate(RemovedEvent{.blocks = {BlockId(6)}, .hashes = {tail}}), IsEmpty());
  EXPECT_EQ(translator_.misfits(), 0u);
}

TEST_F(RouterTranslatorTest, AHashLeavesWithItsLastBlock) {
  Translate(Chain());
  StoredEvent again = {.blocks = {{.id = BlockId(7), .hash = kHashA, .token_count = 2}},
                       .tokens = {1, 2}};
  EXPECT_THAT(Translate(again), IsEmpty());
  EXPECT_THAT(Translate(RemovedEvent{.blocks = {BlockId(5)}, .hashes = {kHashA}}), IsEmpty());
  EXPECT_THAT(Translate(RemovedEvent{.blocks = {BlockId(7)}, .hashes = {kHashA}}),
              ElementsAre(Mine(BlocksRemoved{.hashes = {kHashA}})));
}

TEST_F(RouterTranslatorTest, TheRestOfAChainWithADuplicateInItNamesTheDuplicate) {
  StoredEvent other = {.parent_hash = kHashA,
                       .parent = BlockId(90),
                       .blocks = {{.id = BlockId(9), .hash = kHashB, .token_count = 2}},
                       .tokens = {3, 4}};
  Translate(other);
  const BlockHash c = HashOf(kHashB, {5, 6});
  StoredEvent chain = {.blocks = {{.id = BlockId(1), .hash = kHashA, .token_count = 2},
                                  {.id = BlockId(2), .hash = kHashB, .token_count = 2},
                                  {.id = BlockId(3), .hash = c, .token_count = 2}},
                       .tokens = {1, 2, 3, 4, 5, 6}};
  const auto base = std::make_shared<NamespaceKey>();
  EXPECT_THAT(
      Translate(chain),
      ElementsAre(Mine(BlocksStored{.name_space = base, .hashes = {kHashA}, .tokens = {1, 2}}),
                  Mine(BlocksStored{
                      .parent = kHashB, .name_space = base, .hashes = {c}, .tokens = {5, 6}})));
}

TEST_F(RouterTranslatorTest, PoolsAndWhatIsTakenAreNotTold) {
  Translate(Chain());
  EXPECT_THAT(Translate(CreatedEvent{.blocks = {BlockId(41)}}), IsEmpty());
  EXPECT_THAT(Translate(RemovedEvent{.reason = RemovalReason::kReleased,
                                     .scope = RemovedEvent::Scope::kPools}),
              IsEmpty());
}

TEST_F(RouterTranslatorTest, AResetOfTheOnlyWindowClearsEverything) {
  Translate(Chain());
  const RemovedEvent reset = {.reason = RemovalReason::kCleared,
                              .scope = RemovedEvent::Scope::kWindow};
  EXPECT_THAT(Translate(reset), ElementsAre(RouterEvent{.what = AllCleared{}}));
  EXPECT_THAT(Translate(Chain()), ElementsAre(Mine(StoredChain()))) << "the ids are free again";
}

class TwoWindowsTest : public RouterTranslatorTest {
 protected:
  TwoWindowsTest() : RouterTranslatorTest({kSliding, kFullAttention}) {}
};

TEST_F(TwoWindowsTest, AResetOfOneWindowRemovesItsBlocks) {
  Translate(Chain(), kSliding);
  Translate(Chain(), kFullAttention);
  const RemovedEvent reset = {.reason = RemovalReason::kCleared,
                              .scope = RemovedEvent::Scope::kWindow};
  EXPECT_THAT(Translate(reset, kSliding),
              ElementsAre(Mine(BlocksRemoved{.window = kSliding, .hashes = {kHashA, kHashB}})));
  EXPECT_THAT(Translate(reset, kFullAttention), ElementsAre(RouterEvent{.what = AllCleared{}}));
}

TEST_F(TwoWindowsTest, WhatWasForgottenIsPassedOver) {
  Translate(Chain(), kSliding);
  std::vector<RouterEvent> out;
  translator_.Forget(out);
  EXPECT_THAT(out, ElementsAre(RouterEvent{.what = AllCleared{}}));
  EXPECT_THAT(Translate(Down(BlockId(9), kHashB), kSliding), IsEmpty());
  EXPECT_THAT(Translate(RemovedEvent{.blocks = {BlockId(9)}, .hashes = {kHashB}}, kSliding),
              IsEmpty());
  EXPECT_EQ(translator_.misfits(), 2u);
}

TEST_F(RouterTranslatorTest, ALongChainIsToldInRuns) {
  StoredEvent chain;
  BlockHash parent = kRoot;
  for (uint32_t i = 0; i < 2 * RouterTranslator::kMaxRun + 1; ++i) {
    parent = HashOf(parent, {i, i});
    chain.blocks.push_back({.id = BlockId(i), .hash = parent, .token_count = 2});
    chain.tokens.insert(chain.tokens.end(), {i, i});
  }
  const std::vector<RouterEvent> out = Translate(chain);
  ASSERT_EQ(out.size(), 3u);
  const auto& last = std::get<BlocksStored>(out[2].what);
  EXPECT_THAT(last.hashes, ElementsAre(parent));
  EXPECT_EQ(last.parent, std::get<BlocksStored>(out[1].what).hashes.back());
}

// --- Against random streams ---

using Place = std::pair<WindowSize, Tier>;

// A router that believes every event, and detects events that repeat what it knows. It can treat
// all tiers below the first as one.
class Router {
 public:
  enum class Knows { kTiers, kNearAndFar };
  explicit Router(Knows knows = Knows::kTiers) : knows_(knows) {}

  void Apply(const RouterEvent& event) {
    if (const auto* stored = std::get_if<BlocksStored>(&event.what)) {
      if (Ignores(stored->also_below)) return;
      ASSERT_EQ(stored->tokens.size(), stored->hashes.size() * kTokensPerBlock);
      ASSERT_LE(stored->hashes.size(), RouterTranslator::kMaxRun);
      BlockHash parent = stored->parent.value_or(HashNamespace(*stored->name_space));
      for (size_t i = 0; i < stored->hashes.size(); ++i) {
        const auto first = stored->tokens.begin() + static_cast<ptrdiff_t>(i * kTokensPerBlock);
        ASSERT_EQ(stored->hashes[i], HashOf(parent, {first, first + kTokensPerBlock}));
        parent = stored->hashes[i];
        auto& here = hashes_[{stored->window, TierOf(stored->tier)}];
        ASSERT_TRUE(here.insert(parent).second);
      }
    } else if (const auto* removed = std::get_if<BlocksRemoved>(&event.what)) {
      if (Ignores(removed->also_below)) return;
      for (const BlockHash hash : removed->hashes) {
        auto& here = hashes_[{removed->window, TierOf(removed->tier)}];
        ASSERT_EQ(here.erase(hash), 1u);
      }
    } else {
      hashes_.clear();
    }
  }
  const std::set<BlockHash>& at(Place place) { return hashes_[place]; }

 private:
  bool Ignores(bool also_below) const { return knows_ == Knows::kNearAndFar && also_below; }
  Tier TierOf(Tier tier) const { return knows_ == Knows::kTiers ? tier : std::min(tier, Tier(1)); }

  const Knows knows_;
  std::map<Place, std::set<BlockHash>> hashes_;
};

// Makes events that a cache could have made: ShadowTree accepts them all.
class RandomStream {
 public:
  explicit RandomStream(uint32_t seed) : random_(seed) {}

  const ShadowTree& tree() const { return tree_; }

  Event Next() {
    Event event{.revision = Revision(tree_.revision().value() + 1),
                .window = Below(2) == 0 ? kSliding : kFullAttention};
    const std::vector<TreeEntry> entries = tree_.Dump(event.window);
    const uint32_t choice = Below(100);
    if (choice == 0) {
      event.what =
          RemovedEvent{.reason = RemovalReason::kCleared, .scope = RemovedEvent::Scope::kWindow};
    } else if (choice < 50 || entries.empty()) {
      event.what = Stored(entries);
    } else {
      const TreeEntry& entry = entries[Below(static_cast<uint32_t>(entries.size()))];
      if (choice < 75) {
        event.what = RemovedEvent{.blocks = {entry.id}, .hashes = {entry.hash}};
      } else {
        const auto [tier, lower] = SomeTiers();
        UpdatedEvent updated{.id = entry.id, .hash = entry.hash};
        if (tier != entry.tier) updated.tier = Change<Tier>{entry.tier, tier};
        if (lower != entry.lower) updated.lower = Change<TierSet>{entry.lower, lower};
        event.what = updated;
      }
    }
    // Skips an impossible event, such as a parent that is removed before its child.
    ShadowTree copy = tree_;
    if (!copy.Apply(event).ok()) return Next();
    tree_ = std::move(copy);
    return event;
  }

 private:
  uint32_t Below(uint32_t bound) {
    return std::uniform_int_distribution<uint32_t>(0, bound - 1)(random_);
  }

  // The tier of a block, and the tiers of its copies.
  std::pair<Tier, TierSet> SomeTiers() {
    const Tier tier(Below(kMaxTiers));
    const uint32_t farther = ((1u << kMaxTiers) - 1) & ~((2u << tier.value()) - 1);
    const uint32_t some = Below(2) == 0 ? Below(1u << kMaxTiers) : 0;
    return {tier, TierSet::FromBits(static_cast<uint8_t>(some & farther))};
  }

  // Some blocks below a full one; the last can be a tail. Few different tokens, so that the same
  // content appears under several ids.
  StoredEvent Stored(const std::vector<TreeEntry>& entries) {
    StoredEvent stored;
    BlockHash parent = kRoot;
    if (!entries.empty() && Below(2) == 0) {
      const TreeEntry& above = entries[Below(static_cast<uint32_t>(entries.size()))];
      if (above.tokens.size() == kTokensPerBlock) {
        stored.parent_hash = parent = above.hash;
        stored.parent = above.id;
      }
    }
    const auto [tier, lower] = Below(4) == 0 ? SomeTiers() : std::pair(kPrimaryTier, TierSet());
    const uint32_t count = 1 + Below(4);
    for (uint32_t i = 0; i < count; ++i) {
      const bool tail = i + 1 == count && Below(3) == 0;
      std::vector<TokenId> tokens(tail ? 1 : kTokensPerBlock);
      for (TokenId& token : tokens) token = Below(2);
      parent = HashOf(parent, tokens);
      stored.blocks.push_back({.id = BlockId(next_id_++ % 997),
                               .hash = parent,
                               .token_count = static_cast<uint32_t>(tokens.size()),
                               .tier = tier,
                               .lower = Below(2) == 0 ? lower : TierSet()});
      stored.tokens.insert(stored.tokens.end(), tokens.begin(), tokens.end());
    }
    return stored;
  }

  std::mt19937 random_;
  uint32_t next_id_ = 0;
  ShadowTree tree_;
};

int Seeds() {
  const char* seeds = std::getenv("PAGODA_PROPERTY_SEEDS");
  return seeds == nullptr ? 30 : std::atoi(seeds);
}

using Hashes = std::map<Place, std::set<BlockHash>>;

// The full blocks in each tier. With kNearAndFar, the tiers below the first are one.
Hashes HashesOf(const ShadowTree& tree, Router::Knows knows, size_t& duplicates) {
  Hashes hashes;
  for (const WindowSize window : {kSliding, kFullAttention}) {
    for (const TreeEntry& entry : tree.Dump(window)) {
      if (entry.tokens.size() < kTokensPerBlock) continue;
      duplicates += !hashes[{window, entry.tier}].insert(entry.hash).second;
      entry.lower.ForEach([&](Tier tier) { hashes[{window, tier}].insert(entry.hash); });
    }
    if (knows == Router::Knows::kTiers) continue;
    for (uint8_t tier = 2; tier < kMaxTiers; ++tier) {
      hashes[{window, Tier(1)}].merge(hashes[{window, Tier{tier}}]);
      hashes.erase({window, Tier{tier}});
    }
  }
  return hashes;
}

void ExpectHas(Router& router, const Hashes& hashes) {
  for (const WindowSize window : {kSliding, kFullAttention}) {
    for (uint8_t tier = 0; tier < kMaxTiers; ++tier) {
      const Place place{window, Tier{tier}};
      const auto it = hashes.find(place);
      ASSERT_EQ(router.at(place), it == hashes.end() ? std::set<BlockHash>() : it->second);
    }
  }
}

TEST(RouterTranslatorPropertyTest, ARouterHasTheHashesOfTheWholeBlocksOfTheTree) {
  for (int seed = 0; seed < Seeds(); ++seed) {
    SCOPED_TRACE(seed);
    RandomStream stream(static_cast<uint32_t>(seed));
    RouterTranslator translator(
        {.tokens_per_block = kTokensPerBlock, .windows = {kSliding, kFullAttention}});
    Router router, near_and_far(Router::Knows::kNearAndFar);
    size_t duplicates = 0;
    for (int i = 0; i < 400; ++i) {
      SCOPED_TRACE(i);
      std::vector<RouterEvent> out;
      translator.Translate(stream.Next(), out);
      for (const RouterEvent& event : out) {
        ASSERT_NO_FATAL_FAILURE(router.Apply(event));
        ASSERT_NO_FATAL_FAILURE(near_and_far.Apply(event));
      }
      ASSERT_NO_FATAL_FAILURE(
          ExpectHas(router, HashesOf(stream.tree(), Router::Knows::kTiers, duplicates)));
      ASSERT_NO_FATAL_FAILURE(
          ExpectHas(near_and_far, HashesOf(stream.tree(), Router::Knows::kNearAndFar, duplicates)));
    }
    // A late router is told the same blocks, parents first.
    Router late, late_near_and_far(Router::Knows::kNearAndFar);
    std::set<std::pair<WindowSize, BlockHash>> told;
    translator.EmitAll([&](const RouterEvent& event) {
      late.Apply(event);
      late_near_and_far.Apply(event);
      const auto& stored = std::get<BlocksStored>(event.what);
      const auto in_window = [&](BlockHash hash) {
        for (uint8_t tier = 0; tier < kMaxTiers; ++tier) {
          if (router.at({stored.window, Tier{tier}}).contains(hash)) return true;
        }
        return false;
      };
      if (stored.parent.has_value() && in_window(*stored.parent)) {
        EXPECT_TRUE(told.contains({stored.window, *stored.parent}));
      }
      for (const BlockHash hash : stored.hashes) told.insert({stored.window, hash});
    });
    ExpectHas(late, HashesOf(stream.tree(), Router::Knows::kTiers, duplicates));
    ExpectHas(late_near_and_far, HashesOf(stream.tree(), Router::Knows::kNearAndFar, duplicates));
    EXPECT_EQ(translator.misfits(), 0u);
    EXPECT_GT(duplicates, 0u) << "the stream has content under several ids";
  }
}

}  // namespace
}  // namespace pagoda::server
