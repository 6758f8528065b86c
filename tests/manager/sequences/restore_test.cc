// Blocks of an earlier run: a new core that gets the content told by slot changes is the same
// cache.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include "base/error.h"
#include "manager/block_manager.h"
#include "manager/sequences/raw_blocks.h"
#include "manager/sequences/running_sequences.h"
#include "manager/sequences/session_endings.h"
#include "manager/tree/sequence.h"
#include "manager/warm_restart.h"
#include "tests/manager/fixtures/host_tiers.h"
#include "tests/manager/fixtures/prompt_of.h"
#include "tests/manager/fixtures/testing.h"

namespace pagoda {
namespace {

constexpr uint32_t kTokensPerBlock = 4;

CacheLayout TwoWindows() {
  return *CacheLayout::Create(
      {.name = "test",
       .tokens_per_block = kTokensPerBlock,
       .layers = {{.num_kv_heads = 1, .head_dim = 1},
                  {.window = WindowSize{8}, .num_kv_heads = 1, .head_dim = 1}}});
}

std::unique_ptr<BlockManager> MakeJournalling(CacheLayout layout, std::vector<uint32_t> primary,
                                              std::vector<uint32_t> lower) {
  return *BlockManager::Create({.layout = std::move(layout),
                                .tiers = HostTiers(std::move(primary), std::move(lower)),
                                .epoch = Epoch{1},
                                .journal_slots = true});
}

// The knowledge of a writer of slot changes: the content of each slot.
class Slots {
 public:
  void Apply(const std::vector<SlotChange>& changes) {
    for (const SlotChange& change : changes) {
      auto& slots = windows_[change.window_index];
      const auto place = std::pair(change.slot.tier, change.slot.slot.value());
      if (change.content.has_value()) {
        slots[place] = *change.content;
      } else {
        slots.erase(place);
      }
    }
  }

  // Sorted by depth, so that parents come first. Content without a parent is left out.
  RecoveredWindow Recover(uint32_t window_index, WindowSize window) const {
    RecoveredWindow recovered{.window = window, .blocks = {}};
    const auto found = windows_.find(window_index);
    if (found == windows_.end()) return recovered;
    std::map<uint32_t, size_t> places;  // By block id.
    for (bool grew = true; grew;) {
      grew = false;
      for (const auto& [place, content] : found->second) {
        const uint32_t id = content.block.id.value();
        const bool is_root = content.parent.id == kNoBlock;
        if (places.contains(id) || (!is_root && !places.contains(content.parent.id.value()))) {
          continue;
        }
        places[id] = recovered.blocks.size();
        recovered.blocks.push_back(
            {.slot = {place.first, SlotIndex{place.second}},
             .parent = is_root ? RecoveredBlock::kRoot : places[content.parent.id.value()],
             .name_space = content.name_space,
             .tokens = content.tokens,
             .extras = content.extras,
             .priority = content.priority,
             .keyed = content.keyed});
        grew = true;
      }
    }
    return recovered;
  }

 private:
  std::map<uint32_t, std::map<std::pair<Tier, uint32_t>, SlotContent>> windows_;
};

// The tree without the names of its blocks, which differ between runs.
using Picture = std::vector<std::tuple<BlockHash, std::vector<TokenId>, Tier, Priority>>;
Picture PictureOf(const BlockManager& core, WindowSize window) {
  Picture picture;
  for (const TreeEntry& entry : core.DumpTree(window)) {
    picture.emplace_back(entry.hash, entry.tokens, entry.tier, entry.priority);
  }
  std::sort(picture.begin(), picture.end());
  return picture;
}

TEST(RestoreTest, ARandomCacheIsTheSameAfterwards) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
    auto core = MakeJournalling(TinyLayout(kTokensPerBlock), {16}, {8});
    Slots slots;
    absl::Time now = absl::UnixEpoch();
    const SessionId session = core->OpenSession("test", absl::InfiniteDuration(), now)->ref.id;
    for (uint32_t step = 0; step < 60; ++step) {
      now += absl::Milliseconds(1);
      const SequenceId name{1 + below(3)};
      if (core->sequences().FindSequence(session, name).ok()) {
        if (below(3) == 0) {
          ASSERT_TRUE(core->sequences().FreeSequence(session, name, now).ok());
        } else {
          const auto found = core->sequences().FindSequence(session, name);
          const uint32_t tokens = (*found)->token_count;
          const TokenId next = below(3);
          core->sequences().AppendTokens(session, name, {&next, 1}, tokens, now).IgnoreError();
        }
      } else {
        std::vector<TokenId> prompt(1 + below(14));
        for (TokenId& token : prompt) token = below(3);
        const NamespaceKey name_space{.cache_salt = below(4) == 0 ? "other" : ""};
        core->sequences()
            .AddSequence(session, name, PromptOf(name_space, prompt), now)
            .status()
            .IgnoreError();
      }
      slots.Apply(core->TakeSlotChanges());
      for (const Order& copy : core->TakeOrders()) {
        core->Complete(copy.lane, copy.ticket, absl::OkStatus(), now);
      }
      slots.Apply(core->TakeSlotChanges());
    }
    auto restored = MakeJournalling(TinyLayout(kTokensPerBlock), {16}, {8});
    const RecoveredWindow window = slots.Recover(0, kFullAttention);
    const auto count = restored->restart().Restore({&window, 1}, now);
    ASSERT_TRUE(count.ok()) << count.status();
    EXPECT_EQ(PictureOf(*restored, kFullAttention), PictureOf(*core, kFullAttention)) << seed;
    EXPECT_EQ(restored->Stats().recovered_blocks, *count);
    restored->CheckInvariants();
    Slots again;
    again.Apply(restored->TakeSlotChanges());
    EXPECT_EQ(again.Recover(0, kFullAttention).blocks.size(), window.blocks.size());
    // The restored cache works like any other one.
    const SessionId later = restored->OpenSession("test", absl::InfiniteDuration(), now)->ref.id;
    for (uint32_t i = 0; i < 16; ++i) {
      BlockHandle block;
      ASSERT_TRUE(
          restored->raw_blocks().AllocateBlocks(later, kFullAttention, {&block, 1}, now).ok());
    }
    restored->CheckInvariants();
  }
}

