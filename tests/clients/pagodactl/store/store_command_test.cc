// `pagodactl store`: the program itself, with real servers and a real daemon.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "nlohmann/json.hpp"
#include "server/daemon.h"
#include "tests/clients/fixtures/program.h"
#include "tests/clients/fixtures/temp_directory.h"
#include "tests/pools/store/redis_servers.h"
#include "tests/pools/store/resp_client.h"
#include "tests/pools/store/scripted_server.h"
#include "tests/server/test_daemon.h"
#include "tests/wait_until.h"

namespace pagoda {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

using Json = nlohmann::ordered_json;

Outcome CheckServer(const std::string& address, const std::string& more = "") {
  return RunProgram(absl::StrCat("store check --server ", address, " ", more));
}
Outcome CheckServer(const RedisServer& server, const std::string& more = "") {
  return CheckServer(ToString(server.address()), more);
}

void Write(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

class StoreCheckTest : public testing::TestWithParam<ServerKind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, StoreCheckTest, testing::ValuesIn(InstalledServers()),
                         [](const auto& kind) { return kind.param.name; });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(StoreCheckTest);

TEST_P(StoreCheckTest, AGoodServerPassesEachStep) {
  RedisServer server(GetParam(), {});
  ASSERT_TRUE(server.is_up());
  const Outcome outcome = CheckServer(server);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(Lines(outcome.out), Each(StartsWith("OK ")));
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("connect "), HasSubstr("one plain server"),
                                 HasSubstr("write 1 MiB values"), HasSubstr("expire")));
  // Only the large values are still there. They are under the prefix of checks, and vanish too.
  RespClient client(server.port());
  for (const resp::Value& key : client.Do({"KEYS", "*"}).elements) {
    EXPECT_THAT(key.text, StartsWith("pagoda:check:"));
    EXPECT_GT(client.Do({"PTTL", key.text}).integer, 0);
  }
}

TEST_P(StoreCheckTest, ValuesThatWereWrittenSlowlyExpire) {
  RedisServer server(GetParam(), {});
  ASSERT_TRUE(server.is_up());
  RespClient(server.port()).Do({"CLIENT", "PAUSE", "1500", "WRITE"});
  const Outcome outcome = CheckServer(server);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.out;
}

TEST_P(StoreCheckTest, JsonHasEachStepAndEachServer) {
  RedisServer server(GetParam(), {});
  ASSERT_TRUE(server.is_up());
  const Outcome outcome = CheckServer(server, "-o json --key-prefix other:");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json json = Json::parse(outcome.out);
  EXPECT_EQ(json["ok"], true);
  EXPECT_EQ(json["steps"].size(), 8u);
  ASSERT_EQ(json["nodes"].size(), 1u);
  EXPECT_EQ(json["nodes"][0]["address"], ToString(server.address()));
  EXPECT_GT(json["nodes"][0]["round_trip_seconds"], 0);
  EXPECT_LT(json["nodes"][0]["round_trip_seconds"], 1);
  EXPECT_GT(json["write_bytes_per_second"], 1e6);
  EXPECT_GT(json["read_bytes_per_second"], 1e6);
  RespClient client(server.port());
  EXPECT_THAT(client.Do({"KEYS", "pagoda:*"}).elements, IsEmpty());
}

TEST_P(StoreCheckTest, AServerThatIsDownIsToldByName) {
  const Outcome outcome = CheckServer(absl::StrCat("127.0.0.1:", FreePort()));
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.out, AllOf(StartsWith("FAILED connect 127.0.0.1:"),
                                 HasSubstr("Connection refused"), Not(HasSubstr("write"))));
}

TEST_P(StoreCheckTest, OneServerOfTwoThatIsDownFailsTheCheck) {
  RedisServer server(GetParam(), {});
  ASSERT_TRUE(server.is_up());
  const Outcome outcome = CheckServer(server, absl::StrCat("--server 127.0.0.1:", FreePort()));
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("Connection refused"), HasSubstr("OK     write")));
}

TEST_P(StoreCheckTest, AServerThatDoesNotAnswerIsToldInTime) {
  RedisServer server(GetParam(), {});
  ASSERT_TRUE(server.is_up());
  server.Signal(SIGSTOP);
  const absl::Time begun = absl::Now();
  const Outcome outcome = CheckServer(server, "--timeout 0.5");
  server.Signal(SIGCONT);
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.out, HasSubstr("there was no answer in time"));
  EXPECT_LT(absl::Now() - begun, absl::Seconds(10));
}

TEST_P(StoreCheckTest, AHostWithoutAnAddressIsTold) {
  const Outcome outcome = CheckServer("nosuch.invalid:6379", "--timeout 5");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.out, HasSubstr("nosuch.invalid"));
}

