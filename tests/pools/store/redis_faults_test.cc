// A store whose server fails in each way that a script can have: every batch ends by its deadline,
// as a miss, and its memory is left alone afterwards.

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "pools/store/address_resolver.h"
#include "pools/store/redis_store.h"
#include "pools/store/server_networks.h"
#include "pools/store/stored_value.h"
#include "tests/pools/store/faulty_store.h"
#include "tests/pools/store/resp_client.h"
#include "tests/pools/store/scripted_server.h"
#include "tests/pools/store/store_blocks.h"

namespace pagoda {
namespace {

using testing::Each;
using testing::ElementsAre;

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
  EXPECT_TRUE(WaitUntil([&] { return store->stats().disconnects > 0; }))
      << "else every later reply belongs to another command";
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
  std::atomic<int> resets = 1;
  ScriptedServer server([&](const auto&, ScriptedPeer& peer) {
    if (resets-- > 0) {
      peer.Reset();
      return false;
    }
    return peer.Send(Bulk(ValueOf(1)));
  });
  const auto store = StoreAt(server.address());
  ExpectGet(*store, StoreOutcome::kOk);
  EXPECT_EQ(store->stats().disconnects, 1u);
  resets = 1000;
  ExpectGet(*store, StoreOutcome::kUnreachable);
}

TEST(RedisFaultsTest, AHalfSentValueIsTriedAgain) {
  for (const size_t part : {1, 70, 160, 60'000}) {
    std::atomic<bool> is_first = true;
    ScriptedServer server([&](const auto&, ScriptedPeer& peer) {
      const std::string reply = Bulk(ValueOf(1));
      if (!is_first.exchange(false)) return peer.Send(reply);
      peer.Send(reply.substr(0, part));
      return false;
    });
    const auto store = StoreAt(server.address());
    ExpectGet(*store, StoreOutcome::kOk);
    EXPECT_EQ(store->stats().connects, 2u);
  }
}

TEST(RedisFaultsTest, AServerThatLetsInAndAnswersNothingIsAskedWithPauses) {
  for (const char* ping :
       {"+PONG\r\n", "-ERR max number of clients reached\r\n", "$4\r\nPING\r\n"}) {
    ScriptedServer server([](const auto&, ScriptedPeer&) { return false; }, 0,
                          [&](const std::string& command) -> std::optional<std::string> {
                            return command == "PING" ? std::string(ping) : "-NOPERM\r\n";
                          });
    const auto store = StoreAt(server.address());
    const absl::Time end = absl::Now() + absl::Seconds(1);
    while (absl::Now() < end) GetAndWait(*store, {1}, kBytes, absl::Seconds(10));
    EXPECT_LT(server.connections(), 50) << ping;
  }
}

TEST(RedisFaultsTest, ASilentTlsServerCostsNoProcessorTime) {
  // The system accepts the connection, and nobody answers the client's greeting.
  const FileDescriptor listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(bind(listener.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(listener.get(), 8), 0);
  ASSERT_EQ(getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  RedisOptions options;
  options.tls.is_on = true;
  const auto store = StoreAt({"127.0.0.1", ntohs(address.sin_port)}, options);
  absl::SleepFor(absl::Milliseconds(200));
  const absl::Duration before = CpuTime();
  absl::SleepFor(absl::Seconds(1));
  EXPECT_LT(CpuTime() - before, absl::Milliseconds(400));
}

TEST(RedisFaultsTest, LongRepliesToShortCommandsDoNotHoldOthersUp) {
  ScriptedServer hostile([&](const auto&, ScriptedPeer& peer) {
    std::string array = "*250000\r\n";
    for (int i = 0; i < 249'999; ++i) array += ":1\r\n";
    return peer.Send(array);
  });
  ScriptedServer good([&](const auto&, ScriptedPeer& peer) { return peer.Send(":1\r\n"); });
  const auto bad_store = StoreAt(hostile.address());
  const auto store = StoreAt(good.address());
  EXPECT_NE(ExistsAndWait(*bad_store, {1}, absl::Seconds(2))[0], StoreOutcome::kOk);
  EXPECT_THAT(ExistsAndWait(*store, {1}, absl::Seconds(10)), ElementsAre(StoreOutcome::kOk));
  EXPECT_THAT(bad_store->stats().last_error, testing::HasSubstr("kind"));
}

TEST(RedisFaultsTest, TheMapComesBeforeTheReadsThatWait) {
  std::atomic<int> maps = 0;
  ScriptedServer server(
      [&](const auto&, ScriptedPeer& peer) {
        absl::SleepFor(absl::Milliseconds(2));
        return peer.Send(":1\r\n");
      },
      0,
      [&](const std::string& command) -> std::optional<std::string> {
        maps += command == "CLUSTER" ? 1 : 0;
        return std::nullopt;
      });
  RedisOptions options;
  options.map_refresh = absl::Milliseconds(200);
  options.connections_per_node = 1;
  const auto store = StoreAt(server.address(), options);
  EXPECT_THAT(ExistsAndWait(*store, Numbers(0, 1000), absl::Seconds(60)), Each(StoreOutcome::kOk));
  EXPECT_GT(maps, 4) << "in two seconds";
}

TEST(RedisFaultsTest, ServersThatTheMapNoLongerNamesAreForgotten) {
  std::string map;
  absl::Mutex mutex;
  const auto set_up = [&](const std::string& command) -> std::optional<std::string> {
    absl::MutexLock lock(&mutex);
    return command == "CLUSTER" ? std::optional(map) : std::nullopt;
  };
  const auto script = [](const auto&, ScriptedPeer& peer) { return peer.Send(":1\r\n"); };
  ScriptedServer first(script, 0, set_up), second(script, 0, set_up);
  const auto map_of = [](const RedisAddress& address) {
    return absl::StrCat("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:", address.port,
                        "\r\n");
  };
  map = map_of(first.address());
  RedisOptions options;
  options.map_refresh = absl::Milliseconds(100);
  const auto store = StoreAt(first.address(), options);
  EXPECT_THAT(ExistsAndWait(*store, {1}, absl::Seconds(10)), ElementsAre(StoreOutcome::kOk));
  {
    absl::MutexLock lock(&mutex);
    map = map_of(second.address());
  }
  EXPECT_TRUE(WaitUntil([&] {
    ExistsAndWait(*store, {1}, absl::Seconds(10));
    return store->stats().nodes == 1 && store->stats().connected == 1 && second.connections() > 0;
  })) << store->stats().nodes
      << " servers, " << store->stats().connected << " connected";
  // A map that cannot be read is no plain server.
  {
    absl::MutexLock lock(&mutex);
    map = "-BUSY a script runs\r\n";
  }
  absl::SleepFor(absl::Milliseconds(500));
  EXPECT_THAT(store->stats().last_error, testing::HasSubstr("BUSY"));
  EXPECT_THAT(ExistsAndWait(*store, {1}, absl::Seconds(10)), ElementsAre(StoreOutcome::kOk));
}

// A socket address 0.0.0.0 leads to this machine, but it is no loopback address.
TEST(RedisFaultsTest, ServersBeyondTheSeedsNetworksAreNotContacted) {
  ScriptedServer other([](const auto& command, ScriptedPeer& peer) {
    return peer.Send(command[0] == "ASKING" ? "+OK\r\n" : "$-1\r\n");
  });
  const uint16_t port = other.address().port;
  const std::string map =
      absl::StrCat("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$7\r\n0.0.0.0\r\n:", port, "\r\n");
  for (const char* const way : {"MOVED", "ASK", "CLUSTER"}) {
    for (const bool is_allowed : {false, true}) {
      ScriptedServer server(
          [&](const auto&, ScriptedPeer& peer) {
            return peer.Send(absl::StrCat("-", way, " 1 0.0.0.0:", port, "\r\n"));
          },
          0,
          [&](const std::string& command) -> std::optional<std::string> {
            if (command == "CLUSTER" && command == way) return map;
            return std::nullopt;
          });
      RedisOptions options;
      if (is_allowed) options.allowed_networks = {"10.0.0.0/8", "0.0.0.0/32"};
      const int before = other.connections();
      const auto store = StoreAt(server.address(), options);
      ExpectGet(*store, is_allowed ? StoreOutcome::kMissing : StoreOutcome::kUnreachable);
      EXPECT_EQ(other.connections() > before, is_allowed) << way;
      EXPECT_EQ(store->stats().refused_servers > 0, !is_allowed) << way;
      if (!is_allowed) {
        EXPECT_THAT(store->stats().last_error,
                    testing::HasSubstr("0.0.0.0, which store.allowed_networks does not allow"));
      }
    }
  }
}

TEST(RedisFaultsTest, ThePasswordGoesToTheSeedsAlone) {
  std::atomic<int> shown = 0;
  const auto set_up = [&](const std::string& command) -> std::optional<std::string> {
    if (command == "AUTH") {
      ++shown;
      return "+OK\r\n";
    }
    return std::nullopt;
  };
  ScriptedServer other([](const auto&, ScriptedPeer& peer) { return peer.Send("$-1\r\n"); }, 0,
                       set_up);
  std::string host;
  ScriptedServer server(
      [&](const auto&, ScriptedPeer& peer) {
        return peer.Send(absl::StrCat("-MOVED 1 ", host, ":", other.address().port, "\r\n"));
      },
      0,
      [](const std::string& command) {
        return command == "AUTH" ? std::optional<std::string>("+OK\r\n") : std::nullopt;
      });
  for (const bool is_seed : {false, true}) {
    host = is_seed ? "127.0.0.1" : "0.0.0.0";
    RedisOptions options;
    options.password = "secret";
    options.allowed_networks = {"0.0.0.0/32"};
    const auto store = StoreAt(server.address(), options);
    ExpectGet(*store, is_seed ? StoreOutcome::kMissing : StoreOutcome::kUnreachable);
    EXPECT_EQ(shown > 0, is_seed);
    EXPECT_EQ(store->stats().refused_servers > 0, !is_seed);
  }
}

TEST(ServerNetworksTest, AddressesNearTheSeedsAreAllowed) {
  const auto number = [](const std::string& host) {
    const absl::StatusOr<SocketAddress> parsed =
        AddressResolver::Parse({.host = host, .port = 6379});
    EXPECT_TRUE(parsed.ok()) << host;
    return *parsed;
  };
  const auto allows = [&](const ServerNetworks& networks, const std::string& host) {
    return networks.Check(number(host), false, false).ok();
  };
  ServerNetworks near = *ServerNetworks::Parse({});
  EXPECT_FALSE(allows(near, "10.1.2.3"));
  near.AddSeed(number("10.1.2.3"));
  near.AddSeed(number("2001:db8:0:1::5"));
  for (const char* const host : {"10.1.2.3", "10.1.2.255", "::ffff:10.1.2.9", "2001:db8:0:1::9"}) {
    EXPECT_TRUE(allows(near, host)) << host;
  }
  for (const char* const host : {"10.1.3.3", "127.0.0.1", "::1", "169.254.169.254", "0.0.0.0",
                                 "2001:db8:0:2::5", "::ffff:127.0.0.1"}) {
    EXPECT_FALSE(allows(near, host)) << host;
  }
  EXPECT_TRUE(near.Check(number("10.1.2.3"), true, false).ok()) << "a seed's own address";
  EXPECT_FALSE(near.Check(number("10.1.2.4"), true, false).ok());
  EXPECT_TRUE(near.Check(number("10.1.2.4"), true, true).ok()) << "TLS";
  ServerNetworks loopback = *ServerNetworks::Parse({});
  loopback.AddSeed(number("127.0.0.1"));
  EXPECT_TRUE(allows(loopback, "127.9.9.9"));
  EXPECT_TRUE(allows(loopback, "::1"));
  EXPECT_FALSE(allows(loopback, "10.1.2.3"));
  ServerNetworks given = *ServerNetworks::Parse({"10.0.0.0/9", "fd00::/8"});
  given.AddSeed(number("192.168.0.1"));
  EXPECT_TRUE(allows(given, "10.127.0.1"));
  EXPECT_TRUE(allows(given, "fdab::1"));
  EXPECT_TRUE(allows(given, "192.168.0.1"));
  EXPECT_FALSE(allows(given, "10.128.0.1"));
  EXPECT_FALSE(allows(given, "192.168.0.2")) << "the given networks are all";
  for (const char* const bad :
       {"", "redis", "10.0.0.0/33", "10.0.0.0/", "10.0.0.0/x", "::/129", "10.0.0.0/-1"}) {
    EXPECT_FALSE(ServerNetworks::Parse({bad}).ok()) << bad;
  }
}

TEST(RedisFaultsTest, MovesToNamesWithoutEndTakeFewThreadsAndServers) {
  std::atomic<int> next = 0;
  ScriptedServer server([&](const auto&, ScriptedPeer& peer) {
    return peer.Send(absl::StrCat("-MOVED 1 h", ++next, ".invalid:6379\r\n"));
  });
  const auto store = StoreAt(server.address());
  for (int i = 0; i < 30; ++i) ExistsAndWait(*store, Numbers(0, 200), absl::Milliseconds(50));
  EXPECT_LE(store->stats().nodes, 2100u);
  EXPECT_LT(std::distance(std::filesystem::directory_iterator("/proc/self/task"),
                          std::filesystem::directory_iterator()),
            20);
}

TEST(RedisFaultsTest, WithoutTheRightToReadOnlyReplicasAreNotAsked) {
  std::atomic<int> maps = 0, replica_calls = 0;
  std::unique_ptr<ScriptedServer> primary, replica;
  std::string map;
  const auto set_up = [&](const std::string& command) -> std::optional<std::string> {
    if (command == "READONLY") return "-NOPERM no\r\n";
    if (command != "CLUSTER") return std::nullopt;
    ++maps;
    return map;
  };
  primary = std::make_unique<ScriptedServer>(
      [](const auto&, ScriptedPeer& peer) { return peer.Send(":1\r\n"); }, 0, set_up);
  replica = std::make_unique<ScriptedServer>(
      [&](const auto&, ScriptedPeer& peer) {
        ++replica_calls;
        return peer.Send(absl::StrCat("-MOVED 1 127.0.0.1:", primary->address().port, "\r\n"));
      },
      0, set_up);
  map = absl::StrCat(
      "*1\r\n*4\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:", primary->address().port,
      "\r\n*2\r\n$9\r\n127.0.0.1\r\n:", replica->address().port, "\r\n");
  RedisOptions options;
  options.read_from_replicas = true;
  const auto store = StoreAt(primary->address(), options);
  const absl::Time end = absl::Now() + absl::Milliseconds(1500);
  while (absl::Now() < end) {
    EXPECT_THAT(ExistsAndWait(*store, {1}, absl::Seconds(10)), ElementsAre(StoreOutcome::kOk));
  }
  EXPECT_LT(replica_calls, 10);
  EXPECT_LT(maps, 5);
}

TEST(RedisFaultsTest, ASilentServerCostsTheDeadlineAndThenNothing) {
  ScriptedServer server([&](const auto&, ScriptedPeer&) { return true; });
  RedisOptions options;
  options.stall_timeout = absl::Milliseconds(600);
  options.connect_timeout = absl::Milliseconds(600);
  const auto store = StoreAt(server.address(), options);
  ExpectGet(*store, StoreOutcome::kTimedOut);
  EXPECT_TRUE(WaitUntil([&] { return store->stats().disconnects > 0; }))
      << "a connection that gives no reply is closed";
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
  EXPECT_TRUE(WaitUntil([&] { return store->stats().disconnects > 0; }))
      << "bytes alone do not keep a connection";
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
  store->Exists({TestKey(9)}, absl::Seconds(20), first.done());
  constexpr size_t kLarge = 32 << 20;
  std::vector<std::byte> block = TestBlock(1, kLarge);
  Waiter waiter;
  store->Put({{TestKey(1), {absl::MakeConstSpan(block)}}}, absl::Minutes(1), kTimeout,
             waiter.done());
  EXPECT_THAT(waiter.Wait(), ElementsAre(StoreOutcome::kTimedOut));
  go_on = true;
  // If it were sent on, the server would have all of it soon.
  absl::SleepFor(absl::Seconds(1));
  EXPECT_EQ(longest, 0u) << "the value arrived whole, so it was read after the report";
  EXPECT_TRUE(WaitUntil([&] { return store->stats().disconnects == 1; }));
  EXPECT_THAT(PutAndWait(*store, {2}, kBytes, absl::Seconds(20)), ElementsAre(StoreOutcome::kOk));
  first.Wait();
}

}  // namespace
}  // namespace pagoda
