// Pairs of rings without a daemon: waits for copies, limits, tenants, and credentials.
#include "server/ring/ring_hub.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "base/error.h"
#include "manager/accounts/tenants.h"
#include "server/batch/answer_memory.h"
#include "server/callers/tenant_queues.h"
#include "server/config/config.h"
#include "server/ring/ring_poller.h"
#include "tests/server/held_copies.h"
#include "wire/errors.h"
#include "wire/ring/ring_client.h"
#include "wire/ring/ring_memory.h"
#include "wire/ring/ring_wake.h"

namespace pagoda::server {
namespace {

using Outcome = ring::Client::Outcome;

ring::Clock::time_point Long() { return ring::Clock::now() + std::chrono::minutes(1); }
ring::Clock::time_point Soon() { return ring::Clock::now() + std::chrono::milliseconds(50); }

class RingHubTest : public ::testing::Test {
 protected:
  RingHubTest() {
    CacheParts parts;
    parts.manager = &copies_.manager();
    caches_.Add(std::make_shared<const CacheParts>(std::move(parts)));
    state_.Enter(ServingState::Phase::kServing);
  }

  BatchRun::Context ContextOf(TenantId tenant = kDefaultTenant) {
    return {.state = &state_,
            .waiting = &waiting_,
            .answers = &answers_,
            .tenant_queues = &queues_,
            .tenant = tenant,
            .max_message_bytes = 1 << 20,
            .metrics = &metrics_};
  }
  std::unique_ptr<ring::Client> Open(RingHub& hub, SessionRef session,
                                     TenantId tenant = kDefaultTenant) {
    absl::StatusOr<RingHub::Opened> opened = hub.Open(ContextOf(tenant), session, 0);
    EXPECT_TRUE(opened.ok()) << opened.status();
    std::string error;
    auto rings = ring::Client::Open(std::move(opened->memory), std::move(opened->wake),
                                    ring::kVersion, opened->bytes, &error);
    EXPECT_NE(rings, nullptr) << error;
    return rings;
  }
  static std::string WaitThenAllocate(Ticket ticket) {
    v1::SessionRequest request;
    request.set_batch_id(1);
    request.mutable_batch()->add_operations()->mutable_wait_for_ticket()->set_ticket(
        ticket.value());
    request.mutable_batch()->add_operations()->mutable_allocate_blocks()->set_count(1);
    return request.SerializeAsString();
  }
  static std::string Nothing() { return v1::SessionRequest().SerializeAsString(); }
  static Outcome Call(ring::Client& rings, const std::string& request) {
    std::string answer;
    const Outcome sent = rings.Send(request);
    return sent == Outcome::kOk ? rings.Receive(Long(), &answer) : sent;
  }
  static Reason ReasonIn(const std::string& bytes) {
    google::rpc::Status status;
    EXPECT_TRUE(status.ParseFromString(bytes));
    return ReasonOf(StatusFromProto(status));
  }
  static Reason WhyEnded(const ring::Client& rings) { return ReasonIn(rings.reason()); }

  // Rings that this process maps.
  static size_t MappedRings() {
    std::ifstream maps("/proc/self/maps");
    size_t count = 0;
    for (std::string line; std::getline(maps, line);) {
      count += line.find("/memfd:pagoda-rings") != std::string::npos ? 1 : 0;
    }
    return count;
  }
  // Waits for what another thread does.
  template <class Condition>
  static bool Eventually(const Condition& condition) {
    const absl::Time end = absl::Now() + absl::Seconds(60);
    while (absl::Now() < end) {
      if (condition()) return true;
      absl::SleepFor(absl::Milliseconds(1));
    }
    return false;
  }

