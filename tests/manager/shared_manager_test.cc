// What the threads of a process share: one lock, one clock, the log, and the copies.
#include "manager/shared_manager.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "base/error.h"
#include "base/processor_turn.h"
#include "tests/manager/fixtures/host_tiers.h"
#include "tests/manager/fixtures/testing.h"

namespace pagoda {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST(SharedManagerTest, LeasesRunOnAClockThatOnlyGoesForward) {
  const absl::Time first = SharedManager::Now();
  EXPECT_LT(absl::AbsDuration(first - absl::Now()), absl::Seconds(5));
  EXPECT_GE(SharedManager::Now(), first);
}

TEST(SharedManagerTest, AStandstillEndsNoLeaseAndProlongsNoneForEver) {
  constexpr absl::Duration kLease = absl::Seconds(2), kMost = absl::Milliseconds(200);
  EventLog log({});
  absl::Time now = absl::UnixEpoch();
  SharedManager manager(MakeCore(4, 4), &log, [&] { return now; });
  const SessionRef alive = manager.OpenSession("alive", kLease)->ref;
  const SessionRef dead = manager.OpenSession("dead", kLease)->ref;
  now += absl::Hours(1);
  EXPECT_EQ(manager.ExpireSessions(kMost), 0u);
  // The process stands still again and again. The lease runs for kMost each time.
  for (int i = 1; i < kLease / kMost - 1; ++i) {
    now += absl::Milliseconds(600);
    EXPECT_EQ(manager.ExpireSessions(kMost), 0u) << i;
    EXPECT_TRUE(manager.KeepAlive(alive).ok());
  }
  now += absl::Milliseconds(600);
  EXPECT_EQ(manager.ExpireSessions(kMost), 1u);
  EXPECT_EQ(ReasonOf(manager.KeepAlive(dead).status()), Reason::kStaleSession);
  EXPECT_TRUE(manager.KeepAlive(alive).ok());
  // In time, a lease takes its time.
  for (int i = 0; i < 10; ++i) {
    now += kMost;
    EXPECT_EQ(manager.ExpireSessions(kMost), i == 9 ? 1u : 0u) << i;
  }
}

TEST(SharedManagerTest, ASessionsTokenComesFromTheSource) {
  EventLog log({});
  uint64_t drawn = 0;
  SharedManager manager(MakeCore(4, 4), &log, SharedManager::Now, [&] {
    ++drawn;
    return SessionToken(drawn, 100 + drawn);
  });
  EXPECT_TRUE(manager.OpenSession("one", absl::InfiniteDuration())->ref.token ==
              SessionToken(1, 101));
  EXPECT_TRUE(manager.OpenSession("two", absl::InfiniteDuration())->ref.token ==
              SessionToken(2, 102));
}

// The source of tokens can ask the system, which can take long.
TEST(SharedManagerTest, ATokenIsDrawnWithoutTheLock) {
  EventLog log({});
  SharedManager* asked = nullptr;
  std::future<Revision> other;
  SharedManager manager(MakeCore(4, 4), &log, SharedManager::Now, [&] {
    other = std::async(std::launch::async, [&] { return asked->Read(&BlockManager::revision); });
    EXPECT_EQ(other.wait_for(std::chrono::seconds(10)), std::future_status::ready);
    return SessionToken(1, 2);
  });
  asked = &manager;
  EXPECT_TRUE(manager.OpenSession("one", absl::InfiniteDuration()).ok());
  other.wait();
}

// With a seeded generator, managers with the same seed would draw the same tokens.
TEST(SharedManagerTest, TokensAreTheSystemsAndOfAllTheirBits) {
  EventLog log({}), other_log({});
  SharedManager one(MakeCore(4, 4), &log), two(MakeCore(4, 4), &other_log);
  EXPECT_FALSE(one.OpenSession("one", absl::InfiniteDuration())->ref.token ==
               two.OpenSession("two", absl::InfiniteDuration())->ref.token);
  uint64_t low = 0, high = 0;
  std::set<std::pair<uint64_t, uint64_t>> tokens;
  for (int i = 0; i < 1000; ++i) {
    const SessionToken token = SharedManager::DrawToken();
    low |= token.low();
    high |= token.high();
    tokens.emplace(token.low(), token.high());
  }
  EXPECT_EQ(low, ~uint64_t{0});
  EXPECT_EQ(high, ~uint64_t{0});
  EXPECT_EQ(tokens.size(), 1000u);
}

TEST(SharedManagerTest, MaintenanceEndsAllThatHasExpired) {
  EventLog log({});
  absl::Time now = absl::UnixEpoch();
  SharedManager manager(MakeCore(16, 4), &log, [&] { return now; });
  const SessionRef ref = manager.OpenSession("engine", absl::InfiniteDuration())->ref;
  std::vector<Operation> batch = {AddSequence{.sequence = SequenceId{1}, .tokens = {1, 2, 3, 4}},
                                  CommitTokens{.sequence = SequenceId{1}, .computed_tokens = 4},
                                  FreeSequence{.sequence = SequenceId{1}}};
  batch.resize(kMaxBatchOperations, PinPrefix{.tokens = {1, 2, 3, 4}, .lease = absl::Seconds(1)});
  ASSERT_TRUE(manager.Execute(ref, batch)->results.back().ok());
  EXPECT_EQ(manager.Read(&BlockManager::Stats).pins, kMaxBatchOperations - 3);
  now += absl::Seconds(1);
  manager.Maintain(0);
  EXPECT_EQ(manager.Read(&BlockManager::Stats).pins, 0u);
}

TEST(SharedManagerTest, WhatIsQuarantinedIsListedAndRemembered) {
  EventLog log({});
  absl::Time now = absl::UnixEpoch();
  constexpr uint32_t kSessions = 2 * SharedManager::kQuarantinePiece + 1;
  SharedManager manager(MakeCore(kSessions, 4), &log, [&] { return now; });
  std::vector<SessionRef> refs;
  std::vector<SessionId> ids;
  for (uint32_t i = 0; i < kSessions; ++i) {
    const SessionRef ref = manager.OpenSession("engine", absl::Seconds(1))->ref;
    ASSERT_TRUE(manager.NoteWriter(ref).ok());
    const std::vector<Operation> batch = {AllocateBlocks{.count = 1}};
    ASSERT_TRUE(manager.Execute(ref, batch)->results[0].ok());
    EXPECT_TRUE(manager.Remembers(ref));
    refs.push_back(ref);
    ids.push_back(ref.id);
  }
  now += absl::Seconds(1);
  ASSERT_EQ(manager.ExpireSessions(), kSessions);
  EXPECT_EQ(manager.QuarantinedSessions(), ids);
  EXPECT_TRUE(manager.Remembers(refs[7]));
  ASSERT_TRUE(manager.ReleaseQuarantine(ids[7]).ok());
  EXPECT_FALSE(manager.Remembers(refs[7]));
  EXPECT_TRUE(manager.Remembers(refs[8]));
  const SessionRef open = manager.OpenSession("engine", absl::Seconds(1))->ref;
  EXPECT_EQ(manager.Remembers(std::vector<SessionRef>{refs[7], refs[8], open}),
            (std::vector<bool>{false, true, true}));
}

TEST(SharedManagerTest, ABatchSucceedsOrFailsOperationByOperation) {
  EventLog log({});
  SharedManager manager(MakeCore(4, 4), &log);
  auto client = OpenLocalCacheClient(&manager, "test");
  ASSERT_TRUE(client.ok());
  const std::vector<Operation> batch = {
      AddSequence{.sequence = SequenceId{1}, .tokens = {1, 2, 3, 4, 5}},
      AddSequence{.sequence = SequenceId{2}, .tokens = std::vector<TokenId>(12, 7)},
      CommitTokens{.sequence = SequenceId{1}, .computed_tokens = 5},
      FreeSequence{.sequence = SequenceId{1}}};
  const auto result = (*client)->Execute(batch);
  ASSERT_TRUE(result.ok());
  ASSERT_EQ(result->results.size(), 4u);
  EXPECT_TRUE(result->results[0].ok());
  EXPECT_EQ(ReasonOf(result->results[1].status()), Reason::kBlocksExhausted);
  EXPECT_TRUE(result->results[2].ok());
  EXPECT_TRUE(result->results[3].ok());
  EXPECT_EQ(result->revision, log.last()) << "the events are in the log before the answer is out";
  manager.Read(&BlockManager::CheckInvariants);
}

// The batch reads the clock at its start, and anew each time that it had given the lock up.
TEST(SharedManagerTest, ABatchGivesTheLockUpBetweenOperationsWhenItsThreadsTurnIsOver) {
  EventLog log({});
  int readings = 0;
  SharedManager manager(MakeCore(4, 4), &log, [&readings] {
    ++readings;
    const auto end = std::chrono::steady_clock::now() + absl::ToChronoMicroseconds(kProcessorTurn);
    while (std::chrono::steady_clock::now() < end) {
    }
    return absl::UnixEpoch();
  });
  const SessionRef session = manager.OpenSession("test", absl::InfiniteDuration())->ref;
  const std::vector<Operation> batch(5, ListPins());
  readings = 0;
  ASSERT_TRUE(manager.Execute(session, batch).ok());
  EXPECT_EQ(readings, 1) << "this thread takes no turns";
  std::thread([&] {
    BeginProcessorTurn();
    readings = 0;
    ASSERT_TRUE(manager.Execute(session, batch).ok());
    EXPECT_EQ(readings, 1 + 5);
  }).join();
}

TEST(SharedManagerTest, ABatchHasALimit) {
  EventLog log({});
  SharedManager manager(MakeCore(4, 4), &log);
  auto client = OpenLocalCacheClient(&manager, "test");
  const std::vector<Operation> batch(kMaxBatchOperations + 1, MatchPrefix{.tokens = {1}});
  EXPECT_EQ(ReasonOf((*client)->Execute(batch).status()), Reason::kBatchTooLarge);
}

TEST(SharedManagerTest, AnAnswerHasALimitToo) {
  EventLog log({});
  constexpr uint32_t kBlocks = 1000;
  SharedManager manager(MakeCore(kBlocks, 1), &log);
  auto client = OpenLocalCacheClient(&manager, "test");
  ASSERT_TRUE(RunOne<AddedSequence>(**client, AddSequence{.sequence = SequenceId{1},
                                                          .tokens = std::vector<TokenId>(kBlocks)})
                  .ok());
  const std::vector<Operation> batch(1100, DescribeSequence{.sequence = SequenceId{1}});
  const auto result = (*client)->Execute(batch);
  ASSERT_TRUE(result.ok());
  EXPECT_TRUE(result->results[1048].ok());
  EXPECT_EQ(ReasonOf(result->results[1049].status()), Reason::kBatchTooLarge);
  EXPECT_EQ(ReasonOf(result->results.back().status()), Reason::kBatchTooLarge);
}

// A batch of some milliseconds, in a manager whose clock shows when the batch has the lock.
class LongBatchTest : public ::testing::Test {
 protected:
  static constexpr uint32_t kTokens = 4000;

