// A disk below a manager that threads share: waiting in its lanes.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "base/error.h"
#include "events/event_log.h"
#include "gtest/gtest.h"
#include "manager/shared_manager.h"
#include "tests/manager/fixtures/testing.h"

namespace pagoda {
namespace {

constexpr uint32_t kBlockTokens = 4;

std::vector<TokenId> Tokens(TokenId first, size_t count) {
  std::vector<TokenId> tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

// A disk that writes at once, and reads on command.
class SlowReader final : public Carrier {
 public:
  void Submit(absl::Span<const Order> orders) override {
    const absl::MutexLock lock(&mutex_);
    orders_.insert(orders_.end(), orders.begin(), orders.end());
  }

  // Ends all orders except fetches. Returns whether there were any.
  bool EndWrites(SharedManager& manager) { return End(manager, Lane::kBackup); }
  bool EndReads(SharedManager& manager) { return End(manager, Lane::kFetch); }
  size_t num_reads() {
    const absl::MutexLock lock(&mutex_);
    return std::count_if(orders_.begin(), orders_.end(),
                         [](const Order& order) { return order.lane == Lane::kFetch; });
  }

 private:
  bool End(SharedManager& manager, Lane lane) {
    std::vector<Ticket> ended;
    {
      const absl::MutexLock lock(&mutex_);
      std::erase_if(orders_, [&](const Order& order) {
        if (order.lane != lane) return false;
        if (order.kind != Order::Kind::kDrop) ended.push_back(order.ticket);
        return true;
      });
    }
    for (const Ticket ticket : ended) manager.Complete(lane, ticket, absl::OkStatus());
    return !ended.empty();
  }

  absl::Mutex mutex_;
  std::vector<Order> orders_ ABSL_GUARDED_BY(mutex_);
};

class SharedDiskTest : public testing::Test {
 protected:
  SharedDiskTest()
      : log_(EventLog::Limits{.max_events = 4096, .max_bytes = 1 << 20}),
        manager_(*BlockManager::Create(
                     {.layout = TinyLayout(kBlockTokens),
                      .tiers = {{.name = "dram", .blocks = {8}},
                                {.name = "nvme", .medium = Medium::kDisk, .blocks = {16}}},
                      .epoch = Epoch{1}}),
                 &log_) {
    manager_.SetCarrier({Lane::kFetch, Lane::kBackup}, &disk_);
    client_ = *OpenLocalCacheClient(&manager_, "test");
  }
  ~SharedDiskTest() override {
    client_.reset();
    manager_.SetCarrier({Lane::kFetch, Lane::kBackup}, nullptr);
  }

  void Run(const std::vector<TokenId>& tokens) {
    const SequenceId id{++sequences_};
    ASSERT_TRUE(
        RunOne<AddedSequence>(*client_, AddSequence{.sequence = id, .tokens = tokens}).ok());
    ASSERT_TRUE(RunOne<CommittedTokens>(
                    *client_, CommitTokens{.sequence = id,
                                           .computed_tokens = static_cast<uint32_t>(tokens.size())})
                    .ok());
    ASSERT_TRUE(RunOne<FreedSequence>(*client_, FreeSequence{.sequence = id}).ok());
  }
  // The tokens lie on disk alone afterwards.
  void PutOnDisk(const std::vector<TokenId>& tokens) {
    Run(tokens);
    // A copy is done in the call after the one that ordered it.
    for (int i = 0; i < 4; ++i) {
      manager_.Maintain(0);
      disk_.EndWrites(manager_);
    }
    Run(Tokens(5000, 32));
  }

  EventLog log_;
  SlowReader disk_;
  SharedManager manager_;
  std::unique_ptr<CacheClient> client_;
  uint64_t sequences_ = 0;
};

TEST_F(SharedDiskTest, ABatchWaitsForAFetchAndFindsTheBlocksThen) {
  PutOnDisk(Tokens(100, 8));
  const auto fetch = RunOne<PrefetchedPrefix>(
      *client_, PrefetchPrefix{.tokens = Tokens(100, 8), .target = PrefetchTarget::kMemory});
  ASSERT_TRUE(fetch.ok()) << fetch.status();
  ASSERT_EQ(fetch->fetched_blocks, 2u);
  ASSERT_EQ(disk_.num_reads(), 2u);
  std::thread reader([&] {
    absl::SleepFor(absl::Milliseconds(50));
    disk_.EndReads(manager_);
  });
  std::vector<TokenId> prompt = Tokens(100, 9);
  const absl::StatusOr<BatchResult> batch = client_->Execute(std::vector<Operation>{
      WaitForTicket{fetch->fetch, Lane::kFetch}, MatchPrefix{.tokens = prompt}});
  reader.join();
  ASSERT_TRUE(batch.ok());
  ASSERT_TRUE(batch->results[0].ok()) << batch->results[0].status();
  EXPECT_EQ(std::get<WaitedForTicket>(*batch->results[0]).completed, fetch->fetch);
  EXPECT_EQ(std::get<MatchedPrefix>(*batch->results[1]).matched_tokens, 8u);
  EXPECT_EQ(batch->completed_fetch, fetch->fetch);
}

TEST_F(SharedDiskTest, AFetchThatWaitsHoldsUpNoCopyBetweenMemories) {
  PutOnDisk(Tokens(100, 8));
  const auto fetch = RunOne<PrefetchedPrefix>(
      *client_, PrefetchPrefix{.tokens = Tokens(100, 8), .target = PrefetchTarget::kMemory});
  ASSERT_TRUE(fetch.ok() && fetch->fetched_blocks == 2);
  absl::Notification done;
  manager_.NotifyWhenDone(Lane::kFetch, fetch->fetch, [&] { done.Notify(); });
  Run(Tokens(200, 8));
  const Ticket copies =
      manager_.Read([](const BlockManager& core) { return core.completed_ticket(); });
  EXPECT_GT(copies, Ticket{0}) << "backups were copied to their staging slots";
  EXPECT_LT(
      manager_.Read([&](const BlockManager& core) { return core.completed_ticket(Lane::kFetch); }),
      fetch->fetch);
  EXPECT_FALSE(done.HasBeenNotified());
  disk_.EndReads(manager_);
  EXPECT_TRUE(done.HasBeenNotified());
}

TEST_F(SharedDiskTest, AtTheDeadlineTheTicketIsDoneAndNobodyWaitsForTheDisk) {
  PutOnDisk(Tokens(100, 8));
  const auto fetch = RunOne<PrefetchedPrefix>(
      *client_, PrefetchPrefix{.tokens = Tokens(100, 8), .deadline = absl::Milliseconds(20)});
  ASSERT_TRUE(fetch.ok() && fetch->fetched_blocks == 2);
  absl::Notification done;
  manager_.NotifyWhenDone(Lane::kFetch, fetch->fetch, [&] { done.Notify(); });
  absl::SleepFor(absl::Milliseconds(25));
  manager_.Maintain(0);
  EXPECT_TRUE(done.HasBeenNotified());
  disk_.EndReads(manager_);
  EXPECT_EQ(RunOne<MatchedPrefix>(*client_, MatchPrefix{.tokens = Tokens(100, 9)})->matched_tokens,
            0u);
}

TEST_F(SharedDiskTest, AResetWaitsForNoDiskAndIsDurableWithItsTicket) {
  PutOnDisk(Tokens(100, 8));
  const Ticket before =
      manager_.Read([&](const BlockManager& core) { return core.completed_ticket(Lane::kBackup); });
  EXPECT_GT(manager_.ResetPrefixCache(), 0u);
  EXPECT_EQ(RunOne<MatchedPrefix>(*client_, MatchPrefix{.tokens = Tokens(100, 9)})->cached_tokens,
            0u);
  EXPECT_EQ(
      manager_.Read([&](const BlockManager& core) { return core.completed_ticket(Lane::kBackup); }),
      before)
      << "the disk has not answered";
  EXPECT_TRUE(disk_.EndWrites(manager_));
  EXPECT_GT(
      manager_.Read([&](const BlockManager& core) { return core.completed_ticket(Lane::kBackup); }),
      before);
}

TEST_F(SharedDiskTest, ATicketThatALaneHasNotGivenIsUnknown) {
  const auto waited = RunOne<WaitedForTicket>(*client_, WaitForTicket{Ticket{1}, Lane::kBackup});
  EXPECT_EQ(ReasonOf(waited.status()), Reason::kUnknownTicket);
}

TEST_F(SharedDiskTest, WithoutACarrierNothingWaitsForEver) {
  PutOnDisk(Tokens(100, 8));
  manager_.SetCarrier({Lane::kFetch, Lane::kBackup}, nullptr);
  const auto fetch = RunOne<PrefetchedPrefix>(*client_, PrefetchPrefix{.tokens = Tokens(100, 8)});
  ASSERT_TRUE(fetch.ok());
  EXPECT_TRUE(RunOne<WaitedForTicket>(*client_, WaitForTicket{fetch->fetch, Lane::kFetch}).ok());
  EXPECT_EQ(RunOne<MatchedPrefix>(*client_, MatchPrefix{.tokens = Tokens(100, 9)})->cached_tokens,
            8u)
      << "and nothing is lost";
}

}  // namespace
}  // namespace pagoda
