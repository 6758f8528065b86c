// Where the bytes of cached blocks lie in host memory.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "events/event_log.h"
#include "manager/cache_lists.h"
#include "manager/sequences/running_sequences.h"
#include "manager/sequences/session_endings.h"
#include "manager/shared_manager.h"
#include "pools/carrier.h"
#include "tests/manager/fixtures/prompt_of.h"
#include "tests/manager/fixtures/testing.h"

namespace pagoda {
namespace {

constexpr uint32_t kBlockTokens = 4;

std::vector<TokenId> Range(TokenId first, size_t count) {
  std::vector<TokenId> tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

// Copies end when the test says so.
class HeldTransfers final : public Carrier {
 public:
  void Submit(absl::Span<const Order> orders) override {
    orders_.insert(orders_.end(), orders.begin(), orders.end());
  }
  std::vector<Order> Take() { return std::exchange(orders_, {}); }
  size_t held() const { return orders_.size(); }

 private:
  std::vector<Order> orders_;
};

// Writes to the disk end at once.
class Disk final : public Carrier {
 public:
  void Submit(absl::Span<const Order> orders) override {
    orders_.insert(orders_.end(), orders.begin(), orders.end());
  }
  void End(SharedManager& manager) {
    for (const Order& order : std::exchange(orders_, {})) {
      if (order.kind != Order::Kind::kMove) continue;
      manager.Complete(order.lane, order.ticket, absl::OkStatus());
    }
  }

 private:
  std::vector<Order> orders_;
};

class LocateBlocksTest : public testing::Test {
 protected:
  explicit LocateBlocksTest(std::vector<TierSpec> tiers = HostTiers({4}, {8}))
      : manager_(
            *BlockManager::Create(
                {.layout = TinyLayout(kBlockTokens), .tiers = std::move(tiers), .epoch = Epoch{1}}),
            &log_),
        client_(*OpenLocalCacheClient(&manager_, "test")) {}
  ~LocateBlocksTest() override {
    client_.reset();
    manager_.SetCarrier({Lane::kFetch, Lane::kBackup}, nullptr);
    manager_.SetCarrier({Lane::kMemory}, nullptr);
    manager_.Read(&BlockManager::CheckInvariants);
  }

  void Serve(const std::vector<TokenId>& tokens) {
    const SequenceId id{++sequences_};
    ASSERT_TRUE(
        RunOne<AddedSequence>(*client_, AddSequence{.sequence = id, .tokens = tokens}).ok());
    ASSERT_TRUE(RunOne<CommittedTokens>(
                    *client_, CommitTokens{.sequence = id,
                                           .computed_tokens = static_cast<uint32_t>(tokens.size())})
                    .ok());
    ASSERT_TRUE(RunOne<FreedSequence>(*client_, FreeSequence{.sequence = id}).ok());
  }
  InspectedBlock Inspect(const std::vector<TokenId>& tokens, size_t block = 0) {
    return manager_.Read([&](const BlockManager& core) {
      return core.lists().InspectPrefix(PromptOf({}, tokens))->blocks.at(block);
    });
  }
  std::optional<LocatedBlock> Locate(BlockId id) {
    const LocatedBlocks located = manager_.Read([&](const BlockManager& core) {
      return core.lists().LocateBlocks(0, {&id, 1});
    });
    EXPECT_EQ(located.revision, manager_.Read(&BlockManager::revision));
    EXPECT_EQ(located.blocks.size(), 1u);
    return located.blocks.at(0);
  }

  EventLog log_{{}};
  HeldTransfers transfers_;
  Disk disk_;
  SharedManager manager_;
  std::unique_ptr<CacheClient> client_;
  uint64_t sequences_ = 0;
};

TEST_F(LocateBlocksTest, ACachedBlockIsWhereTheTreeSays) {
  Serve(Range(0, 8));
  const InspectedBlock first = Inspect(Range(0, 8)), second = Inspect(Range(0, 8), 1);
  const std::vector<BlockId> ids = {second.block.id, BlockId{12'345'678}, first.block.id, kNoBlock};
  const LocatedBlocks located =
      manager_.Read([&](const BlockManager& core) { return core.lists().LocateBlocks(0, ids); });
  ASSERT_EQ(located.blocks.size(), 4u);
  EXPECT_EQ(located.blocks[0], (LocatedBlock{.generation = second.block.generation,
                                             .hash = second.hash,
                                             .slot = {kPrimaryTier, second.block.slot}}));
  EXPECT_EQ(located.blocks[1], std::nullopt) << "there is no such id";
  EXPECT_EQ(located.blocks[2]->hash, first.hash);
  EXPECT_EQ(located.blocks[3], std::nullopt);
}

TEST_F(LocateBlocksTest, ABlockOutsideTheTreeIsNotFound) {
  const auto added = RunOne<AddedSequence>(
      *client_, AddSequence{.sequence = SequenceId{1}, .tokens = Range(0, 4)});
  ASSERT_TRUE(added.ok());
  const BlockId id = added->tables[0].blocks[0].id;
  EXPECT_EQ(Locate(id), std::nullopt) << "its KV is not complete";
  ASSERT_TRUE(RunOne<CommittedTokens>(*client_,
                                      CommitTokens{.sequence = SequenceId{1}, .computed_tokens = 4})
                  .ok());
  EXPECT_TRUE(Locate(id).has_value());
  manager_.ResetPrefixCache();
  EXPECT_EQ(Locate(id), std::nullopt) << "the sequence still has it, and the cache does not";
}

TEST_F(LocateBlocksTest, AResetThatHasNotReachedABlockHidesItAlready) {
  auto core = MakeCore(16, kBlockTokens);
  const absl::Time now = absl::UnixEpoch();
  const SessionRef session = core->OpenSession("test", absl::InfiniteDuration(), now)->ref;
  ASSERT_TRUE(core->sequences()
                  .AddSequence(session.id, SequenceId{1}, PromptOf({}, Range(0, 32)), now)
                  .ok());
  ASSERT_TRUE(core->sequences().CommitTokens(session.id, SequenceId{1}, {}, 32, now).ok());
  ASSERT_TRUE(core->endings().CloseSession(session, now).ok());
  const BlockId last =
      core->lists().InspectPrefix(PromptOf({}, Range(0, 32)))->blocks.at(7).block.id;
  ASSERT_TRUE(core->lists().LocateBlocks(0, {&last, 1}).blocks[0].has_value());
  while (!core->StepReset(1, now).done) {
    if (core->lists().InspectPrefix(PromptOf({}, Range(0, 32)))->blocks.empty()) {
      EXPECT_EQ(core->lists().LocateBlocks(0, {&last, 1}).blocks[0], std::nullopt);
    }
  }
}

TEST_F(LocateBlocksTest, ABlockThatIsOnItsWayDownIsFoundWhenItHasArrived) {
  Serve(Range(0, 16));
  const InspectedBlock last = Inspect(Range(0, 16), 3);
  manager_.SetCarrier({Lane::kMemory}, &transfers_);
  Serve(Range(100, 4));
  EXPECT_EQ(Inspect(Range(0, 16), 3).tier, Tier(1));
  ASSERT_EQ(transfers_.held(), 1u);
  EXPECT_EQ(Locate(last.block.id), std::nullopt);
  manager_.Complete(Lane::kMemory, transfers_.Take().front().ticket, absl::OkStatus());
  const std::optional<LocatedBlock> located = Locate(last.block.id);
  ASSERT_TRUE(located.has_value());
  EXPECT_EQ(located->slot, (SlotRef{Tier(1), Inspect(Range(0, 16), 3).block.slot}));
  EXPECT_EQ(located->generation, last.block.generation);
}

TEST_F(LocateBlocksTest, ABlockThatIsOnItsWayUpIsFoundBelow) {
  Serve(Range(0, 4));
  Serve(Range(100, 16));  // Offloads it.
  const InspectedBlock below = Inspect(Range(0, 4));
  ASSERT_EQ(below.tier, Tier(1));
  manager_.SetCarrier({Lane::kMemory}, &transfers_);
  // Onboards it.
  ASSERT_TRUE(RunOne<AddedSequence>(*client_,
                                    AddSequence{.sequence = SequenceId{100}, .tokens = Range(0, 5)})
                  .ok());
  ASSERT_EQ(Inspect(Range(0, 4)).tier, kPrimaryTier);
  EXPECT_EQ(Locate(below.block.id)->slot, (SlotRef{Tier(1), below.block.slot}));
  for (const Order& order : transfers_.Take()) {
    manager_.Complete(order.lane, order.ticket, absl::OkStatus());
  }
  EXPECT_EQ(Locate(below.block.id)->slot, (SlotRef{kPrimaryTier, Inspect(Range(0, 4)).block.slot}));
}

class LocateBelowGpuTest : public LocateBlocksTest {
 protected:
  LocateBelowGpuTest()
      : LocateBlocksTest({{.name = "gpu", .medium = Medium::kGpu, .blocks = {4}},
                          {.name = "dram", .blocks = {8}}}) {}
};

TEST_F(LocateBelowGpuTest, OnlyHostMemoryCounts) {
  Serve(Range(0, 16));
  const BlockId last = Inspect(Range(0, 16), 3).block.id;
  EXPECT_EQ(Locate(last), std::nullopt);
  Serve(Range(100, 4));
  EXPECT_EQ(Locate(last)->slot.tier, Tier(1));
}

class LocateAboveDiskTest : public LocateBlocksTest {
 protected:
  LocateAboveDiskTest()
      : LocateBlocksTest({{.name = "dram", .blocks = {8}},
                          {.name = "nvme", .medium = Medium::kDisk, .blocks = {16}}}) {
    manager_.SetCarrier({Lane::kFetch, Lane::kBackup}, &disk_);
  }
};

TEST_F(LocateAboveDiskTest, ABlockOnDiskAloneIsNotFound) {
  Serve(Range(0, 4));
  for (int i = 0; i < 4; ++i) {
    manager_.Maintain(0);
    disk_.End(manager_);
  }
  const InspectedBlock both = Inspect(Range(0, 4));
  ASSERT_EQ(both.tier, kPrimaryTier);
  ASSERT_FALSE(both.lower.empty());
  EXPECT_EQ(Locate(both.block.id)->slot.tier, kPrimaryTier);
  Serve(Range(1000, 32));
  ASSERT_EQ(Inspect(Range(0, 4)).tier, Tier(1)) << "on disk";
  EXPECT_EQ(Locate(both.block.id), std::nullopt);
}

}  // namespace
}  // namespace pagoda