  LongBatchTest()
      : prompt_(kTokens), manager_(MakeCore(kTokens, 4), &log_, [this] {
          if (absl::Notification* begun = batch_.exchange(nullptr)) begun->Notify();
          return absl::UnixEpoch();
        }) {
    for (uint32_t i = 0; i < kTokens; ++i) prompt_[i] = i;
    session_ = *manager_.OpenSession("test", absl::InfiniteDuration());
    const std::vector<Operation> cache = {
        AddSequence{.sequence = SequenceId{1}, .tokens = prompt_},
        CommitTokens{.sequence = SequenceId{1}, .computed_tokens = kTokens},
        FreeSequence{.sequence = SequenceId{1}}};
    EXPECT_TRUE(manager_.Execute(session_.ref, cache).ok());
  }

  absl::StatusOr<BatchResult> Run() {
    const std::vector<Operation> batch(kMaxBatchOperations, MatchPrefix{.tokens = prompt_});
    return manager_.Execute(session_.ref, batch);
  }

  EventLog log_{{}};
  std::vector<TokenId> prompt_;
  std::atomic<absl::Notification*> batch_ = nullptr;
  SharedManager manager_;
  BlockManager::OpenedSession session_;
};

TEST_F(LongBatchTest, OthersComeBetweenTwoOfItsOperations) {
  std::atomic<bool> stop = false;
  std::atomic<int> looks = 0;
  std::thread other([&] {
    for (; !stop; ++looks) (void)manager_.Read(&BlockManager::Stats);
  });
  // Without fairness at most one call, which waited for the whole batch, would end before it does.
  int most = 0;
  for (int attempt = 0; most < 10 && attempt < 1000; ++attempt) {
    const int before = looks;
    ASSERT_TRUE(Run().ok());
    most = std::max(most, looks - before);
  }
  stop = true;
  other.join();
  EXPECT_GE(most, 10);
}

TEST_F(LongBatchTest, OneThatEndsItsSessionLeavesWhatRan) {
  for (int attempt = 0; attempt < 1000; ++attempt) {
    absl::Notification begun;
    std::thread other([&] {
      begun.WaitForNotification();
      EXPECT_TRUE(manager_.CloseSession(session_.ref).ok());
    });
    batch_ = &begun;
    const auto result = Run();
    other.join();
    ASSERT_TRUE(result.ok());
    ASSERT_EQ(result->results.size(), kMaxBatchOperations);
    EXPECT_TRUE(result->results.front().ok());
    if (!result->results.back().ok()) {
      EXPECT_EQ(ReasonOf(result->results.back().status()), Reason::kStaleSession);
      return;
    }
    session_ = *manager_.OpenSession("test", absl::InfiniteDuration());
  }
  FAIL() << "nobody came between";
}

TEST(SharedManagerTest, OthersComeBetweenTwoStepsOfAReset) {
  constexpr uint32_t kBlocks = 16 * SharedManager::kResetPiece;
  EventLog log({});
  std::atomic<int> looks = 0;
  // Each step asks for the time when it has the lock: this many other calls had ended by then.
  std::vector<int> at_steps;
  SharedManager manager(MakeCore(kBlocks, 1), &log, [&] {
    at_steps.push_back(looks);
    return absl::UnixEpoch();
  });
  const SessionRef session = manager.OpenSession("test", absl::InfiniteDuration())->ref;
  const std::vector<Operation> cache = {
      AddSequence{.sequence = SequenceId{1}, .tokens = std::vector<TokenId>(kBlocks, 7)},
      CommitTokens{.sequence = SequenceId{1}, .computed_tokens = kBlocks},
      FreeSequence{.sequence = SequenceId{1}}};
  std::atomic<bool> stop = false;
  std::thread other([&] {
    for (; !stop; ++looks) (void)manager.Read(&BlockManager::Stats);
  });
  // If the reset ran in one go, at most one other call would end meanwhile.
  int most = 0;
  for (int attempt = 0; most < 10 && attempt < 1000; ++attempt) {
    ASSERT_TRUE(manager.Execute(session, cache).ok());
    at_steps.clear();
    ASSERT_EQ(manager.ResetPrefixCache(), kBlocks);
    ASSERT_GE(at_steps.size(), 16u);
    most = std::max(most, at_steps.back() - at_steps.front());
  }
  stop = true;
  other.join();
  EXPECT_GE(most, 10);
  EXPECT_EQ(manager.Read(&BlockManager::Stats).windows[0].tiers[0].free, kBlocks);
}

TEST(SharedManagerTest, ALocalSessionEndsWithItsClient) {
  EventLog log({});
  SharedManager manager(MakeCore(4, 4), &log);
  {
    auto client = OpenLocalCacheClient(&manager, "test");
    ASSERT_TRUE(RunOne<AllocatedBlocks>(**client, AllocateBlocks{.count = 3}).ok());
    EXPECT_EQ(manager.Read(&BlockManager::Stats).windows[0].tiers[0].active, 3u);
  }
  EXPECT_EQ(manager.Read(&BlockManager::Stats).windows[0].tiers[0].free, 4u);
  EXPECT_EQ(manager.Read(&BlockManager::Stats).sessions, 0u);
}

// Copies that end when a test says so.
class HeldTransfers final : public Carrier {
 public:
  void Submit(absl::Span<const Order> orders) override {
    orders_.insert(orders_.end(), orders.begin(), orders.end());
  }
  const std::vector<Order>& orders() const { return orders_; }

