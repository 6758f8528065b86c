#include "events/hash_projection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "absl/hash/hash_testing.h"
#include "events/event_filter.h"
#include "events/snapshot.h"
#include "tests/events/hash_mirror.h"
#include "tests/events/tree_model.h"

namespace pagoda {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr TenantId kAlice{1};
constexpr TierSet kBelow = TierSet::FromBits(0b10);

BlockHash HashOf(uint32_t id) { return BlockHash{id + 100}; }

StoredBlock Block(uint32_t id, uint32_t tokens = 2) {
  return {.id = BlockId{id}, .hash = HashOf(id), .token_count = tokens, .priority = Priority{60}};
}

// The blocks 1 to 5 of two tokens, the last one a tail. Their chain goes on where a prompt's first
// `first_token` tokens end.
StoredEvent Chain(uint32_t first_token) {
  return {.parent_hash = HashOf(0),
          .parent = BlockId{0},
          .first_token = first_token,
          .name_space = NamespaceKey{.lora_id = 7, .cache_salt = "s"},
          .blocks = {Block(1), Block(2), Block(3), Block(4), Block(5, 1)},
          .tokens = {1, 1, 2, 2, 3, 3, 4, 4, 5}};
}

Event As(decltype(Event::what) what) {
  return {.revision = Revision{9},
          .time = absl::FromUnixSeconds(5),
          .window = WindowSize{64},
          .tenant = kAlice,
          .what = std::move(what)};
}

// The hashes that the projection of a stored or removed block's event has.
std::vector<BlockHash> Hashes(const std::optional<Event>& part) {
  std::vector<BlockHash> hashes;
  if (!part.has_value()) return hashes;
  if (const auto* stored = std::get_if<StoredEvent>(&part->what)) {
    for (const StoredBlock& block : stored->blocks) hashes.push_back(block.hash);
  } else {
    const auto& removed = std::get<RemovedEvent>(part->what);
    hashes.assign(removed.hashes.begin(), removed.hashes.end());
  }
  return hashes;
}

TEST(HashProjectionTest, OnlyTheBlocksThatEndAChunkAreStored) {
  const auto stored = [](uint32_t first_token, uint32_t chunk_tokens) {
    return Hashes(ProjectOntoHashes(As(Chain(first_token)), chunk_tokens));
  };
  EXPECT_THAT(stored(0, 2), ElementsAre(HashOf(1), HashOf(2), HashOf(3), HashOf(4)));
  EXPECT_THAT(stored(0, 4), ElementsAre(HashOf(2), HashOf(4)));
  EXPECT_THAT(stored(2, 4), ElementsAre(HashOf(1), HashOf(3)));
  EXPECT_THAT(stored(0, 6), ElementsAre(HashOf(3)));
  EXPECT_THAT(stored(14, 8), ElementsAre(HashOf(1)));
  EXPECT_THAT(stored(16, 16), IsEmpty());
}

TEST(HashProjectionTest, AStoredPartHasTheEnvelopeAndHashesAndTiersAlone) {
  StoredEvent chain = Chain(2);
  chain.blocks[0].tier = Tier(1);
  chain.blocks[0].lower = TierSet::FromBits(0b1100);
  StoredEvent left{.hashes_only = true};
  left.blocks = {{.id = kNoBlock,
                  .hash = HashOf(1),
                  .tier = Tier(1),
                  .priority = Priority{0},
                  .lower = TierSet::FromBits(0b1100)},
                 {.id = kNoBlock, .hash = HashOf(3), .priority = Priority{0}}};
  EXPECT_EQ(ProjectOntoHashes(As(chain), 4), As(left));
}

TEST(HashProjectionTest, AnUpdateTellsOfTiersAloneAndOfBlocksThatEndAChunk) {
  UpdatedEvent moved{.id = BlockId{3},
                     .end_token = 8,
                     .hash = HashOf(3),
                     .tier = Change<Tier>{Tier(1), kPrimaryTier},
                     .lower = Change<TierSet>{{}, kBelow},
                     .priority = Change<Priority>{Priority{35}, Priority{60}}};
  const UpdatedEvent left{
      .id = kNoBlock, .hash = HashOf(3), .tier = moved.tier, .lower = moved.lower};
  EXPECT_EQ(ProjectOntoHashes(As(moved), 8), As(left));
  EXPECT_EQ(ProjectOntoHashes(As(moved), 4), As(left));
  EXPECT_EQ(ProjectOntoHashes(As(moved), 16), std::nullopt);
  moved.end_token = 7;
  EXPECT_EQ(ProjectOntoHashes(As(moved), 2), std::nullopt) << "a tail";

  moved.end_token = 8;
  moved.tier.reset();
  EXPECT_TRUE(ProjectOntoHashes(As(moved), 8).has_value()) << "a copy came";
  moved.lower.reset();
  EXPECT_EQ(ProjectOntoHashes(As(moved), 8), std::nullopt) << "only a priority";
  EXPECT_EQ(ProjectOntoHashes(As(UpdatedEvent{.hash = HashOf(3), .ended_pin = EndedPin{}}), 8),
            std::nullopt);
}

TEST(HashProjectionTest, ARemovalHasTheHashesThatEndAChunkOrAScope) {
  const RemovedEvent removed{.reason = RemovalReason::kDisplaced,
                             .blocks = {BlockId{5}, BlockId{4}, BlockId{3}, BlockId{9}},
                             .hashes = {HashOf(5), HashOf(4), HashOf(3), HashOf(9)},
                             .end_tokens = {9, 8, 6, 4}};
  const RemovedEvent left{.reason = RemovalReason::kDisplaced, .hashes = {HashOf(4), HashOf(9)}};
  EXPECT_EQ(ProjectOntoHashes(As(removed), 4), As(left));
  EXPECT_EQ(ProjectOntoHashes(As(removed), 10), std::nullopt);

  const RemovedEvent freed{.reason = RemovalReason::kReleased, .blocks = {BlockId{4}}};
  EXPECT_EQ(ProjectOntoHashes(As(freed), 2), std::nullopt) << "not a block of the tree";
  for (const auto scope : {RemovedEvent::Scope::kWindow, RemovedEvent::Scope::kPools}) {
    const Event everything = As(RemovedEvent{.reason = RemovalReason::kCleared, .scope = scope});
    EXPECT_EQ(ProjectOntoHashes(everything, 4), everything);
  }
}

TEST(HashProjectionTest, OfWhatIsCreatedTheCapacitiesAreLeft) {
  const Event pools = As(CreatedEvent{.blocks_per_tier = {8, 16}});
  EXPECT_EQ(ProjectOntoHashes(pools, 4), pools);
  EXPECT_EQ(ProjectOntoHashes(As(CreatedEvent{.blocks = {BlockId{1}}}), 4), std::nullopt);
}

TEST(HashProjectionTest, AFilterProjectsWhatItLetsPass) {
  const auto shown = [](const EventFilter& filter, const Event& event) {
    std::vector<Event> parts;
    filter.Apply(event, [&](const Event& part) { parts.push_back(part); });
    return parts;
  };
  Event chain = As(Chain(0));
  EXPECT_THAT(shown({.chunk_tokens = 4}, chain), ElementsAre(*ProjectOntoHashes(chain, 4)));
  EXPECT_THAT(shown({.types = 1, .chunk_tokens = 4}, chain), IsEmpty());
  EXPECT_THAT(shown({.windows = {kFullAttention}, .chunk_tokens = 4}, chain), IsEmpty());
  EXPECT_THAT(shown({.tenant = TenantId{2}, .chunk_tokens = 4}, chain), IsEmpty());

  // Another tenant's salt hides nothing here: a hash is all that it would get.
  chain.tenant = kDefaultTenant;
  EXPECT_THAT(shown({.tenant = kAlice, .default_tenant = true, .chunk_tokens = 4}, chain),
              ElementsAre(*ProjectOntoHashes(chain, 4)));

  // Blocks that do not end a chunk make no gaps: one part has the blocks of a tier.
  std::get<StoredEvent>(chain.what).blocks[1].tier = Tier(1);
  const std::vector<Event> lower = shown({.tiers = 2, .chunk_tokens = 2}, chain);
  ASSERT_THAT(lower, ::testing::SizeIs(1));
  EXPECT_THAT(Hashes(lower[0]), ElementsAre(HashOf(2)));
  const std::vector<Event> primary = shown({.tiers = 1, .chunk_tokens = 2}, chain);
  ASSERT_THAT(primary, ::testing::SizeIs(1));
  EXPECT_THAT(Hashes(primary[0]), ElementsAre(HashOf(1), HashOf(3), HashOf(4)));
  EXPECT_THAT(shown({.tiers = 4, .chunk_tokens = 2}, chain), IsEmpty());

  // A priority concerns every tier, but the projection has none.
  const UpdatedEvent dropped{.id = BlockId{1},
                             .end_token = 4,
                             .hash = HashOf(1),
                             .lower = Change<TierSet>{kBelow, {}},
                             .priority = Change<Priority>{Priority{35}, Priority{60}}};
  EXPECT_THAT(shown({.tiers = 1}, As(dropped)), ::testing::SizeIs(1));
  EXPECT_THAT(shown({.tiers = 1, .chunk_tokens = 4}, As(dropped)), IsEmpty());
  EXPECT_THAT(shown({.tiers = 2, .chunk_tokens = 4}, As(dropped)), ::testing::SizeIs(1));
}

TEST(HashProjectionTest, FiltersWithOtherChunksAreOtherFilters) {
  EXPECT_NE((EventFilter{.chunk_tokens = 4}), EventFilter{});
  EXPECT_NE((EventFilter{.chunk_tokens = 4}), (EventFilter{.chunk_tokens = 8}));
  EXPECT_TRUE(absl::VerifyTypeImplementsAbslHashCorrectly(
      {EventFilter{}, EventFilter{.chunk_tokens = 4}, EventFilter{.chunk_tokens = 8}}));
}

// The walk of a snapshot has passed block 2 of a chain: the parts of an event that concern the ids
// behind it keep their place in the prompt.
TEST(HashProjectionTest, PartsOfAnEventKeepTheirPlaceInThePrompt) {
  std::vector<BlockHash> stored;
  std::vector<BlockHash> removed;
  const auto see = [&](std::vector<BlockHash>& hashes) {
    return [&](const Event& part) {
      for (const BlockHash hash : Hashes(ProjectOntoHashes(part, 4))) hashes.push_back(hash);
    };
  };
  StoredEvent chain = Chain(0);
  chain.blocks[0].id = BlockId{50};
  chain.blocks[2].id = BlockId{60};
  const SnapshotPosition position{.window = WindowSize{64}, .next = BlockId{20}};
  ForEachPassed(As(chain), position, see(stored));
  EXPECT_THAT(stored, ElementsAre(HashOf(2), HashOf(4)));
  const RemovedEvent gone{.blocks = {BlockId{60}, BlockId{4}, BlockId{50}, BlockId{2}},
                          .hashes = {HashOf(3), HashOf(4), HashOf(1), HashOf(2)},
                          .end_tokens = {6, 8, 2, 4}};
  ForEachPassed(As(gone), position, see(removed));
  EXPECT_THAT(removed, ElementsAre(HashOf(4), HashOf(2)));
}

// The mirror of a random tree equals the tree, for chunks of any size.
TEST(HashProjectionTest, AMirrorHasTheBlocksThatEndAChunk) {
  for (const WindowSize window : {kFullAttention, WindowSize{4}}) {
    for (const uint32_t chunk_tokens : {2u, 4u, 6u, 8u}) {
      size_t most = 0;
      for (uint64_t seed = 0; seed < 20; ++seed) {
        TreeModel model(window, seed);
        HashMirror mirror;
        for (int change = 0; change < 500; ++change) {
          const Event event{.window = window, .what = model.Next()};
          if (const auto part = ProjectOntoHashes(event, chunk_tokens)) {
            ASSERT_EQ(mirror.Apply(*part), absl::OkStatus()) << "seed " << seed;
          }
          std::vector<HashMirror::Entry> expected;
          for (const TreeEntry& entry : model.Entries()) {
            if (model.EndToken(entry.id) % chunk_tokens != 0) continue;
            expected.push_back({.hash = entry.hash, .tier = entry.tier, .lower = entry.lower});
          }
          ASSERT_EQ(mirror.Compare(window, expected), absl::OkStatus())
              << "seed " << seed << ", change " << change;
          most = std::max(most, expected.size());
        }
      }
      EXPECT_GT(most, 1u) << "chunks of " << chunk_tokens;
    }
  }
}

}  // namespace
}  // namespace pagoda
