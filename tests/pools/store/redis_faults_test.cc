// A store whose server fails in each way that a script can have: every batch ends by its deadline,
// as a miss, and its memory is left alone afterwards.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "pools/store/redis_store.h"
#include "pools/store/stored_value.h"
#include "tests/pools/store/resp_client.h"
#include "tests/pools/store/scripted_server.h"
#include "tests/pools/store/store_blocks.h"

namespace pagoda {
namespace {

using testing::Each;
using testing::ElementsAre;

constexpr size_t kBytes = 100'000;
constexpr absl::Duration kTimeout = absl::Milliseconds(300);
constexpr absl::Duration kMargin = absl::Seconds(2);  // Of a busy machine.

std::unique_ptr<RedisStore> StoreAt(RedisAddress address, RedisOptions options = {}) {
  options.seeds = {std::move(address)};
  absl::StatusOr<std::unique_ptr<RedisStore>> store = RedisStore::Create(std::move(options));
  EXPECT_TRUE(store.ok()) << store.status();
  return *std::move(store);
}

std::string ValueOf(uint32_t number, size_t size = kBytes) {
  const std::vector<std::byte> block = TestBlock(number, size);
  const absl::Span<const std::byte> pieces[] = {block};
  const StoredHeader header = MakeStoredHeader(TestKey(number), "", pieces);
  std::string value(reinterpret_cast<const char*>(header.data()), header.size());
  value.append(reinterpret_cast<const char*>(block.data()), block.size());
  return value;
}

std::string Bulk(const std::string& value) {
  return absl::StrCat("$", value.size(), "\r\n", value, "\r\n");
}

// A get of one key ends with an outcome, in time.
void ExpectGet(RedisStore& store, StoreOutcome expected, uint32_t number = 1) {
  const absl::Time start = absl::Now();
  const GotBlocks got = GetAndWait(store, {number}, kBytes, kTimeout);
  EXPECT_LT(absl::Now() - start, kTimeout + kMargin);
  EXPECT_THAT(got.outcomes, ElementsAre(expected))
      << StoreOutcomeName(got.outcomes[0]) << "; " << store.stats().last_error;
  EXPECT_TRUE(got.AreRight({number}));
}

// --- What a server answers ---

TEST(RedisFaultsTest, ErrorsAreMissesAndAreReported) {
  std::string error;
  ScriptedServer server([&](const auto&, ScriptedPeer& peer) { return peer.Send(error); });
  const auto store = StoreAt(server.address());
  for (const char* reply :
       {"-WRONGTYPE Operation against a key\r\n", "-OOM command not allowed\r\n", "-READONLY\r\n",
        "-NOAUTH Authentication required.\r\n", "-NOPERM no\r\n", "-LOADING\r\n",
        "-CLUSTERDOWN The cluster is down\r\n", "-TRYAGAIN\r\n", "-ERR max number of clients\r\n",
        ":1\r\n", "+OK\r\n", "*0\r\n"}) {
    error = reply;
    ExpectGet(*store, StoreOutcome::kRefused);
    if (error[0] == '-') {
      EXPECT_EQ(store->stats().last_error, error.substr(1, error.size() - 3));
    }
    if (error != "+OK\r\n") {
      EXPECT_THAT(PutAndWait(*store, {1}, kBytes, kTimeout), ElementsAre(StoreOutcome::kRefused))
          << reply;
    }
  }
  EXPECT_EQ(store->stats().gets[static_cast<size_t>(StoreOutcome::kRefused)], 12u);
  EXPECT_EQ(store->stats().disconnects, 0u) << "an error reply is no reason to connect again";
}

TEST(RedisFaultsTest, BadValuesAreNotServed) {
  std::string value;
  ScriptedServer server([&](const auto&, ScriptedPeer& peer) { return peer.Send(Bulk(value)); });
  const auto store = StoreAt(server.address());
  value = ValueOf(1);
  ExpectGet(*store, StoreOutcome::kOk);
  const std::vector<std::pair<std::string, ValueFault>> bad = {
      {ValueOf(2), ValueFault::kSwapped},
      {ValueOf(1, kBytes - 1), ValueFault::kTruncated},
      {ValueOf(1).substr(0, 5000), ValueFault::kTruncated},
      {ValueOf(1) + "more", ValueFault::kTruncated},
      {std::string(kBytes + kStoredHeaderBytes, 'x'), ValueFault::kForeign},
      {"", ValueFault::kForeign},
      {"hello", ValueFault::kForeign}};
  for (const auto& [bytes, fault] : bad) {
    value = bytes;
    const uint64_t before = store->stats().faults[static_cast<size_t>(fault)];
    ExpectGet(*store, StoreOutcome::kInvalid);
    EXPECT_EQ(store->stats().faults[static_cast<size_t>(fault)], before + 1)
        << ValueFaultName(fault);
  }
  value = ValueOf(1);
  value[70'000] ^= 1;
  ExpectGet(*store, StoreOutcome::kInvalid);
  EXPECT_EQ(store->stats().faults[static_cast<size_t>(ValueFault::kDamaged)], 1u);
  value = ValueOf(1);
  ExpectGet(*store, StoreOutcome::kOk);
  EXPECT_EQ(store->stats().connects, 1u) << "the connection stays in step with the replies";
}

TEST(RedisFaultsTest, BytesThatAreNotRespEndTheConnection) {
  std::string reply;
  ScriptedServer server([&](const auto&, ScriptedPeer& peer) { return peer.Send(reply); });
  for (const std::string bytes : {"HTTP/1.1 400 Bad Request\r\n\r\n", "$x\r\n", "$5\r\nhelloXX",
                                  "$600000000\r\n", "*99999999\r\n"}) {
    reply = bytes;
    const auto store = StoreAt(server.address());
    const GotBlocks got = GetAndWait(*store, {1}, kBytes, kTimeout);
    EXPECT_NE(got.outcomes[0], StoreOutcome::kOk) << bytes;
    EXPECT_GT(store->stats().disconnects, 0u) << bytes;
  }
}

TEST(RedisFaultsTest, RepliesToNothingEndTheConnection) {
  ScriptedServer server([&](const auto&, ScriptedPeer& peer) {
    return peer.Send(absl::StrCat(Bulk(ValueOf(1)), Bulk(ValueOf(2))));
  });
  const auto store = StoreAt(server.address());
  ExpectGet(*store, StoreOutcome::kOk);
  for (int i = 0; i < 200 && store->stats().disconnects == 0; ++i)
    absl::SleepFor(absl::Milliseconds(10));
  EXPECT_GT(store->stats().disconnects, 0u) << "else every later reply belongs to another command";
}

TEST(RedisFaultsTest, MovesInACircleEnd) {
  ScriptedServer server([&](const auto&, ScriptedPeer& peer) {
    return peer.Send(absl::StrCat("-MOVED 1 :", peer.port(), "\r\n"));
  });
  const auto store = StoreAt(server.address());
  ExpectGet(*store, StoreOutcome::kUnreachable);
  EXPECT_EQ(store->stats().redirections, 6u);
}

TEST(RedisFaultsTest, AskingComesBeforeARedirectedCommand) {
  absl::Mutex mutex;
  std::vector<std::string> seen;
  ScriptedServer target([&](const auto& command, ScriptedPeer& peer) {
    absl::MutexLock lock(&mutex);
    seen.push_back(command[0]);
    return peer.Send(command[0] == "ASKING" ? "+OK\r\n" : Bulk(ValueOf(1)));
  });
  std::atomic<int> asked = 0;
  ScriptedServer server([&](const auto&, ScriptedPeer& peer) {
    ++asked;
    return peer.Send(absl::StrCat("-ASK 1 127.0.0.1:", target.address().port, "\r\n"));
  });
  const auto store = StoreAt(server.address());
  ExpectGet(*store, StoreOutcome::kOk);
  ExpectGet(*store, StoreOutcome::kOk);
  EXPECT_EQ(asked, 2) << "ASK is for one command only";
  absl::MutexLock lock(&mutex);
  EXPECT_THAT(seen, ElementsAre("ASKING", "GET", "ASKING", "GET"));
}

// --- How a server fails ---

TEST(RedisFaultsTest, RefusedConnections) {
  const auto store = StoreAt({"127.0.0.1", FreePort()});
  ExpectGet(*store, StoreOutcome::kUnreachable);
  EXPECT_THAT(PutAndWait(*store, {1, 2}, kBytes, kTimeout), Each(StoreOutcome::kUnreachable));
  EXPECT_THAT(ExistsAndWait(*store, {1}, kTimeout), Each(StoreOutcome::kUnreachable));
  const absl::Time start = absl::Now();
  for (int i = 0; i < 100; ++i) ExpectGet(*store, StoreOutcome::kUnreachable);
  EXPECT_LT(absl::Now() - start, absl::Seconds(2)) << "nothing waits for a server that is down";
  EXPECT_THAT(store->stats().last_error, testing::HasSubstr("refused"));
}

TEST(RedisFaultsTest, AServerThatComesLaterIsFound) {
  const uint16_t port = FreePort();
  RedisOptions options;
  options.max_backoff = absl::Milliseconds(200);
  const auto store = StoreAt({"127.0.0.1", port}, options);
  ExpectGet(*store, StoreOutcome::kUnreachable);
  ScriptedServer server(
      [&](const auto&, ScriptedPeer& peer) { return peer.Send(Bulk(ValueOf(1))); }, port);
  absl::SleepFor(absl::Seconds(1));
  ExpectGet(*store, StoreOutcome::kOk);
}

TEST(RedisFaultsTest, NamesThatDoNotExist) {
  const auto store = StoreAt({"no-such-host.invalid", 6379});
  const absl::Time start = absl::Now();
  const GotBlocks got = GetAndWait(*store, {1}, kBytes, kTimeout);
  EXPECT_LT(absl::Now() - start, kTimeout + kMargin);
  EXPECT_TRUE(got.outcomes[0] == StoreOutcome::kUnreachable ||
              got.outcomes[0] == StoreOutcome::kTimedOut);
}

TEST(RedisFaultsTest, NamesAreLookedUp) {
  ScriptedServer server(
      [&](const auto&, ScriptedPeer& peer) { return peer.Send(Bulk(ValueOf(1))); });
  // The name can have an IPv6 address too, on which nothing listens.
  const auto store = StoreAt({"localhost", server.address().port});
  StoreOutcome outcome = StoreOutcome::kUnreachable;
  for (int i = 0; i < 50 && outcome != StoreOutcome::kOk; ++i) {
    outcome = GetAndWait(*store, {1}, kBytes, kTimeout).outcomes[0];
    absl::SleepFor(absl::Milliseconds(20));
  }
  EXPECT_EQ(outcome, StoreOutcome::kOk);
}

TEST(RedisFaultsTest, AResetConnectionIsAMissOrIsTriedAgain) {
  std::atomic<int> resets = 3;
  ScriptedServer server([&](const auto&, ScriptedPeer& peer) {
    if (resets-- > 0) {
      peer.Reset();
      return false;
    }
    return peer.Send(Bulk(ValueOf(1)));
  });
  const auto store = StoreAt(server.address());
  ExpectGet(*store, StoreOutcome::kOk);
  EXPECT_EQ(store->stats().disconnects, 3u);
  resets = 1000;
  ExpectGet(*store, StoreOutcome::kUnreachable);
}

TEST(RedisFaultsTest, AHalfSentValueIsTriedAgain) {
  std::atomic<int> halves = 2;
  ScriptedServer server([&](const auto&, ScriptedPeer& peer) {
    const std::string reply = Bulk(ValueOf(1));
    if (halves-- > 0) {
      peer.Send(reply.substr(0, halves == 1 ? 60'000 : 70));
      return false;
    }
    return peer.Send(reply);
  });
  const auto store = StoreAt(server.address());
  ExpectGet(*store, StoreOutcome::kOk);
}

TEST(RedisFaultsTest, ASilentServerCostsTheDeadlineAndThenNothing) {
  ScriptedServer server([&](const auto&, ScriptedPeer&) { return true; });
  RedisOptions options;
  options.stall_timeout = absl::Milliseconds(600);
  options.connect_timeout = absl::Milliseconds(600);
  const auto store = StoreAt(server.address(), options);
  ExpectGet(*store, StoreOutcome::kTimedOut);
  for (int i = 0; i < 500 && store->stats().disconnects == 0; ++i)
    absl::SleepFor(absl::Milliseconds(10));
  EXPECT_GT(store->stats().disconnects, 0u) << "a connection that gives no reply is closed";
}

TEST(RedisFaultsTest, ASlowDripIsAMissAndItsConnectionEnds) {
  std::unique_ptr<ScriptedServer> server;
  const std::atomic<bool>* stopping = nullptr;
  server = std::make_unique<ScriptedServer>([&](const auto&, ScriptedPeer& peer) {
    peer.SendSlowly(Bulk(ValueOf(1)), 5, *stopping);
    return true;
  });
  stopping = &server->stopping();
  RedisOptions options;
  options.stall_timeout = absl::Milliseconds(500);
  const auto store = StoreAt(server->address(), options);
  ExpectGet(*store, StoreOutcome::kTimedOut);
  for (int i = 0; i < 500 && store->stats().disconnects == 0; ++i)
    absl::SleepFor(absl::Milliseconds(10));
  EXPECT_GT(store->stats().disconnects, 0u) << "bytes alone do not keep a connection";
}

TEST(RedisFaultsTest, MemoryIsNotWrittenAfterTheReport) {
  std::atomic<bool> go_on = false;
  ScriptedServer server([&](const auto&, ScriptedPeer& peer) {
    const std::string reply = Bulk(ValueOf(1));
    if (!peer.Send(reply.substr(0, 50'000))) return false;
    while (!go_on) absl::SleepFor(absl::Milliseconds(1));
    return peer.Send(reply.substr(50'000));
  });
  const auto store = StoreAt(server.address());
  std::vector<std::byte> block(kBytes);
  Waiter waiter;
  store->Get({{TestKey(1), {absl::MakeSpan(block)}}}, kTimeout, waiter.done());
  EXPECT_THAT(waiter.Wait(), ElementsAre(StoreOutcome::kTimedOut));
  EXPECT_NE(block[1000], std::byte{0}) << "a part had arrived";
  std::fill(block.begin(), block.end(), std::byte{0xee});
  go_on = true;
  ExpectGet(*store,
            StoreOutcome::kOk);  // On the same connection, after the rest of the first value.
  EXPECT_THAT(block, Each(std::byte{0xee}));
  EXPECT_EQ(store->stats().connects, 1u);
}

TEST(RedisFaultsTest, MemoryIsNotReadAfterTheReport) {
  // The server reads nothing while the script sleeps, so most of the value cannot be sent.
  std::atomic<bool> go_on = false;
  std::atomic<size_t> longest = 0;
  ScriptedServer server([&](const auto& command, ScriptedPeer& peer) {
    if (command[0] == "EXISTS") {
      while (!go_on) absl::SleepFor(absl::Milliseconds(1));
      return peer.Send(":0\r\n");
    }
    if (command[0] == "SET" && command[2].size() > longest) longest = command[2].size();
    return peer.Send("+OK\r\n");
  });
  RedisOptions options;
  options.connections_per_node = 1;
  const auto store = StoreAt(server.address(), options);
  Waiter first;
  store->Exists({TestKey(9)}, absl::Seconds(10), first.done());
  constexpr size_t kLarge = 32 << 20;
  auto block = std::make_unique<std::vector<std::byte>>(TestBlock(1, kLarge));
  Waiter waiter;
  store->Put({{TestKey(1), {absl::MakeConstSpan(*block)}}}, absl::Minutes(1), kTimeout,
             waiter.done());
  EXPECT_THAT(waiter.Wait(), ElementsAre(StoreOutcome::kTimedOut));
  block.reset();  // A later read of it would end the process, with this size.
  go_on = true;
  first.Wait();
  EXPECT_THAT(PutAndWait(*store, {2}, kBytes, absl::Seconds(5)), ElementsAre(StoreOutcome::kOk));
  EXPECT_EQ(longest, kBytes + kStoredHeaderBytes) << "the first value never arrived whole";
}

TEST(RedisFaultsTest, PutsThatWaitBehindAnotherAreDroppedAlone) {
  std::atomic<bool> go_on = false;
  ScriptedServer server([&](const auto& command, ScriptedPeer& peer) {
    while (command[0] == "SET" && !go_on) absl::SleepFor(absl::Milliseconds(1));
    return peer.Send(command[0] == "SET" ? "+OK\r\n" : "$-1\r\n");
  });
  RedisOptions options;
  options.connections_per_node = 1;
  const auto store = StoreAt(server.address(), options);
  const std::vector<std::byte> block = TestBlock(1, 16 << 20);
  const absl::Span<const std::byte> whole = block;
  Waiter slow, quick;
  store->Put({{TestKey(1), {whole}}}, absl::Minutes(1), absl::Seconds(20), slow.done());
  store->Put({{TestKey(2), {whole.first(1000)}}, {TestKey(3), {whole.first(1000)}}},
             absl::Minutes(1), kTimeout, quick.done());
  EXPECT_THAT(quick.Wait(), Each(StoreOutcome::kTimedOut));
  EXPECT_FALSE(slow.is_done());
  go_on = true;
  EXPECT_THAT(slow.Wait(), ElementsAre(StoreOutcome::kOk));
}

// --- Bounds and ends ---

TEST(RedisFaultsTest, MoreThanTheBoundIsRefusedAtOnce) {
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

TEST(RedisFaultsTest, AnEmptyBatchEndsAtOnce) {
  const auto store = StoreAt({"127.0.0.1", FreePort()});
  EXPECT_TRUE(GetAndWait(*store, {}, kBytes, absl::ZeroDuration()).outcomes.empty());
}

TEST(RedisFaultsTest, ADeadlineInThePastEnds) {
  ScriptedServer server(
      [&](const auto&, ScriptedPeer& peer) { return peer.Send(Bulk(ValueOf(1))); });
  const auto store = StoreAt(server.address());
  EXPECT_THAT(GetAndWait(*store, {1}, kBytes, -absl::Seconds(1)).outcomes,
              ElementsAre(StoreOutcome::kTimedOut));
}

TEST(RedisFaultsTest, StopEndsEverything) {
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

TEST(RedisFaultsTest, ADoneCanBeginTheNextBatch) {
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

TEST(RedisFaultsTest, BadOptionsAreNamed) {
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

TEST(RedisFaultsTest, APasswordFileThatIsMissingIsAMiss) {
  ScriptedServer server([&](const auto&, ScriptedPeer& peer) { return peer.Send("+OK\r\n"); });
  RedisOptions options;
  options.password_file = "/no/such/file";
  const auto store = StoreAt(server.address(), options);
  ExpectGet(*store, StoreOutcome::kUnreachable);
  EXPECT_THAT(store->stats().last_error, testing::HasSubstr("/no/such/file"));
}

}  // namespace
}  // namespace pagoda