TEST_P(StoreCheckTest, PasswordsAreTold) {
  RedisServer server(GetParam(), {"--requirepass", "right"});
  ASSERT_TRUE(server.is_up());
  const TempDirectory directory;
  Write(directory.File("wrong"), "not this one\n");
  Write(directory.File("right"), "right\n");
  const Outcome none = CheckServer(server);
  EXPECT_EQ(none.exit_code, 1);
  EXPECT_THAT(none.out, HasSubstr("NOAUTH"));
  const Outcome wrong = CheckServer(server, "--password-file " + directory.File("wrong"));
  EXPECT_EQ(wrong.exit_code, 1);
  EXPECT_THAT(wrong.out, HasSubstr("WRONGPASS"));
  const Outcome right = CheckServer(server, "--password-file " + directory.File("right"));
  EXPECT_EQ(right.exit_code, 0) << right.out;
  const Outcome missing = CheckServer(server, "--password-file " + directory.File("missing"));
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_THAT(missing.out, HasSubstr("empty or unreadable"));
}

// The address 0.0.0.0 leads to this machine, but it is no loopback address.
TEST(StoreCheckNetworksTest, ServersBeyondTheAllowedNetworksAreNotContacted) {
  ScriptedServer other([](const auto&, ScriptedPeer& peer) { return peer.Send("$-1\r\n"); });
  const uint16_t port = other.address().port;
  const std::string map =
      absl::StrCat("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$7\r\n0.0.0.0\r\n:", port, "\r\n");
  ScriptedServer server(
      [](const auto&, ScriptedPeer& peer) { return peer.Send("-ERR unknown command\r\n"); }, 0,
      [&map](const std::string& command) {
        return command == "CLUSTER" ? std::optional<std::string>(map) : std::nullopt;
      });
  const Outcome refused = CheckServer(ToString(server.address()));
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.out, AllOf(HasSubstr(absl::StrCat("FAILED server 0.0.0.0:", port)),
                                 HasSubstr("the cluster names a server at 0.0.0.0, which "
                                           "store.allowed_networks does not allow")));
  EXPECT_EQ(other.connections(), 0);
  const Outcome allowed = CheckServer(ToString(server.address()), "--allowed-network 0.0.0.0/32");
  EXPECT_THAT(allowed.out, HasSubstr(absl::StrCat("OK     server 0.0.0.0:", port)));
  EXPECT_GT(other.connections(), 0);
  EXPECT_THAT(CheckServer(ToString(server.address()), "--allowed-network 10.0.0.0/33").out,
              HasSubstr("'10.0.0.0/33' is not a network"));
}

TEST_P(StoreCheckTest, AFullServerIsTold) {
  RedisServer server(GetParam(), {"--maxmemory-policy", "noeviction"});
  ASSERT_TRUE(server.is_up());
  RespClient client(server.port());
  client.Do({"CONFIG", "SET", "maxmemory", "1"});
  const Outcome outcome = CheckServer(server);
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.out,
              AllOf(HasSubstr("FAILED write"), HasSubstr("64 of 64 values: refused (OOM ")));
}

TEST_P(StoreCheckTest, AReadOnlyReplicaIsTold) {
  RedisServer server(GetParam(), {"--replicaof", "127.0.0.1 1"});
  ASSERT_TRUE(server.is_up());
  const Outcome outcome = CheckServer(server);
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("FAILED write"), HasSubstr("READONLY")));
}

TEST_P(StoreCheckTest, AUserWithoutRightsIsTold) {
  RedisServer server(GetParam(), {"--user", "reader", "on", ">secret", "~*", "+get", "+ping"});
  ASSERT_TRUE(server.is_up());
  const TempDirectory directory;
  Write(directory.File("password"), "secret\n");
  const Outcome outcome =
      CheckServer(server, "--username reader --password-file " + directory.File("password"));
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.out, HasSubstr("NOPERM"));
}

TEST_P(StoreCheckTest, SlotsWithoutAServerAreTold) {
  RedisServer server(GetParam(), {"--cluster-enabled", "yes"});
  ASSERT_TRUE(server.is_up());
  RespClient client(server.port());
  client.Do({"CLUSTER", "ADDSLOTSRANGE", "0", "99", "200", "16383"});
  const Outcome outcome = CheckServer(server, "--timeout 2");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.out, HasSubstr("100 of 16384 slots have no server, the first is 100"));
}