  HeldCopies copies_;
  const SessionRef session_ = copies_.Open();
  const Ticket ticket_ = copies_.Offload(session_, {1, 2, 3, 4, 5, 6, 7, 8});
  CacheDirectory caches_;
  ServingState state_;
  RpcMetrics metrics_;
  BatchRun::Set waiting_;
  AnswerMemory answers_;
  TenantQueues queues_{{}};
  RingHub hub_{{.pairs = 4}, &caches_, /*num_tenants=*/2, &metrics_};
};

TEST_F(RingHubTest, AWaitHoldsUpItsOwnPairOnly) {
  const auto waiting = Open(hub_, session_);
  const auto other = Open(hub_, copies_.Open());
  std::string answer;
  ASSERT_EQ(waiting->Send(WaitThenAllocate(ticket_)), Outcome::kOk);
  EXPECT_EQ(waiting->Receive(Soon(), &answer), Outcome::kTimeout);
  for (int i = 0; i < 100; ++i) ASSERT_EQ(Call(*other, Nothing()), Outcome::kOk);
  copies_.Finish();
  ASSERT_EQ(waiting->Receive(Long(), &answer), Outcome::kOk);
  v1::SessionResponse response;
  ASSERT_TRUE(response.ParseFromString(answer));
  EXPECT_EQ(response.result().results(0).wait_for_ticket().completed_ticket(), ticket_.value());
  EXPECT_EQ(response.result().results(1).allocate_blocks().blocks().size(), sizeof(BlockHandle));
  // The poller watches the pair again.
  for (int i = 0; i < 100; ++i) ASSERT_EQ(Call(*waiting, Nothing()), Outcome::kOk);
}

TEST_F(RingHubTest, AnEndWaitsForTheBatchUnderWay) {
  const auto rings = Open(hub_, session_);
  std::string answer;
  ASSERT_EQ(rings->Send(WaitThenAllocate(ticket_)), Outcome::kOk);
  EXPECT_EQ(rings->Receive(Soon(), &answer), Outcome::kTimeout);
  hub_.EndIf([](SessionRef) { return MakeError(Reason::kDraining, "test"); });
  EXPECT_EQ(rings->Receive(Soon(), &answer), Outcome::kTimeout);
  EXPECT_EQ(metrics_.open_rings(), 1u);
  copies_.Finish();
  EXPECT_EQ(rings->Receive(Long(), &answer), Outcome::kOk);
  EXPECT_EQ(metrics_.WaitUntilNoneOpen(absl::Seconds(60)), 0u);
  EXPECT_EQ(rings->Send(Nothing()), Outcome::kEnded);
  EXPECT_EQ(WhyEnded(*rings), Reason::kDraining);
}

// A waiting batch holds the lease, like over gRPC.
TEST_F(RingHubTest, TheLeaseDoesNotEndWhileABatchWaitsAndEndsLater) {
  const SessionRef session = copies_.Open(absl::Minutes(10));
  const auto rings = Open(hub_, session);
  std::string answer;
  ASSERT_EQ(rings->Send(WaitThenAllocate(ticket_)), Outcome::kOk);
  EXPECT_TRUE(Eventually([&] { return waiting_.size() == 1; }));
  copies_.PutClockForward(absl::Minutes(30));
  EXPECT_EQ(copies_.manager().ExpireSessions(), 0u);
  copies_.Finish();
  ASSERT_EQ(rings->Receive(Long(), &answer), Outcome::kOk);
  v1::SessionResponse response;
  ASSERT_TRUE(response.ParseFromString(answer));
  EXPECT_EQ(response.result().results(1).allocate_blocks().blocks().size(), sizeof(BlockHandle));
  // The batch's end renewed the lease.
  copies_.PutClockForward(absl::Minutes(9));
  EXPECT_EQ(copies_.manager().ExpireSessions(), 0u);
  copies_.PutClockForward(absl::Minutes(2));
  EXPECT_EQ(copies_.manager().ExpireSessions(), 1u);
  ASSERT_EQ(rings->Send(Nothing()), Outcome::kOk);
  ASSERT_EQ(rings->Receive(Long(), &answer), Outcome::kRefused);
  EXPECT_EQ(ReasonIn(answer), Reason::kStaleSession);
}

TEST_F(RingHubTest, ASessionThatEndsWhileItsBatchWaitsAllocatesNothing) {
  const SessionRef session = copies_.Open(absl::Hours(1));
  const auto rings = Open(hub_, session);
  std::string answer;
  ASSERT_EQ(rings->Send(WaitThenAllocate(ticket_)), Outcome::kOk);
  EXPECT_TRUE(Eventually([&] { return waiting_.size() == 1; }));
  const absl::Status ended = copies_.manager().EndSession(session.id);
  ASSERT_TRUE(ended.ok()) << ended;
  copies_.Finish();
  ASSERT_EQ(rings->Receive(Long(), &answer), Outcome::kOk);
  v1::SessionResponse response;
  ASSERT_TRUE(response.ParseFromString(answer));
  ASSERT_EQ(response.result().results_size(), 2);
  EXPECT_EQ(ReasonOf(StatusFromProto(response.result().results(1).error())), Reason::kStaleSession);
  EXPECT_EQ(copies_.manager().Read(&BlockManager::Stats).windows[0].tiers[0].active, 0u);
}

TEST_F(RingHubTest, ABatchOfASessionThatNeverWasIsRefused) {
  SessionRef never = copies_.Open();
  never.id = SessionId(never.id.value() + 1000);
  const auto rings = Open(hub_, never);
  std::string answer;
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(rings->Send(Nothing()), Outcome::kOk);
    ASSERT_EQ(rings->Receive(Long(), &answer), Outcome::kRefused);
    EXPECT_EQ(ReasonIn(answer), Reason::kUnknownSession);
  }
  // The daemon's sweep ends sessions in the same way.
  hub_.EndIf([&](SessionRef session) {
    return copies_.manager().Read(
        [&](const BlockManager& core) { return core.CheckSession(session); });
  });
  EXPECT_EQ(rings->Send(Nothing()), Outcome::kEnded);
  EXPECT_EQ(WhyEnded(*rings), Reason::kUnknownSession);
}

TEST_F(RingHubTest, AClientThatGoesEndsItsWait) {
  auto rings = Open(hub_, session_);
  std::string answer;
  ASSERT_EQ(rings->Send(WaitThenAllocate(ticket_)), Outcome::kOk);
  EXPECT_EQ(rings->Receive(Soon(), &answer), Outcome::kTimeout);
  rings.reset();
  // The copies never finish. The batch ends, and with it the pair.
  EXPECT_EQ(metrics_.WaitUntilNoneOpen(absl::Seconds(60)), 0u);
}

TEST_F(RingHubTest, StopEndsTheWaitsToo) {
  const auto rings = Open(hub_, session_);
  std::string answer;
  ASSERT_EQ(rings->Send(WaitThenAllocate(ticket_)), Outcome::kOk);
  EXPECT_EQ(rings->Receive(Soon(), &answer), Outcome::kTimeout);
  hub_.Stop(MakeError(Reason::kDraining, "test"));
  EXPECT_EQ(metrics_.open_rings(), 0u);
  EXPECT_EQ(rings->Receive(Long(), &answer), Outcome::kOk) << "the wait's operation failed";
  EXPECT_EQ(ReasonOf(hub_.Open(ContextOf(), session_, 0).status()), Reason::kDraining);
}

TEST_F(RingHubTest, TheBatchesOfATenantRunInTurn) {
  constexpr TenantId kTenant{1};
  constexpr int kPairs = 3;
  constexpr int kBatches = 2000;
  std::vector<std::unique_ptr<ring::Client>> clients;
  for (int i = 0; i < kPairs; ++i) clients.push_back(Open(hub_, copies_.Open(), kTenant));
  // Other work of the tenant runs already, so the first batch runs on the queue's thread.
  absl::Mutex mutex;
  bool runs = false;
  bool go_on = false;
  std::thread first([&] {
    queues_.Run(kTenant, 0, [&] {
      absl::MutexLock lock(&mutex);
      runs = true;
      mutex.Await(absl::Condition(&go_on));
    });
  });
  std::string answer;
  {
    absl::MutexLock lock(&mutex);
    mutex.Await(absl::Condition(&runs));
  }
  EXPECT_EQ(clients[0]->Send(Nothing()), Outcome::kOk);
  EXPECT_EQ(clients[0]->Receive(Soon(), &answer), Outcome::kTimeout);
  {
    absl::MutexLock lock(&mutex);
    go_on = true;
  }
  first.join();
  EXPECT_EQ(clients[0]->Receive(Long(), &answer), Outcome::kOk);
  std::vector<std::thread> threads;
  for (const auto& client : clients) {
    threads.emplace_back([&client] {
      for (int i = 0; i < kBatches; ++i) ASSERT_EQ(Call(*client, Nothing()), Outcome::kOk);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(RingHubTest, ATenantCannotTakeEveryPair) {
  constexpr TenantId kTenant{1};
  // Each holds the client's end: without it the pair ends.
  std::vector<absl::StatusOr<RingHub::Opened>> opened;
  for (int i = 0; i < 5 && (opened.empty() || opened.back().ok()); ++i) {
    opened.push_back(hub_.Open(ContextOf(kTenant), copies_.Open(), 0));
  }
  const absl::Status status = opened.back().status();
  EXPECT_EQ(ReasonOf(status), Reason::kTooManyCalls) << status;
  EXPECT_TRUE(hub_.Open(ContextOf(), session_, 0).ok());
}

TEST_F(RingHubTest, TheMemoryOfAllPairsIsBounded) {
  RingHub hub({.pairs = 100, .bytes = 3 * ring::MemoryBytes(ring::kDefaultBytes)}, &caches_, 1,
              &metrics_);
  std::vector<std::unique_ptr<ring::Client>> clients;
  for (int i = 0; i < 3; ++i) clients.push_back(Open(hub, copies_.Open()));
  EXPECT_TRUE(absl::IsResourceExhausted(hub.Open(ContextOf(), session_, 0).status()));
  clients.pop_back();
  // The memory of the pair that ended can be used again, before the next sweep.
  EXPECT_TRUE(Eventually([&] { return hub.size() == 2; }));
  EXPECT_TRUE(hub.Open(ContextOf(), session_, 0).ok());
}

TEST_F(RingHubTest, ATenantCannotTakeAllTheMemory) {
  constexpr TenantId kTenant{1};
  RingHub hub({.pairs = 100, .bytes = 8 * ring::MemoryBytes(ring::kDefaultBytes)}, &caches_, 2,
              &metrics_);
  std::vector<std::unique_ptr<ring::Client>> clients;
  for (int i = 0; i < 6; ++i) clients.push_back(Open(hub, copies_.Open(), kTenant));
  EXPECT_TRUE(absl::IsResourceExhausted(hub.Open(ContextOf(kTenant), copies_.Open(), 0).status()));
  for (int i = 0; i < 2; ++i) clients.push_back(Open(hub, copies_.Open()));
  EXPECT_TRUE(absl::IsResourceExhausted(hub.Open(ContextOf(), session_, 0).status()));
}

// The threads of the queues are taken, so the long batches cannot run. The poller goes on.
TEST_F(RingHubTest, ALongBatchHoldsUpItsOwnPairOnly) {
  absl::Mutex mutex;
  size_t held = 0;
  bool go_on = false;
  const size_t threads = queues_.num_threads();
  for (size_t i = 0; i < threads; ++i) {
    queues_.RunLater(TenantId{static_cast<uint16_t>(100 + i)}, 0, [&] {
      absl::MutexLock lock(&mutex);
      ++held;
      mutex.Await(absl::Condition(&go_on));
    });
  }
  EXPECT_TRUE(Eventually([&] {
    absl::MutexLock lock(&mutex);
    return held == threads;
  }));
  const auto large = Open(hub_, session_);
  const auto many = Open(hub_, copies_.Open());
  const auto other = Open(hub_, copies_.Open());
  v1::SessionRequest request;
  for (int i = 0; i < 40'000; ++i) {
    if (i == 0) request.mutable_batch()->add_operations()->mutable_match_prefix();
    request.mutable_batch()->mutable_operations(0)->mutable_match_prefix()->add_tokens(i);
  }
  ASSERT_EQ(large->Send(request.SerializeAsString()), Outcome::kOk);
  request.Clear();
  for (int i = 0; i < 4096; ++i) {
    request.mutable_batch()->add_operations()->mutable_allocate_blocks();
  }
  const std::string of_many = request.SerializeAsString();
  EXPECT_LT(of_many.size(), 32u << 10);
  ASSERT_EQ(many->Send(of_many), Outcome::kOk);
  for (int i = 0; i < 100; ++i) ASSERT_EQ(Call(*other, Nothing()), Outcome::kOk);
  std::string answer;
  EXPECT_EQ(large->Receive(Soon(), &answer), Outcome::kTimeout);
  EXPECT_EQ(many->Receive(Soon(), &answer), Outcome::kTimeout);
  {
    absl::MutexLock lock(&mutex);
    go_on = true;
  }
  EXPECT_EQ(large->Receive(Long(), &answer), Outcome::kOk);
  const Outcome outcome = many->Receive(Long(), &answer);
  EXPECT_TRUE(outcome == Outcome::kOk || outcome == Outcome::kAnswerTooLarge);
  EXPECT_EQ(Call(*large, Nothing()), Outcome::kOk);
  EXPECT_EQ(Call(*many, Nothing()), Outcome::kOk);
}

TEST_F(RingHubTest, ALargeRequestIsTheLargestThatIsGiven) {
  const auto opened = hub_.Open(ContextOf(), session_, 0xffffffff);
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(opened->bytes, ring::kMaxBytes);
  EXPECT_EQ(hub_.Open(ContextOf(), session_, 5000)->bytes, 8192u);
}

TEST_F(RingHubTest, TooManyPartsAreRefusedAndThePairGoesOn) {
  const auto rings = Open(hub_, session_);
  v1::SessionRequest request;
  auto* const ranges =
      request.mutable_batch()->add_operations()->mutable_add_sequence()->mutable_retention();
  for (int i = 0; i < 65'537; ++i) ranges->Add();
  ASSERT_EQ(rings->Send(request.SerializeAsString()), Outcome::kOk);
  std::string refusal;
  ASSERT_EQ(rings->Receive(Long(), &refusal), Outcome::kRefused);
  EXPECT_EQ(ReasonIn(refusal), Reason::kInvalidArgument);
  EXPECT_EQ(Call(*rings, Nothing()), Outcome::kOk);
}

TEST_F(RingHubTest, AMessageThatIsNoneEndsThePairAndOneAboveTheLimitIsRefused) {
  const auto rings = Open(hub_, session_);
  EXPECT_EQ(Call(*rings, "\xff\xff\xff"), Outcome::kEnded);
  EXPECT_EQ(WhyEnded(*rings), Reason::kInvalidArgument);
  BatchRun::Context context = ContextOf();
  context.max_message_bytes = 100;
  absl::StatusOr<RingHub::Opened> opened = hub_.Open(context, session_, 0);
  ASSERT_TRUE(opened.ok());
  std::string error;
  const auto small = ring::Client::Open(std::move(opened->memory), std::move(opened->wake),
                                        ring::kVersion, opened->bytes, &error);
  std::string refusal;
  ASSERT_EQ(small->Send(std::string(200, 'x')), Outcome::kOk);
  EXPECT_EQ(small->Receive(Long(), &refusal), Outcome::kRefused);
  EXPECT_EQ(ReasonIn(refusal), Reason::kMessageTooLarge);
  EXPECT_EQ(Call(*small, Nothing()), Outcome::kOk);
}

TEST_F(RingHubTest, ManyPairsShareAPoller) {
  RingHub hub({.pairs = 100}, &caches_, 2, &metrics_);
  std::vector<std::unique_ptr<ring::Client>> clients;
  for (int i = 0; i < 40; ++i) clients.push_back(Open(hub, copies_.Open()));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&clients, t] {
      for (int i = 0; i < 4000; ++i) {
        ASSERT_EQ(Call(*clients[static_cast<size_t>(t + 4 * (i % 10))], Nothing()), Outcome::kOk);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// News can arrive when the poller ends, and after it.
TEST_F(RingHubTest, AnInboxThatIsClosedKeepsNoPair) {
  const auto inbox = std::make_shared<RingInbox>(*EventPoll::Create());
  const auto make = [&] {
    FileDescriptor memory_fd, own, others;
    auto memory = ring::Memory::Create(ring::kDefaultBytes, &memory_fd);
    EXPECT_TRUE(ring::MakeWakeSockets(&own, &others));
    auto pair = std::make_shared<RingPair>(ContextOf(), &caches_, session_, std::move(memory),
                                           std::move(own), &metrics_,
                                           StreamSlots::Slot(nullptr, kDefaultTenant));
    pair->JoinPoller(inbox);
    pair->End(absl::OkStatus());
    return pair;
  };
  std::weak_ptr<RingPair> before, after;
  {
    const auto pair = make();
    before = pair;
    inbox->Put(RingInbox::News::kBatchDone, pair);
  }
  EXPECT_FALSE(before.expired());
  inbox->Close();
  EXPECT_TRUE(before.expired());
  {
    const auto pair = make();
    after = pair;
    inbox->Put(RingInbox::News::kBatchDone, pair);
  }
  EXPECT_TRUE(after.expired());
}

// In most rounds the hub ends before its poller has seen the pair.
TEST_F(RingHubTest, NoPairOutlivesItsHub) {
  for (int round = 0; round < 50; ++round) {
    RingHub hub({.pairs = 4}, &caches_, 2, &metrics_);
    ASSERT_TRUE(hub.Open(ContextOf(), session_, 0).ok());
  }
  EXPECT_EQ(MappedRings(), 0u);
  {
    RingHub hub({.pairs = 4}, &caches_, 2, &metrics_);
    auto rings = Open(hub, session_);
    ASSERT_EQ(rings->Send(WaitThenAllocate(ticket_)), Outcome::kOk);
    EXPECT_TRUE(Eventually([&] { return waiting_.size() == 1; }));
    rings.reset();
  }
  EXPECT_TRUE(Eventually([&] { return MappedRings() == 0; }));
}

TEST_F(RingHubTest, PairsAreNoCallsButADrainWaitsForThem) {
  const auto first = Open(hub_, session_);
  const auto second = Open(hub_, copies_.Open());
  EXPECT_EQ(metrics_.open_rings(), 2u);
  EXPECT_EQ(metrics_.open_calls().all(), 0u) << "admission counts these";
  EXPECT_EQ(metrics_.WaitUntilNoneOpen(absl::ZeroDuration()), 2u);
  hub_.EndIf([](SessionRef) { return MakeError(Reason::kDraining, "test"); });
  EXPECT_EQ(metrics_.WaitUntilNoneOpen(absl::Seconds(60)), 0u);
  for (const prometheus::MetricFamily& family : metrics_.Collect()) {
    if (family.name != "pagoda_grpc_requests_total") continue;
    for (const prometheus::ClientMetric& sample : family.metric) {
      EXPECT_EQ(sample.counter.value, 0) << sample.label[0].value;
    }
  }
}

TEST_F(RingHubTest, AnAnsweredBatchIsCounted) {
  const auto counted = [&] {
    for (const prometheus::MetricFamily& family : metrics_.Collect()) {
      if (family.name == "pagoda_ring_batches_total") return family.metric[0].counter.value;
    }
    return -1.0;
  };
  const auto rings = Open(hub_, session_);
  for (int i = 1; i <= 1000; ++i) {
    ASSERT_EQ(Call(*rings, Nothing()), Outcome::kOk);
    ASSERT_EQ(counted(), i);
  }
}

// No address space has room for the stack of a further thread.
TEST_F(RingHubTest, WithoutAThreadThereIsNoPair) {
  pthread_attr_t usual, huge;
  ASSERT_EQ(pthread_getattr_default_np(&usual), 0);
  ASSERT_EQ(pthread_attr_init(&huge), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&huge, size_t{1} << 47), 0);
  ASSERT_EQ(pthread_setattr_default_np(&huge), 0);
  const absl::Status status = hub_.Open(ContextOf(), session_, 0).status();
  ASSERT_EQ(pthread_setattr_default_np(&usual), 0);
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_EQ(hub_.size(), 0u);
  EXPECT_EQ(Call(*Open(hub_, session_), Nothing()), Outcome::kOk);
}

}  // namespace
}  // namespace pagoda::server