 private:
  std::vector<Order> orders_;
};

// 4 + 4 blocks of 4 tokens, with the two blocks of prompt 1 to 8 cached in the lower tier.
class SharedCopiesTest : public ::testing::Test {
 protected:
  SharedCopiesTest()
      : manager_(*BlockManager::Create(
                     {.layout = TinyLayout(4), .tiers = HostTiers({4}, {4}), .epoch = Epoch{1}}),
                 &log_),
        client_(*OpenLocalCacheClient(&manager_, "test")) {
    const SequenceId id{1};
    const std::vector<Operation> batch = {AddSequence{.sequence = id, .tokens = prompt_},
                                          CommitTokens{.sequence = id, .computed_tokens = 8},
                                          FreeSequence{.sequence = id},
                                          OffloadPrefix{.tokens = prompt_}};
    const auto result = client_->Execute(batch);
    EXPECT_TRUE(result.ok() && result->results.back().ok());
    manager_.SetCarrier({Lane::kMemory}, &transfers_);
  }
  ~SharedCopiesTest() override { manager_.Read(&BlockManager::CheckInvariants); }

  // Adds sequence 2, which has to wait for two copies.
  AddedSequence AddPrompt() {
    std::vector<TokenId> longer = prompt_;
    longer.push_back(9);
    const auto added =
        RunOne<AddedSequence>(*client_, AddSequence{.sequence = SequenceId{2}, .tokens = longer});
    EXPECT_TRUE(added.ok());
    EXPECT_THAT(transfers_.orders(), SizeIs(2));
    return *added;
  }