TEST_P(StoreCheckTest, EachServerOfAClusterIsTried) {
  TestCluster cluster(GetParam());
  ASSERT_TRUE(cluster.is_up());
  // A server hears of the replicas a little later.
  RespClient client(cluster.server(0).port());
  const auto knows_replicas = [&client] {
    const resp::Value slots = client.Do({"CLUSTER", "SLOTS"});
    for (const resp::Value& range : slots.elements) {
      if (range.elements.size() < 4) return false;
    }
    return true;
  };
  ASSERT_TRUE(WaitUntil(knows_replicas));
  const Outcome good = CheckServer(cluster.server(0), "--cluster");
  EXPECT_EQ(good.exit_code, 0) << good.out;
  EXPECT_THAT(good.out, HasSubstr("a cluster of 3 primary servers and 3 replicas"));
  for (size_t i = 0; i < cluster.size(); ++i) {
    EXPECT_THAT(good.out, HasSubstr(ToString(cluster.server(i).address())));
  }
}

TEST_P(StoreCheckTest, APlainServerIsNoCluster) {
  RedisServer server(GetParam(), {});
  ASSERT_TRUE(server.is_up());
  const Outcome outcome = CheckServer(server, "--cluster");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.out, HasSubstr("not a cluster's"));
}

TEST_P(StoreCheckTest, TlsErrorsAreTold) {
  const TempDirectory directory;
  const std::string& folder = directory.path();
  const std::string command = absl::StrCat(
      "cd ", folder,
      " && exec >log 2>&1 && for name in server other; do openssl req -x509 -newkey rsa:2048 "
      "-nodes -keyout $name.key -out $name.crt -subj /CN=$name -days 2 -addext "
      "subjectAltName=IP:127.0.0.1 || exit 1; done");
  ASSERT_EQ(std::system(command.c_str()), 0);
  const uint16_t port = FreePort();
  RedisServer server(GetParam(),
                     {"--tls-port", std::to_string(port), "--tls-cert-file", folder + "/server.crt",
                      "--tls-key-file", folder + "/server.key", "--tls-ca-cert-file",
                      folder + "/server.crt", "--tls-auth-clients", "no"});
  ASSERT_TRUE(server.is_up());
  const std::string address = absl::StrCat("127.0.0.1:", port);
  const Outcome good = CheckServer(address, absl::StrCat("--tls-ca ", folder, "/server.crt"));
  EXPECT_EQ(good.exit_code, 0) << good.out;
  EXPECT_THAT(good.out, HasSubstr("OK     certificates"));
  const Outcome other = CheckServer(address, absl::StrCat("--tls-ca ", folder, "/other.crt"));
  EXPECT_EQ(other.exit_code, 1);
  EXPECT_THAT(other.out, AllOf(HasSubstr("FAILED connect"), HasSubstr("certificate")));
  const Outcome missing = CheckServer(address, absl::StrCat("--tls-ca ", folder, "/missing.crt"));
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_THAT(missing.out, HasSubstr("FAILED certificates"));
  const Outcome plaintext = CheckServer(address, "--timeout 2");
  EXPECT_EQ(plaintext.exit_code, 1);
  EXPECT_THAT(plaintext.out, HasSubstr("FAILED connect"));
}

TEST_P(StoreCheckTest, TheStoreOfAConfigurationIsChecked) {
  RedisServer server(GetParam(), {"--requirepass", "right"});
  ASSERT_TRUE(server.is_up());
  const TempDirectory directory;
  Write(directory.File("password"), "right\n");
  Write(directory.File("secret"), "a secret of all daemons\n");
  // Paths are relative to the configuration's folder.
  Write(directory.File("pagodad.yaml"),
        absl::StrCat("store:\n  servers: [\"", ToString(server.address()),
                     "\"]\n  key_prefix: \"mine:\"\n  password_file: password\n"
                     "  secret_file: secret\n"));
  const Outcome outcome = RunProgram("store check --config " + directory.File("pagodad.yaml"));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.out << outcome.err;
  RespClient client(server.port());
  client.Do({"AUTH", "right"});
  const resp::Value keys = client.Do({"KEYS", "*"});
  ASSERT_FALSE(keys.elements.empty());
  for (const resp::Value& key : keys.elements) EXPECT_THAT(key.text, StartsWith("mine:check:"));
}