TEST(RestoreTest, AHoleOfASlidingWindowLetsAMatchReachOverIt) {
  const std::vector<TokenId> prompt = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13};
  const auto block = [&](uint32_t i) {
    return std::vector<TokenId>(prompt.begin() + 4 * i, prompt.begin() + 4 * i + 4);
  };
  std::vector<RecoveredWindow> windows(2);
  windows[0].window = WindowSize{8};
  windows[1].window = kFullAttention;
  for (uint32_t i = 0; i < 3; ++i) {
    const size_t parent = i == 0 ? RecoveredBlock::kRoot : i - 1;
    windows[0].blocks.push_back({.slot = {kPrimaryTier, i == 0 ? kNoSlot : SlotIndex{i}},
                                 .parent = parent,
                                 .tokens = block(i)});
    windows[1].blocks.push_back(
        {.slot = {kPrimaryTier, SlotIndex{5 - i}}, .parent = parent, .tokens = block(i)});
  }
  auto core = MakeJournalling(TwoWindows(), {8, 8}, {});
  const absl::Time now = absl::UnixEpoch();
  ASSERT_EQ(*core->restart().Restore(windows, now), 5u);
  core->CheckInvariants();
  const SessionId session = core->OpenSession("test", absl::InfiniteDuration(), now)->ref.id;
  EXPECT_EQ(core->sequences()
                .AddSequence(session, SequenceId{1}, PromptOf({}, prompt), now)
                ->matched_tokens,
            12u);
  core->CheckInvariants();
}

TEST(RestoreTest, WhatDoesNotFitTogetherIsRefusedWithoutATrace) {
  const RecoveredBlock good{.slot = {kPrimaryTier, SlotIndex{0}}, .tokens = {1, 2, 3, 4}};
  const auto refused = [&](std::vector<RecoveredBlock> blocks) {
    auto core = MakeJournalling(TinyLayout(kTokensPerBlock), {4}, {2});
    const RecoveredWindow window{.window = kFullAttention, .blocks = std::move(blocks)};
    const auto restored = core->restart().Restore({&window, 1}, absl::UnixEpoch());
    EXPECT_EQ(core->Stats().windows[0].tiers[0].free, 4u);
    core->CheckInvariants();
    return ReasonOf(restored.status()) == Reason::kInvalidArgument;
  };
  const auto with = [&](auto change) {
    RecoveredBlock block = good;
    change(block);
    return block;
  };
  EXPECT_TRUE(refused({with([](auto& b) { b.tokens.clear(); })}));
  EXPECT_TRUE(refused({with([](auto& b) { b.tokens.resize(5); })}));
  EXPECT_TRUE(refused({with([](auto& b) { b.extras.resize(3); })}));
  EXPECT_TRUE(refused({with([](auto& b) { b.slot.slot = SlotIndex{4}; })}));
  EXPECT_TRUE(refused({with([](auto& b) { b.slot.slot = kNoSlot; })})) << "a hole";
  EXPECT_TRUE(refused({good, with([](auto& b) { b.parent = 0; })})) << "a slot twice";
  EXPECT_TRUE(refused({good, with([](auto& b) {
                         b.slot.slot = SlotIndex{1};
                         b.parent = 1;
                       })}));
  EXPECT_TRUE(refused({with([](auto& b) {
                         b.slot = {Tier(1), SlotIndex{0}};
                       }),
                       with([](auto& b) { b.parent = 0; })}))
      << "nearer than its parent";
  auto core = MakeJournalling(TinyLayout(kTokensPerBlock), {4}, {2});
  const RecoveredWindow foreign{.window = WindowSize{64}, .blocks = {good}};
  EXPECT_EQ(ReasonOf(core->restart().Restore({&foreign, 1}, absl::UnixEpoch()).status()),
            Reason::kUnknownWindow);
}

TEST(RestoreTest, WhatAnOldClientMayWriteIsQuarantined) {
  auto core = MakeJournalling(TinyLayout(kTokensPerBlock), {4}, {2});
  const absl::Time now = absl::UnixEpoch();
  const RecoveredWindow window{
      .window = kFullAttention,
      .blocks = {{.slot = {kPrimaryTier, SlotIndex{2}}, .tokens = {1, 2, 3, 4}}}};
  ASSERT_TRUE(core->restart().Restore({&window, 1}, now).ok());
  core->endings().QuarantineFree(now);
  core->CheckInvariants();
  const TierOccupancy primary = core->Stats().windows[0].tiers[0];
  EXPECT_EQ(primary.in_flight, 3u);
  EXPECT_EQ(primary.cached, 1u);
  EXPECT_EQ(primary.free, 0u);
  ASSERT_EQ(core->endings().Quarantines().size(), 1u);
  EXPECT_EQ(core->endings().Quarantines().front().session, SessionId{});
  EXPECT_EQ(*core->endings().ReleaseQuarantine(SessionId{}, now), 3u);
  EXPECT_EQ(core->Stats().windows[0].tiers[0].free, 3u);
  core->CheckInvariants();
}

}  // namespace
}  // namespace pagoda
