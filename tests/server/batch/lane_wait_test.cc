// Batches that wait in the lanes of a disk: each waits only for the tickets of its lane.
#include <grpc/grpc.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "google/rpc/error_details.pb.h"
#include "pools/carrier.h"
#include "server/batch/batch_run.h"
#include "tests/manager/fixtures/testing.h"

namespace pagoda::server {
namespace {

// Keeps gRPC initialised: see batch_run_test.cc.
[[maybe_unused]] const bool kGrpcIsUp = (grpc_init(), true);

constexpr absl::Duration kLong = absl::Seconds(30);  // Only a hang takes this long.
const std::vector<TokenId> kTokens = {1, 2, 3, 4, 5, 6, 7, 8};

// Keeps orders to the disk until they are taken.
class HeldFiles final : public Carrier {
 public:
  void Submit(absl::Span<const Order> orders) override {
    absl::MutexLock lock(&mutex_);
    for (const Order& order : orders) {
      if (order.ticket != Ticket()) tickets_.emplace_back(order.lane, order.ticket);
    }
  }

  std::vector<std::pair<Lane, Ticket>> Take() {
    absl::MutexLock lock(&mutex_);
    return std::exchange(tickets_, {});
  }

 private:
  absl::Mutex mutex_;
  std::vector<std::pair<Lane, Ticket>> tickets_ ABSL_GUARDED_BY(mutex_);
};

class LaneWaitTest : public ::testing::Test {
 protected:
  LaneWaitTest() {
    auto core = BlockManager::Create({.layout = TinyLayout(4),
                                      .tiers = {{.name = "dram", .blocks = {8}},
                                                {.name = "nvme",
                                                 .medium = Medium::kDisk,
                                                 .blocks = {16},
                                                 .min_priority = Priority(0)}},
                                      .epoch = Epoch(1)});
    EXPECT_TRUE(core.ok()) << core.status();
    manager_ = std::make_unique<SharedManager>(*std::move(core), &log_);
    manager_->SetCarrier({Lane::kFetch, Lane::kBackup}, &files_);
    session_ = manager_->OpenSession("test", absl::InfiniteDuration())->ref;
  }
  ~LaneWaitTest() override {
    FinishFiles();
    manager_->Read(&BlockManager::CheckInvariants);
  }

  template <class Result>
  Result Run(Operation operation) {
    const auto batch = manager_->ExecuteUntilWait(session_, {&operation, 1}, {});
    EXPECT_TRUE(batch.ok()) << batch.status();
    EXPECT_TRUE(batch->results.at(0).ok()) << batch->results.at(0).status();
    return std::get<Result>(*batch->results.at(0));
  }

  // Completes the orders to the disk.
  void FinishFiles() {
    for (const auto& [lane, ticket] : files_.Take()) {
      manager_->Complete(lane, ticket, absl::OkStatus());
    }
  }

  // Caches two blocks, and starts nothing on the disk.
  void Cache() {
    Run<AddedSequence>(AddSequence{.sequence = SequenceId(9), .tokens = kTokens});
    Run<CommittedTokens>(CommitTokens{.sequence = SequenceId(9), .computed_tokens = 8});
    Run<FreedSequence>(FreeSequence{SequenceId(9)});
  }
  // Leaves the blocks on the disk only.
  void MoveToDisk() {
    Cache();
    for (int i = 0; i < 4; ++i) {
      manager_->Maintain(0);
      FinishFiles();
    }
    EXPECT_EQ(Run<OffloadedPrefix>(OffloadPrefix{{}, kTokens}).blocks, 2u);
  }

  // One running batch.
  struct Running {
    v1::BatchResult result;
    absl::Notification done;
    std::shared_ptr<BatchRun> run;