TEST(StoreCommandTest, BadConfigurationsAreRefused) {
  const TempDirectory directory;
  const auto run = [&](const std::string& text) {
    Write(directory.File("pagodad.yaml"), text);
    const Outcome outcome = RunProgram("store check --config " + directory.File("pagodad.yaml"));
    EXPECT_EQ(outcome.exit_code, 1);
    return outcome.err;
  };
  EXPECT_THAT(run("store: {servers: []}\n"), HasSubstr("names no servers"));
  EXPECT_THAT(run("cache: {}\n"), HasSubstr("names no servers"));
  EXPECT_THAT(run("store: [a\n"), HasSubstr("INVALID_ARGUMENT"));
  EXPECT_THAT(run("store: {servers: {a: b}}\n"), HasSubstr("INVALID_ARGUMENT"));
  EXPECT_THAT(run("store: {servers: [\"host:port\"]}\n"), HasSubstr("'host:port'"));
  EXPECT_EQ(RunProgram("store check").exit_code, 1);
  EXPECT_EQ(RunProgram("store check --config x --server y").exit_code, 2);
  EXPECT_EQ(RunProgram("store").exit_code, 2);
}

// --- With a daemon ---

server::Config ConfigOfStore(const std::string& address) {
  server::Config config = server::TestConfig();
  config.cache.model.name = "org/model";
  config.store.servers = {address};
  config.store.publish.min_uses = 0;
  config.store.publish.delay = absl::ZeroDuration();
  return config;
}

class StoreStatsTest : public server::DaemonTest {
 protected:
  explicit StoreStatsTest(server::Config config)
      : DaemonTest(config), endpoint_("--endpoint unix:" + config.server.unix_socket + " ") {}

  Outcome Run(const std::string& arguments) { return RunProgram(endpoint_ + arguments); }

 private:
  const std::string endpoint_;
};

// Without a server: each daemon shows that its store is away.
class StoreAwayTest : public StoreStatsTest {
 protected:
  StoreAwayTest() : StoreStatsTest(ConfigOfStore("127.0.0.1:1")) {}
};

TEST_F(StoreAwayTest, EachCommandSaysSo) {
  for (const char* command : {"store stats", "status", "top --once --interval 0.1"}) {
    const Outcome outcome = Run(command);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_THAT(outcome.out, AllOf(HasSubstr("127.0.0.1:1: away"), HasSubstr("fetches"),
                                   HasSubstr("listed prefixes")))
        << command;
  }
}

class NoStoreTest : public StoreStatsTest {
 protected:
  NoStoreTest() : StoreStatsTest(server::TestConfig()) {}
};

TEST_F(NoStoreTest, NothingIsShownButByStoreStats) {
  EXPECT_THAT(Run("store stats").out, HasSubstr("the daemon has no store"));
  const Outcome status = Run("status -o json");
  const Json json = Json::parse(status.out);
  EXPECT_FALSE(json.contains("store") || json.contains("peer_server") || json.contains("exchange"));
  EXPECT_EQ(json["peer_sources"], Json::array());
  EXPECT_THAT(Run("status").out, AllOf(Not(HasSubstr("store")), Not(HasSubstr("fetches"))));
}

TEST(StoreStatsJsonTest, WritesAreCounted) {
  const std::vector<ServerKind> kinds = InstalledServers();
  if (kinds.empty()) GTEST_SKIP() << "no Redis and no Valkey is installed";
  RedisServer redis(kinds.front(), {});
  ASSERT_TRUE(redis.is_up());
  const server::Config config = ConfigOfStore(ToString(redis.address()));
  class Fixture : public server::DaemonTest {
   public:
    explicit Fixture(const server::Config& with) : DaemonTest(with) {
      CacheTokens(OpenRef(), server::TokensTo(40));
    }
    void TestBody() override {}
  } daemon(config);
  const std::string endpoint = "--endpoint unix:" + config.server.unix_socket;
  Json json;
  for (int i = 0; i < 100; ++i) {
    const Outcome outcome = RunProgram(endpoint + " store stats -o json");
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    json = Json::parse(outcome.out);
    if (json["exchange"]["published_blocks_total"] == "10") break;
    absl::SleepFor(absl::Milliseconds(50));
  }
  EXPECT_EQ(json["exchange"]["published_blocks_total"], "10") << json;
  const Json puts = Json::array({{{"name", "ok"}, {"count", "10"}}});
  EXPECT_EQ(json["store"]["puts_total"], puts) << json;
  EXPECT_EQ(json["store"]["up"], true);
  EXPECT_EQ(json["store"]["servers"][0], ToString(redis.address()));
  const Json status = Json::parse(RunProgram(endpoint + " status -o json").out);
  EXPECT_EQ(status["store"]["puts_total"], puts);
  EXPECT_EQ(status["exchange"]["published_blocks_total"], "10");
  const Json top = Json::parse(RunProgram(endpoint + " top --once --interval 0.1 -o json").out);
  EXPECT_EQ(top["status"]["store"]["puts_total"], puts) << top;
}

}  // namespace
}  // namespace pagoda
