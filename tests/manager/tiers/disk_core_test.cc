// A core with a tier on disk: what it orders from the carrier, and how it handles the answers.
#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "manager/block_manager.h"
#include "manager/cache_lists.h"
#include "manager/sequences/cached_prefixes.h"
#include "manager/sequences/running_sequences.h"
#include "manager/warm_restart.h"
#include "tests/events/shadow_tree.h"
#include "tests/manager/fixtures/prompt_of.h"
#include "tests/manager/fixtures/testing.h"

namespace pagoda {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

constexpr uint32_t kBlockTokens = 4;
constexpr Tier kDisk = Tier(1);

std::vector<TokenId> Tokens(TokenId first, size_t count) {
  std::vector<TokenId> tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

// A core of one window, with a first tier in host memory and a disk below. Copies between memories
// are done at once. Orders for the disk wait until a test says how they end.
class DiskCoreTest : public testing::Test {
 protected:
  void Make(uint32_t memory_blocks, uint32_t disk_blocks, uint64_t write_bytes_per_second = 0) {
    TierSpec memory{.name = "dram", .blocks = {memory_blocks}};
    TierSpec disk{.name = "nvme",
                  .medium = Medium::kDisk,
                  .blocks = {disk_blocks},
                  .min_priority = Priority{0},
                  .write_bytes_per_second = write_bytes_per_second};
    core_ = *BlockManager::Create({.layout = TinyLayout(kBlockTokens),
                                   .tiers = {memory, disk},
                                   .epoch = Epoch{1},
                                   .start_time = now_});
    shadow_ = ShadowTree();
    Settle();
    session_ = core_->OpenSession("test", absl::InfiniteDuration(), now_)->ref.id;
  }

  // Ends the copies between memories, collects the disk's orders, and compares events and tree.
  void Settle() {
    for (bool more = true; more;) {
      more = false;
      for (const Order& order : core_->TakeOrders()) {
        if (order.lane == Lane::kMemory) {
          core_->Complete(order.lane, order.ticket,
                          copies_fail_ ? absl::InternalError("bad") : absl::OkStatus(), now_);
          more = true;
        } else if (order.kind == Order::Kind::kMove) {
          (order.lane == Lane::kFetch ? fetches_ : backups_).push_back(order);
        } else if (order.kind == Order::Kind::kDrop) {
          drops_.push_back(order.target.slot);
        } else {
          erases_.push_back(order);
        }
      }
    }
    for (const Event& event : core_->TakeEvents()) {
      const absl::Status status = shadow_.Apply(event);
      ASSERT_TRUE(status.ok()) << status;
    }
    core_->CheckInvariants();
    ASSERT_EQ(shadow_.Dump(kFullAttention), core_->DumpTree(kFullAttention));
  }
  void End(const Order& order, const absl::Status& status = absl::OkStatus()) {
    core_->Complete(order.lane, order.ticket, status, now_);
    Settle();
  }
  void EndBackup(const absl::Status& status = absl::OkStatus()) {
    const Order order = std::move(backups_.front());
    backups_.pop_front();
    End(order, status);
  }
  void EndFetch(const absl::Status& status = absl::OkStatus()) {
    const Order order = std::move(fetches_.front());
    fetches_.pop_front();
    End(order, status);
  }
  void Maintain() {
    core_->Maintain(now_, 0);
    Settle();
  }
  // A request over these tokens is added, computed and freed.
  void Run(const std::vector<TokenId>& tokens) {
    const SequenceId sequence{++sequences_};
    const auto added = core_->sequences().AddSequence(
        session_, sequence, PromptOf({}, tokens, static_cast<uint32_t>(tokens.size())), now_);
    ASSERT_TRUE(added.ok()) << added.status();
    matched_ = added->matched_tokens;
    matched_below_ = added->matched_below_tokens;
    Settle();
    const auto rest = absl::MakeConstSpan(tokens).subspan(matched_);
    const auto committed = core_->sequences().CommitTokens(
        session_, sequence, {}, static_cast<uint32_t>(tokens.size()), now_);
    ASSERT_TRUE(committed.ok() || rest.empty()) << committed.status();
    Settle();
    ASSERT_TRUE(core_->sequences().FreeSequence(session_, sequence, now_).ok());
    Settle();
  }
  // The same, and afterwards its blocks are on disk too.
  void RunAndWrite(const std::vector<TokenId>& tokens) {
    Run(tokens);
    for (Maintain(); !backups_.empty(); Maintain()) EndBackup();
  }
  PrefetchedPrefix Prefetch(const std::vector<TokenId>& tokens,
                            absl::Duration deadline = absl::InfiniteDuration()) {
    const NamespaceKey name_space;
    const auto prefetched = core_->prefixes().Prefetch(
        {.name_space = name_space, .tokens = tokens}, now_,
        {.target = PrefetchTarget::kMemory, .deadline = now_ + deadline});
    EXPECT_TRUE(prefetched.ok()) << prefetched.status();
    Settle();
    return prefetched.value_or(PrefetchedPrefix());
  }
  MatchedPrefix Match(std::vector<TokenId> tokens) {
    tokens.push_back(0);  // The last token is never matched.
    const NamespaceKey name_space;
    return core_->prefixes().Describe({.name_space = name_space, .tokens = tokens});
  }
  TierOccupancy At(Tier tier) { return core_->Stats().windows[0].tiers[tier.value()]; }
  DiskTierStats Disk() { return core_->Stats().windows[0].disk; }

  absl::Time now_ = absl::FromUnixSeconds(1000);
  std::unique_ptr<BlockManager> core_;
  ShadowTree shadow_;
  SessionId session_;
  uint64_t sequences_ = 0;
  uint32_t matched_ = 0, matched_below_ = 0;
  bool copies_fail_ = false;
  std::deque<Order> backups_, fetches_, erases_;
  std::vector<SlotIndex> drops_;
};

TEST_F(DiskCoreTest, ADiskStandsBelowHostMemoryAndIsTheLastTier) {
  const auto refusal = [&](std::vector<Medium> media) {
    std::vector<TierSpec> tiers;
    for (const Medium medium : media) {
      tiers.push_back(
          {.name = DefaultTierName(Tier(tiers.size())), .medium = medium, .blocks = {4}});
    }
    return BlockManager::Create({.layout = TinyLayout(4), .tiers = tiers, .epoch = Epoch{1}})
        .status();
  };
  EXPECT_TRUE(refusal({Medium::kHost, Medium::kDisk}).ok());
  EXPECT_TRUE(refusal({Medium::kGpu, Medium::kHost, Medium::kDisk}).ok());
  EXPECT_EQ(ReasonOf(refusal({Medium::kGpu, Medium::kDisk})), Reason::kInvalidArgument);
  EXPECT_EQ(ReasonOf(refusal({Medium::kHost, Medium::kDisk, Medium::kHost})),
            Reason::kInvalidArgument);
  EXPECT_EQ(ReasonOf(refusal({Medium::kDisk})), Reason::kInvalidArgument);
}

TEST_F(DiskCoreTest, ABackupGoesThroughAStagingSlotAndRootFirst) {
  Make(8, 8);
  Run(Tokens(100, 12));
  EXPECT_THAT(backups_, IsEmpty()) << "an operation of a client orders no write";
  Maintain();
  ASSERT_THAT(backups_, SizeIs(3));
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(backups_[i].content->tokens.front(), 100 + i * kBlockTokens);
    EXPECT_EQ(backups_[i].source.tier, kPrimaryTier);
    EXPECT_GE(backups_[i].source.slot.value(), 8u) << "no slot of a block waits for the disk";
    EXPECT_EQ(backups_[i].parent, i == 0 ? kNoSlot : backups_[i - 1].target.slot);
  }
  EXPECT_EQ(At(kDisk).in_flight, 3u);
  EXPECT_EQ(At(kPrimaryTier).cached, 3u) << "the blocks are evictable meanwhile";
  while (!backups_.empty()) EndBackup();
  EXPECT_EQ(At(kDisk).duplicates, 3u);
  EXPECT_EQ(core_->completed_ticket(Lane::kBackup), Ticket{3});
}

TEST_F(DiskCoreTest, WhatHasACopyOnDiskFallsWithoutAWriteAndTheRestIsDropped) {
  Make(4, 8);
  RunAndWrite(Tokens(100, 8));
  const uint64_t written = Disk().backup_bytes;
  Run(Tokens(200, 16));  // Fills the memory: the two blocks fall to their copies on disk.
  EXPECT_EQ(At(kDisk).cached - At(kDisk).duplicates, 2u);
  EXPECT_EQ(Disk().backup_bytes, written);
  EXPECT_EQ(core_->Stats().windows[0].counters.evicted_blocks, 0u);
  Run(Tokens(300, 16));  // Blocks that are not written yet are dropped.
  EXPECT_EQ(core_->Stats().windows[0].counters.evicted_blocks, 4u);
  EXPECT_EQ(Disk().passed_over, 4u);
}

TEST_F(DiskCoreTest, ASequenceMatchesMemoryAndIsToldWhatLiesBelow) {
  Make(4, 8);
  RunAndWrite(Tokens(100, 12));
  Run(Tokens(200, 8));
  const MatchedPrefix match = Match(Tokens(100, 12));
  EXPECT_EQ(match.cached_tokens, 12u);
  EXPECT_EQ(match.matched_tokens, 8u);
  EXPECT_THAT(match.tokens_by_tier, ElementsAre(8u, 4u));
  std::vector<TokenId> longer = Tokens(100, 14);
  Run(longer);
  EXPECT_EQ(matched_, 8u);
  EXPECT_EQ(matched_below_, 4u);
}

TEST_F(DiskCoreTest, AFetchBringsBlocksUpRootFirstWhateverTheDisksOrder) {
  Make(8, 8);
  RunAndWrite(Tokens(100, 8));
  Run(Tokens(200, 32));  // Everything else leaves.
  ASSERT_EQ(Match(Tokens(100, 8)).tokens_by_tier, (std::vector<uint32_t>{0, 8}));
  const PrefetchedPrefix prefetched = Prefetch(Tokens(100, 8));
  EXPECT_EQ(prefetched.matched_tokens, 8u);
  EXPECT_EQ(prefetched.fetched_blocks, 2u);
  ASSERT_THAT(fetches_, SizeIs(2));
  EXPECT_EQ(At(kPrimaryTier).in_flight, 2u);
  std::swap(fetches_[0], fetches_[1]);
  EndFetch();
  EXPECT_EQ(Match(Tokens(100, 8)).matched_tokens, 0u) << "the block above it is not there yet";
  EXPECT_LT(core_->completed_ticket(Lane::kFetch), prefetched.fetch);
  EndFetch();
  EXPECT_EQ(core_->completed_ticket(Lane::kFetch), prefetched.fetch);
  EXPECT_EQ(Match(Tokens(100, 8)).matched_tokens, 8u);
  EXPECT_EQ(At(kDisk).duplicates, 2u) << "the copies on disk stay";
  EXPECT_EQ(At(kPrimaryTier).in_flight, 0u);
}

TEST_F(DiskCoreTest, TwoWhoWaitForOneBlockCauseOneRead) {
  Make(8, 8);
  RunAndWrite(Tokens(100, 8));
  Run(Tokens(200, 32));
  const PrefetchedPrefix first = Prefetch(Tokens(100, 8));
  const PrefetchedPrefix second = Prefetch(Tokens(100, 8));
  EXPECT_EQ(second.fetched_blocks, 0u);
  EXPECT_EQ(second.fetch, first.fetch);
  EXPECT_THAT(fetches_, SizeIs(2));
}

TEST_F(DiskCoreTest, AFailedFetchLosesTheBlockAndAllBelowIt) {
  Make(8, 8);
  RunAndWrite(Tokens(100, 12));
  Run(Tokens(200, 32));
  const PrefetchedPrefix prefetched = Prefetch(Tokens(100, 12));
  ASSERT_EQ(prefetched.fetched_blocks, 2u) << "a quarter of the memory at a time";
  EndFetch();
  EndFetch(absl::DataLossError("torn"));
  EXPECT_EQ(core_->completed_ticket(Lane::kFetch), prefetched.fetch);
  EXPECT_EQ(Match(Tokens(100, 12)).cached_tokens, 4u);
  EXPECT_EQ(core_->Stats().windows[0].counters.lost_blocks, 2u);
  EXPECT_EQ(Disk().failed_fetches, 1u);
}

TEST_F(DiskCoreTest, ACancelledFetchLosesNothing) {
  Make(8, 8);
  RunAndWrite(Tokens(100, 8));
  Run(Tokens(200, 32));
  Prefetch(Tokens(100, 8));
  EndFetch(absl::CancelledError("stopped"));
  EndFetch(absl::CancelledError("stopped"));
  EXPECT_EQ(Match(Tokens(100, 8)).cached_tokens, 8u);
  EXPECT_EQ(At(kPrimaryTier).in_flight, 0u);
}

TEST_F(DiskCoreTest, AFetchThatIsLateIsNotWaitedForAndItsSlotWaitsForTheDisk) {
  Make(8, 8);
  RunAndWrite(Tokens(100, 8));
  Run(Tokens(200, 32));
  const PrefetchedPrefix prefetched = Prefetch(Tokens(100, 8), absl::Milliseconds(10));
  EndFetch();
  now_ += absl::Milliseconds(10);
  Maintain();
  EXPECT_EQ(core_->completed_ticket(Lane::kFetch), prefetched.fetch);
  EXPECT_EQ(Match(Tokens(100, 8)).matched_tokens, 4u) << "what came in time stays";
  EXPECT_EQ(At(kPrimaryTier).in_flight, 1u);
  EndFetch();
  EXPECT_EQ(At(kPrimaryTier).in_flight, 0u);
  EXPECT_EQ(Match(Tokens(100, 8)).matched_tokens, 4u);
  EXPECT_EQ(Disk().late_fetches, 1u);
}

TEST_F(DiskCoreTest, WritesKeepToTheirBudgetInEverySpanOfTime) {
  const uint64_t block_bytes = TinyLayout(kBlockTokens).windows()[0].block_bytes();
  Make(64, 256, 10 * block_bytes);
  Run(Tokens(1000, 200));
  std::vector<std::pair<absl::Time, uint64_t>> written;
  for (int step = 0; step < 300; ++step) {
    now_ += absl::Milliseconds(17);
    const uint64_t before = Disk().backup_bytes;
    Maintain();
    while (!backups_.empty()) EndBackup();
    written.emplace_back(now_, Disk().backup_bytes - before);
  }
  EXPECT_EQ(Disk().backup_bytes, 50 * block_bytes) << "all of it, in time";
  for (size_t from = 0; from < written.size(); ++from) {
    uint64_t bytes = 0;
    for (size_t to = from; to < written.size(); ++to) {
      bytes += written[to].second;
      const double seconds = absl::ToDoubleSeconds(written[to].first - written[from].first);
      ASSERT_LE(static_cast<double>(bytes),
                static_cast<double>(10 * block_bytes) * (seconds + 1) + 1);
    }
  }
}

TEST_F(DiskCoreTest, WhenTheBudgetIsShortWhatWasUsedMostIsWrittenFirst) {
  const uint64_t block_bytes = TinyLayout(kBlockTokens).windows()[0].block_bytes();
  Make(16, 16, block_bytes);
  Maintain();
  Run(Tokens(100, 4));
  Run(Tokens(200, 4));
  Run(Tokens(200, 5));  // The second one is used again.
  Maintain();
  ASSERT_THAT(backups_, SizeIs(1));
  EXPECT_EQ(backups_[0].content->tokens.front(), 200u);
}

TEST_F(DiskCoreTest, AFullDiskGivesUpItsOldestLeafAndNoCopyForHavingANearerOne) {
  Make(16, 3);
  RunAndWrite(Tokens(100, 8));
  RunAndWrite(Tokens(200, 4));
  ASSERT_EQ(At(kDisk).free, 0u);
  RunAndWrite(Tokens(300, 4));
  // The leaf of the first prefix has left; its root has stayed.
  const NamespaceKey name_space;
  const std::vector<TokenId> first = Tokens(100, 8);
  const auto inspected = core_->lists().InspectPrefix({.name_space = name_space, .tokens = first});
  ASSERT_TRUE(inspected.ok());
  ASSERT_THAT(inspected->blocks, SizeIs(2));
  EXPECT_TRUE(inspected->blocks[0].lower.contains(kDisk));
  EXPECT_FALSE(inspected->blocks[1].lower.contains(kDisk));
  EXPECT_THAT(drops_, SizeIs(1)) << "the carrier hears of a slot that was let go";
}

TEST_F(DiskCoreTest, ABlockOfHigherPriorityIsNotDisplacedOnDisk) {
  Make(16, 1);
  RunAndWrite(Tokens(100, 4));
  const NamespaceKey name_space;
  SequenceRetention high;
  high.ranges.push_back(
      {.token_start = 0, .token_end = std::nullopt, .retention = {.priority = Priority{90}}});
  ASSERT_TRUE(core_->prefixes()
                  .SetRetention({.name_space = name_space, .tokens = Tokens(100, 4)}, high, now_)
                  .ok());
  Settle();
  RunAndWrite(Tokens(200, 4));
  EXPECT_EQ(Match(Tokens(100, 4)).cached_tokens, 4u);
  EXPECT_EQ(Disk().backups, 1u);
}

TEST_F(DiskCoreTest, AFailedWriteRetiresItsSlotAndTheBlockStaysInMemory) {
  Make(8, 8);
  Run(Tokens(100, 8));
  Maintain();
  EndBackup(absl::UnavailableError("EIO"));
  EndBackup();
  EXPECT_EQ(Disk().retired_slots, 1u);
  EXPECT_EQ(At(kDisk).in_flight, 1u);
  EXPECT_EQ(Match(Tokens(100, 8)).matched_tokens, 8u);
  // The child's copy serves in this run, though its parent has none.
  Run(Tokens(200, 32));
  EXPECT_EQ(At(kPrimaryTier).cached, 8u);
}

TEST_F(DiskCoreTest, WritesThatFailOneAfterAnotherEnd) {
  Make(32, 32);
  Run(Tokens(100, 64));
  for (int i = 0; i < 100; ++i) {
    Maintain();
    while (!backups_.empty()) EndBackup(absl::UnavailableError("EIO"));
  }
  EXPECT_LE(Disk().retired_slots, 8u + kStagingSlots);
  Run(Tokens(500, 16));
  Maintain();
  EXPECT_THAT(backups_, IsEmpty());
}

TEST_F(DiskCoreTest, ABlockWhoseCopyToTheStagingSlotFailsIsNotWritten) {
  Make(8, 8);
  Run(Tokens(100, 8));
  copies_fail_ = true;
  Maintain();
  copies_fail_ = false;
  EXPECT_THAT(backups_, IsEmpty());
  EXPECT_EQ(At(kDisk).free, 8u);
  EXPECT_EQ(Match(Tokens(100, 8)).matched_tokens, 8u);
}

TEST_F(DiskCoreTest, AnInvalidationErasesWhatIsThereAndWhatIsOnItsWay) {
  Make(8, 8);
  RunAndWrite(Tokens(100, 4));
  Run(Tokens(100, 8));
  Maintain();
  ASSERT_THAT(backups_, SizeIs(1));
  const Order running = backups_.front();
  Ticket durable;
  const NamespaceKey name_space;
  ASSERT_TRUE(core_->prefixes()
                  .Invalidate({.name_space = name_space, .tokens = Tokens(100, 4)}, now_, &durable)
                  .ok());
  Settle();
  ASSERT_THAT(erases_, SizeIs(1));
  EXPECT_THAT(erases_[0].slots, SizeIs(2));
  EXPECT_EQ(erases_[0].ticket, durable);
  EXPECT_EQ(At(kDisk).in_flight, 2u) << "neither slot is handed out before the erase is durable";
  backups_.clear();
  core_->Complete(Lane::kBackup, erases_[0].ticket, absl::OkStatus(), now_);
  Settle();
  EXPECT_EQ(At(kDisk).in_flight, 1u);
  EXPECT_LT(core_->completed_ticket(Lane::kBackup), durable) << "the backup is not over";
  End(running);
  EXPECT_EQ(core_->completed_ticket(Lane::kBackup), durable);
  EXPECT_EQ(At(kDisk).free, 8u);
  EXPECT_EQ(Match(Tokens(100, 8)).cached_tokens, 0u);
}

TEST_F(DiskCoreTest, AnEraseThatFailsIsTriedAgainAndIsNotDurableBefore) {
  Make(8, 8);
  RunAndWrite(Tokens(100, 4));
  Ticket durable;
  const NamespaceKey name_space;
  ASSERT_TRUE(core_->prefixes()
                  .Invalidate({.name_space = name_space, .tokens = Tokens(100, 4)}, now_, &durable)
                  .ok());
  Settle();
  for (int i = 0; i < 3; ++i) {
    ASSERT_THAT(erases_, SizeIs(1));
    const Ticket ticket = erases_.front().ticket;
    erases_.clear();
    core_->Complete(Lane::kBackup, ticket, i < 2 ? absl::UnavailableError("EIO") : absl::OkStatus(),
                    now_);
    Settle();
    EXPECT_EQ(core_->completed_ticket(Lane::kBackup) >= durable, i == 2);
    EXPECT_EQ(At(kDisk).free, i == 2 ? 8u : 7u);
  }
  EXPECT_THAT(erases_, IsEmpty());
}

TEST_F(DiskCoreTest, AnEraseThatFailsAgainAndAgainIsGivenUpAndCounted) {
  Make(8, 8);
  core_->ResetPrefixCache(now_);
  Settle();
  while (!erases_.empty()) {
    const Ticket ticket = erases_.front().ticket;
    erases_.clear();
    core_->Complete(Lane::kBackup, ticket, absl::UnavailableError("EIO"), now_);
    Settle();
  }
  EXPECT_EQ(core_->completed_ticket(Lane::kBackup), core_->last_ticket(Lane::kBackup));
  EXPECT_EQ(Disk().failed_erases, 1u);
}

TEST_F(DiskCoreTest, AnInvalidationThatFindsNothingErasesWhatTheDiskHadDropped) {
  Make(8, 8);
  const NamespaceKey name_space;
  ASSERT_TRUE(core_->prefixes()
                  .Invalidate({.name_space = name_space, .tokens = Tokens(100, 4)}, now_)
                  .ok());
  Settle();
  ASSERT_THAT(erases_, SizeIs(1));
  EXPECT_EQ(erases_[0].kind, Order::Kind::kErase);
}

TEST_F(DiskCoreTest, AResetErasesEverythingAndNothingIsWrittenBeforeThat) {
  Make(8, 8);
  RunAndWrite(Tokens(100, 8));
  core_->ResetPrefixCache(now_);
  Settle();
  ASSERT_THAT(erases_, SizeIs(1));
  EXPECT_EQ(erases_[0].kind, Order::Kind::kEraseAll);
  Run(Tokens(200, 8));
  Maintain();
  EXPECT_THAT(backups_, IsEmpty());
  core_->Complete(Lane::kBackup, erases_[0].ticket, absl::OkStatus(), now_);
  Settle();
  Maintain();
  EXPECT_THAT(backups_, SizeIs(2));
}

TEST_F(DiskCoreTest, ARestartTakesBackBlocksAndCopiesAndDropsWhatHasNoPlace) {
  Make(4, 8);
  const auto block = [](uint32_t slot, size_t parent, TokenId first, uint32_t count) {
    return RecoveredBlock{
        .slot = {kDisk, SlotIndex{slot}}, .parent = parent, .tokens = Tokens(first, count)};
  };
  // The first block was found in memory too.
  core_ =
      *BlockManager::Create({.layout = TinyLayout(kBlockTokens),
                             .tiers = {{.name = "dram", .blocks = {4}},
                                       {.name = "nvme", .medium = Medium::kDisk, .blocks = {8}}},
                             .epoch = Epoch{2},
                             .start_time = now_});
  shadow_ = ShadowTree();
  RecoveredWindow memory{.window = kFullAttention, .blocks = {}};
  memory.blocks.push_back({.slot = {kPrimaryTier, SlotIndex{2}}, .tokens = Tokens(100, 4)});
  ASSERT_TRUE(core_->restart().Restore({&memory, 1}, now_).ok());
  RecoveredWindow disk{.window = kFullAttention, .blocks = {}};
  disk.blocks.push_back(block(0, RecoveredBlock::kRoot, 100, 4));
  disk.blocks.push_back(block(3, 0, 104, 4));
  disk.blocks.push_back(block(4, 1, 108, 2));  // A tail.
  disk.blocks.push_back(block(5, 2, 200, 4));  // It is below a tail, so it has no place.
  const auto restored = core_->restart().RestoreDisk({&disk, 1}, now_);
  ASSERT_TRUE(restored.ok()) << restored.status();
  EXPECT_EQ(*restored, 3u);
  Settle();
  EXPECT_THAT(drops_, ElementsAre(SlotIndex{5}));
  session_ = core_->OpenSession("test", absl::InfiniteDuration(), now_)->ref.id;
  EXPECT_THAT(Match(Tokens(100, 10)).tokens_by_tier, ElementsAre(4u, 6u));
  EXPECT_EQ(At(kDisk).duplicates, 1u);
  EXPECT_EQ(At(kDisk).free, 5u);
  const PrefetchedPrefix prefetched = Prefetch(Tokens(100, 8));
  ASSERT_EQ(prefetched.fetched_blocks, 1u);
  EXPECT_EQ(fetches_[0].source.slot, SlotIndex{3});
  EndFetch();
  EXPECT_EQ(Match(Tokens(100, 8)).matched_tokens, 8u);
}

TEST_F(DiskCoreTest, WhatWasFoundTwiceInOneSlotIsRefused) {
  Make(4, 8);
  core_ =
      *BlockManager::Create({.layout = TinyLayout(kBlockTokens),
                             .tiers = {{.name = "dram", .blocks = {4}},
                                       {.name = "nvme", .medium = Medium::kDisk, .blocks = {8}}},
                             .epoch = Epoch{2},
                             .start_time = now_});
  RecoveredWindow disk{.window = kFullAttention, .blocks = {}};
  for (int i = 0; i < 2; ++i) {
    disk.blocks.push_back({.slot = {kDisk, SlotIndex{0}}, .tokens = Tokens(100, 4)});
  }
  EXPECT_EQ(ReasonOf(core_->restart().RestoreDisk({&disk, 1}, now_).status()),
            Reason::kInvalidArgument);
}

TEST_F(DiskCoreTest, ALongPromptIsWrittenFromItsRootOnInManySteps) {
  Make(1024, 1024);
  Run(Tokens(1000, 2400));  // 600 blocks: more than one look climbs.
  std::vector<TokenId> first_tokens;
  for (int i = 0; i < 1000; ++i) {
    Maintain();
    if (backups_.empty()) break;
    while (!backups_.empty()) {
      first_tokens.push_back(backups_.front().content->tokens.front());
      EndBackup();
    }
  }
  ASSERT_THAT(first_tokens, SizeIs(600));
  EXPECT_TRUE(std::is_sorted(first_tokens.begin(), first_tokens.end()));
}

}  // namespace
}  // namespace pagoda