    std::string ReasonOf(int operation) const {
      google::rpc::ErrorInfo info;
      if (!result.results(operation).has_error()) return "";
      result.results(operation).error().details(0).UnpackTo(&info);
      return info.reason();
    }
  };
  std::unique_ptr<Running> StartWait(Ticket ticket, v1::Lane lane) {
    v1::Batch batch;
    batch.add_operations()->mutable_wait_for_ticket()->set_ticket(ticket.value());
    batch.mutable_operations(0)->mutable_wait_for_ticket()->set_lane(lane);
    batch.add_operations()->mutable_allocate_blocks()->set_count(1);
    auto running = std::make_unique<Running>();
    running->run = std::make_shared<BatchRun>(BatchRun::Context{.manager = manager_.get(),
                                                                .state = &state_,
                                                                .waiting = &waiting_,
                                                                .answers = &answers_},
                                              session_, [r = running.get()](const auto& outcome) {
                                                ASSERT_TRUE(outcome.ok()) << outcome.status();
                                                EXPECT_TRUE(r->result.ParseFromString(**outcome));
                                                r->done.Notify();
                                              });
    running->run->Start(batch, /*fingerprint=*/0, [&] { batch.Clear(); });
    return running;
  }
  static void Await(Running& running) {
    ASSERT_TRUE(running.done.WaitForNotificationWithTimeout(kLong));
    EXPECT_EQ(running.ReasonOf(0), "");
    EXPECT_EQ(running.result.results(1).allocate_blocks().blocks().size(), sizeof(BlockHandle));
  }

  EventLog log_{EventLog::Limits{.max_events = 1 << 10}};
  HeldFiles files_;
  std::unique_ptr<SharedManager> manager_;
  SessionRef session_;
  ServingState state_;
  BatchRun::Set waiting_;
  AnswerMemory answers_;
};

TEST_F(LaneWaitTest, AFetchIsWaitedForInItsLane) {
  MoveToDisk();
  const auto prefetched = Run<PrefetchedPrefix>(PrefetchPrefix{{}, kTokens});
  ASSERT_EQ(prefetched.fetched_blocks, 2u);
  const auto running = StartWait(prefetched.fetch, v1::LANE_FETCH);
  EXPECT_FALSE(running->done.HasBeenNotified());
  EXPECT_EQ(waiting_.size(), 1u);
  // Backups wrote both blocks, so that lane's completed ticket has passed this number.
  ASSERT_GE(
      manager_->Read([](const BlockManager& core) { return core.completed_ticket(Lane::kBackup); }),
      prefetched.fetch);
  const auto backup = StartWait(prefetched.fetch, v1::LANE_BACKUP);
  EXPECT_TRUE(backup->done.HasBeenNotified());
  EXPECT_LT(backup->result.completed_fetch_ticket(), prefetched.fetch.value());

  FinishFiles();
  Await(*running);
  EXPECT_EQ(running->result.results(0).wait_for_ticket().completed_ticket(),
            prefetched.fetch.value());
  EXPECT_EQ(running->result.completed_fetch_ticket(), prefetched.fetch.value());
  EXPECT_EQ(Run<MatchedPrefix>(MatchPrefix{{}, {1, 2, 3, 4, 5, 6, 7, 8, 9}}).tokens_by_tier,
            (std::vector<uint32_t>{8, 0}));
}

TEST_F(LaneWaitTest, AnInvalidationIsWaitedForInItsLane) {
  Cache();
  const auto invalidated = Run<InvalidatedPrefix>(InvalidatePrefix{{}, {1, 2, 3, 4}});
  EXPECT_EQ(invalidated.removed_blocks, 2u);
  ASSERT_NE(invalidated.durable, Ticket{});
  const auto running = StartWait(invalidated.durable, v1::LANE_BACKUP);
  EXPECT_FALSE(running->done.HasBeenNotified());
  FinishFiles();
  Await(*running);
  EXPECT_EQ(running->result.completed_backup_ticket(), invalidated.durable.value());
}

TEST_F(LaneWaitTest, ATicketOfAnotherLaneIsUnknown) {
  Cache();
  const Ticket durable = Run<InvalidatedPrefix>(InvalidatePrefix{{}, kTokens}).durable;
  const auto running = StartWait(durable, v1::LANE_FETCH);
  EXPECT_TRUE(running->done.HasBeenNotified());
  EXPECT_EQ(running->ReasonOf(0), "UNKNOWN_TICKET");
  EXPECT_EQ(running->result.results(1).allocate_blocks().blocks().size(), sizeof(BlockHandle));
}

}  // namespace
}  // namespace pagoda::server
