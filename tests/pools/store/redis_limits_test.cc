// Bounds of a store, its options and its end; and one connection alone.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "pools/store/address_resolver.h"
#include "pools/store/redis_connection.h"
#include "pools/store/redis_store.h"
#include "tests/pools/store/faulty_store.h"
#include "tests/pools/store/resp_client.h"
#include "tests/pools/store/scripted_server.h"
#include "tests/pools/store/store_blocks.h"

namespace pagoda {
namespace {

using testing::Each;
using testing::ElementsAre;

// --- One connection ---

class NoOwner : public RedisConnection::Owner {
 public:
  void OnReady(RedisConnection&) override {}
  void OnReply(RedisConnection&, std::unique_ptr<RedisCall>) override {}
  void OnClose(RedisConnection&) override {}
};

std::unique_ptr<RedisCall> PutCall(RedisBatch* batch, absl::Span<const std::byte> bytes) {
  auto call = std::make_unique<RedisCall>();
  call->command = RedisCommand::kPut;
  call->batch = batch;
  call->head = "*1\r\n$8\r\nNOTHING!\r\n";
  call->pieces = {bytes};
  return call;
}

TEST(RedisConnectionTest, AbandonedPutsAreDroppedAloneUnlessTheyHaveBegun) {
  // The server reads nothing after the set-up.
  ScriptedServer server([](const auto&, ScriptedPeer&) {
    absl::SleepFor(absl::Milliseconds(500));
    return true;
  });
  const RedisOptions options;
  NoOwner owner;
  RedisConnection connection(options, server.address(), false, owner);
  connection.Connect(*AddressResolver::Parse(server.address()), nullptr, "", absl::Now());
  const auto run = [&] {
    pollfd wait = {.fd = connection.fd(), .events = POLLIN | POLLOUT, .revents = 0};
    poll(&wait, 1, 100);
    connection.Handle(absl::Now());
  };
  while (!connection.is_ready()) run();
  const std::vector<std::byte> large(64 << 20), small(1000);
  auto* const batch = reinterpret_cast<RedisBatch*>(&owner);  // Never read.
  std::vector<RedisCall*> calls;
  for (const std::vector<std::byte>* bytes : {&large, &small, &small}) {
    std::unique_ptr<RedisCall> call = PutCall(batch, *bytes);
    calls.push_back(call.get());
    connection.Send(std::move(call), absl::Now());
  }
  connection.Flush();
  EXPECT_TRUE(connection.wants_write()) << "the large one is not sent";
  calls[1]->batch = nullptr;
  connection.Abandon(*calls[1]);
  EXPECT_EQ(connection.in_flight(), 2u);
  EXPECT_TRUE(connection.is_ready());
  calls[0]->batch = nullptr;
  connection.Abandon(*calls[0]);
  EXPECT_EQ(connection.state(), RedisConnection::State::kClosed) << "a part of it was sent";
  const std::vector<std::unique_ptr<RedisCall>> left = connection.TakeCalls();
  EXPECT_EQ(left.size(), 2u);
  EXPECT_EQ(left[1].get(), calls[2]);
}

// --- Bounds and ends ---

TEST(RedisLimitsTest, MoreThanTheBoundIsRefusedAtOnce) {
  ScriptedServer server([&](const auto&, ScriptedPeer&) { return true; });
  RedisOptions options;
  options.max_waiting = 10;
  const auto store = StoreAt(server.address(), options);
  Waiter first;
  store->Exists(std::vector<StoreKey>(8), kTimeout, first.done());
  EXPECT_THAT(ExistsAndWait(*store, {1, 2, 3}, absl::Minutes(1)), Each(StoreOutcome::kOverloaded));
  EXPECT_EQ(store->stats().waiting, 8u);
  EXPECT_THAT(first.Wait(), Each(StoreOutcome::kTimedOut));
  EXPECT_EQ(store->stats().exists[static_cast<size_t>(StoreOutcome::kOverloaded)], 3u);
  EXPECT_THAT(ExistsAndWait(*store, {1, 2, 3}, kTimeout), Each(StoreOutcome::kTimedOut))
      << "there is room again";
}

TEST(RedisLimitsTest, AnEmptyBatchEndsAtOnce) {
  const auto store = StoreAt({"127.0.0.1", FreePort()});
  EXPECT_TRUE(GetAndWait(*store, {}, kBytes, absl::ZeroDuration()).outcomes.empty());
}

TEST(RedisLimitsTest, ADeadlineInThePastEnds) {
  ScriptedServer server(
      [&](const auto&, ScriptedPeer& peer) { return peer.Send(Bulk(ValueOf(1))); });
  const auto store = StoreAt(server.address());
  EXPECT_THAT(GetAndWait(*store, {1}, kBytes, -absl::Seconds(1)).outcomes,
              ElementsAre(StoreOutcome::kTimedOut));
}

TEST(RedisLimitsTest, StopEndsEverything) {
  ScriptedServer server([&](const auto&, ScriptedPeer&) { return true; });
  const auto store = StoreAt(server.address());
  Waiter waiter;
  std::vector<std::byte> block(kBytes);
  store->Get({{TestKey(1), {absl::MakeSpan(block)}}}, absl::Hours(1), waiter.done());
  absl::SleepFor(absl::Milliseconds(50));
  store->Stop();
  ASSERT_TRUE(waiter.is_done());
  EXPECT_THAT(waiter.Wait(), ElementsAre(StoreOutcome::kCancelled));
  EXPECT_THAT(ExistsAndWait(*store, {1, 2}, absl::Hours(1)), Each(StoreOutcome::kCancelled));
  store->Stop();
  EXPECT_EQ(store->stats().exists[static_cast<size_t>(StoreOutcome::kCancelled)], 2u);
}

TEST(RedisLimitsTest, ADoneCanBeginTheNextBatch) {
  ScriptedServer server([&](const auto&, ScriptedPeer& peer) { return peer.Send(":1\r\n"); });
  const auto store = StoreAt(server.address());
  absl::Notification end;
  std::function<void(int)> next = [&](int left) {
    if (left == 0) return end.Notify();
    store->Exists({TestKey(1)}, absl::Seconds(10), [&, left](const Outcomes& outcomes) {
      EXPECT_THAT(outcomes, ElementsAre(StoreOutcome::kOk));
      next(left - 1);
    });
  };
  next(1000);
  end.WaitForNotification();
}

TEST(RedisLimitsTest, BadOptionsAreNamed) {
  RedisOptions none;
  EXPECT_EQ(RedisStore::Create(none).status().code(), absl::StatusCode::kInvalidArgument);
  RedisOptions options;
  options.seeds = {{"127.0.0.1", 1}};
  const auto refused = [&options](auto change) {
    RedisOptions changed = options;
    change(changed);
    return RedisStore::Create(changed).status().code() == absl::StatusCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused([](RedisOptions& o) { o.pipeline = 0; }));
  EXPECT_TRUE(refused([](RedisOptions& o) { o.connections_per_node = 65; }));
  EXPECT_TRUE(refused([](RedisOptions& o) { o.max_waiting = 0; }));
  EXPECT_TRUE(refused([](RedisOptions& o) { o.stall_timeout = absl::ZeroDuration(); }));
  EXPECT_TRUE(refused([](RedisOptions& o) { o.password = o.password_file = "x"; }));
  EXPECT_TRUE(refused([](RedisOptions& o) { o.tls = {true, "/no/such/file", "", ""}; }));
  EXPECT_TRUE(refused([](RedisOptions& o) { o.tls = {true, "", "/no/such/file", ""}; }));
}

TEST(RedisLimitsTest, APasswordFileThatIsMissingIsAMiss) {
  ScriptedServer server([&](const auto&, ScriptedPeer& peer) { return peer.Send("+OK\r\n"); });
  RedisOptions options;
  options.password_file = "/no/such/file";
  const auto store = StoreAt(server.address(), options);
  ExpectGet(*store, StoreOutcome::kUnreachable);
  EXPECT_THAT(store->stats().last_error, testing::HasSubstr("/no/such/file"));
}

}  // namespace
}  // namespace pagoda