  const std::vector<TokenId> prompt_ = {1, 2, 3, 4, 5, 6, 7, 8};
  EventLog log_{{}};
  HeldTransfers transfers_;
  SharedManager manager_;
  std::unique_ptr<CacheClient> client_;
};

TEST_F(SharedCopiesTest, WithoutTransfersCopiesAreDoneAtOnce) {
  EXPECT_THAT(transfers_.orders(), IsEmpty());
  EXPECT_EQ(manager_.Read([](const BlockManager& core) { return core.completed_ticket(); }),
            Ticket{2});
  EXPECT_EQ(manager_.Read(&BlockManager::Stats).windows[0].tiers[1].cached, 2u);
}

TEST_F(SharedCopiesTest, AWaitEndsWithItsCopies) {
  const AddedSequence added = AddPrompt();
  EXPECT_EQ(added.ready, transfers_.orders()[1].ticket);
  EXPECT_EQ(manager_.Read([](const BlockManager& core) { return core.completed_ticket(); }),
            Ticket{2});
  std::thread copies([this] {
    for (const Order& order : transfers_.orders()) {
      manager_.Complete(order.lane, order.ticket, absl::OkStatus());
    }
  });
  const auto waited = RunOne<WaitedForTicket>(*client_, WaitForTicket{.ticket = added.ready});
  copies.join();
  ASSERT_TRUE(waited.ok()) << waited.status();
  EXPECT_EQ(waited->completed, added.ready);
}

TEST_F(SharedCopiesTest, ABatchThatDoesNotWaitStopsBeforeItsWait) {
  const auto session = manager_.OpenSession("other", absl::InfiniteDuration());
  const AddedSequence added = AddPrompt();
  const std::vector<Operation> batch = {
      MatchPrefix{.tokens = {1}}, WaitForTicket{.ticket = added.ready}, MatchPrefix{.tokens = {1}}};
  const auto before = manager_.ExecuteUntilWait(session->ref, batch, {});
  ASSERT_TRUE(before.ok());
  EXPECT_THAT(before->results, SizeIs(1));
  for (const Order& order : transfers_.orders()) {
    manager_.Complete(order.lane, order.ticket, absl::OkStatus());
  }
  const auto after =
      manager_.ExecuteUntilWait(session->ref, absl::MakeConstSpan(batch).subspan(1), {});
  ASSERT_TRUE(after.ok());
  EXPECT_THAT(after->results, SizeIs(2));
  EXPECT_TRUE(after->results[0].ok());
}

TEST_F(SharedCopiesTest, WhoAsksIsToldOnceWhenCopiesAreDone) {
  const AddedSequence added = AddPrompt();
  int told = 0;
  manager_.NotifyWhenDone(added.ready, [&told] { ++told; });
  manager_.Complete(Lane::kMemory, transfers_.orders()[1].ticket, absl::OkStatus());
  EXPECT_EQ(told, 0) << "the one before it is not done";
  manager_.Complete(Lane::kMemory, transfers_.orders()[0].ticket, absl::OkStatus());
  EXPECT_EQ(told, 1);
  manager_.NotifyWhenDone(added.ready, [&told] { ++told; });
  EXPECT_EQ(told, 2) << "at once";
}

TEST_F(SharedCopiesTest, ABatchTellsWhatItsSessionLost) {
  AddPrompt();
  manager_.Complete(Lane::kMemory, transfers_.orders()[0].ticket, absl::OkStatus());
  manager_.Complete(Lane::kMemory, transfers_.orders()[1].ticket, absl::DataLossError("planted"));
  EXPECT_EQ(manager_.Read(&BlockManager::revision), log_.last()) << "its event is in the log";
  CommitTokens commit{.sequence = SequenceId{2}, .computed_tokens = 9};
  Operation operation = commit;
  for (int i = 0; i < 2; ++i) {
    const auto told = client_->Execute({&operation, 1});
    ASSERT_TRUE(told.ok());
    EXPECT_EQ(ReasonOf(told->results[0].status()), Reason::kKvLost) << "it does not know yet";
    EXPECT_THAT(told->shortened, ElementsAre(ShortenedSequence{SequenceId{2}, 4, 1}));
  }
  commit.known_losses = 1;
  operation = commit;
  const auto computed = client_->Execute({&operation, 1});
  EXPECT_TRUE(computed->results[0].ok());
  EXPECT_THAT(computed->shortened, IsEmpty());
}

TEST_F(SharedCopiesTest, ABatchWhoseStepsGoBackwardsDoesNotRun) {
  const Operation operation = AllocateBlocks{.count = 1};
  ASSERT_TRUE(client_->Execute({&operation, 1}, {.step = 7, .completed_step = 6}).ok());
  EXPECT_EQ(ReasonOf(client_->Execute({&operation, 1}, {.step = 6, .completed_step = 6}).status()),
            Reason::kStepBackwards);
  EXPECT_EQ(manager_.Read(&BlockManager::Stats).windows[0].tiers[0].active, 1u);
}

}  // namespace
}  // namespace pagoda
