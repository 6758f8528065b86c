// A store on real servers: one plain server, and clusters of six, of each installed kind.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "pools/store/redis_store.h"
#include "pools/store/stored_value.h"
#include "tests/pools/store/redis_servers.h"
#include "tests/pools/store/resp_client.h"
#include "tests/pools/store/store_blocks.h"
#include "tests/wait_until.h"

namespace pagoda {
namespace {

using testing::Each;

constexpr size_t kBytes = 40'000;
constexpr absl::Duration kTimeout = absl::Seconds(10);

std::unique_ptr<RedisStore> StoreAt(std::vector<RedisAddress> seeds, RedisOptions options = {}) {
  options.seeds = std::move(seeds);
  options.max_backoff = absl::Milliseconds(500);
  absl::StatusOr<std::unique_ptr<RedisStore>> store = RedisStore::Create(std::move(options));
  EXPECT_TRUE(store.ok()) << store.status();
  return *std::move(store);
}

// All blocks can be written, found and read.
void ExpectRoundTrip(RedisStore& store, const std::vector<uint32_t>& numbers,
                     size_t size = kBytes) {
  EXPECT_THAT(PutAndWait(store, numbers, size, kTimeout), Each(StoreOutcome::kOk))
      << store.stats().last_error;
  EXPECT_THAT(ExistsAndWait(store, numbers, kTimeout), Each(StoreOutcome::kOk));
  const GotBlocks got = GetAndWait(store, numbers, size, kTimeout);
  EXPECT_THAT(got.outcomes, Each(StoreOutcome::kOk)) << store.stats().last_error;
  EXPECT_TRUE(got.AreRight(numbers));
}

// All blocks come back in the end, after a change of the servers.
void ExpectRecovery(RedisStore& store, const std::vector<uint32_t>& numbers) {
  EXPECT_TRUE(WaitUntil([&] {
    return CountOf(PutAndWait(store, numbers, kBytes, absl::Seconds(1)), StoreOutcome::kOk) ==
           numbers.size();
  })) << store.stats().last_error;
  ExpectRoundTrip(store, numbers);
}

// Gets and puts from several threads, until Stop. Each block that is served is checked.
class Load {
 public:
  Load(RedisStore& store, std::vector<uint32_t> numbers, absl::Duration timeout) {
    for (int i = 0; i < 3; ++i) {
      threads_.emplace_back([this, &store, numbers, timeout] {
        while (!stop_) {
          const absl::Time start = absl::Now();
          PutAndWait(store, numbers, kBytes, timeout);
          const GotBlocks got = GetAndWait(store, numbers, kBytes, timeout);
          if (!got.AreRight(numbers)) ++wrong_;
          if (absl::Now() - start > 2 * timeout + absl::Seconds(2)) ++late_;
          served_ += static_cast<int>(CountOf(got.outcomes, StoreOutcome::kOk));
        }
      });
    }
  }
  ~Load() { Stop(); }
  void Stop() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }
  int served() const { return served_; }
  int wrong() const { return wrong_; }
  int late() const { return late_; }

 private:
  std::atomic<bool> stop_ = false;
  std::atomic<int> served_ = 0, wrong_ = 0, late_ = 0;
  std::vector<std::thread> threads_;
};

// A test for each kind of server.
class RedisStoreTest : public testing::TestWithParam<ServerKind> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(RedisStoreTest);
INSTANTIATE_TEST_SUITE_P(Servers, RedisStoreTest, testing::ValuesIn(InstalledServers()),
                         [](const auto& kind) { return kind.param.name; });

TEST(RedisServersTest, RedisIsInstalled) {
  if (InstalledServers().empty()) GTEST_SKIP() << "redis-server is not installed";
  for (const ServerKind& kind : InstalledServers())
    std::puts(absl::StrCat("tested: ", kind.name).c_str());
}

// --- One server ---

TEST_P(RedisStoreTest, APlainServer) {
  RedisServer server(GetParam(), {});
  ASSERT_TRUE(server.is_up());
  const auto store = StoreAt({server.address()});
  EXPECT_THAT(GetAndWait(*store, {1, 2}, kBytes, kTimeout).outcomes, Each(StoreOutcome::kMissing));
  EXPECT_THAT(ExistsAndWait(*store, {1, 2}, kTimeout), Each(StoreOutcome::kMissing));
  ExpectRoundTrip(*store, Numbers(0, 300));
  ExpectRoundTrip(*store, {1000}, 9 << 20);
  ExpectRoundTrip(*store, {1001}, 3);
  EXPECT_EQ(store->stats().bytes_read, 300 * kBytes + (9 << 20) + 3);
  EXPECT_EQ(store->stats().bytes_written, store->stats().bytes_read);
  EXPECT_EQ(store->stats().nodes, 1u);
}

// The sizes end everywhere around what is read at once, and what the socket waits for.
TEST_P(RedisStoreTest, LargeValuesOfAnySize) {
  RedisServer server(GetParam(), {});
  const auto store = StoreAt({server.address()});
  uint32_t number = 0;
  for (const size_t mebibytes : {1, 2, 3}) {
    for (const int more : {-2000, -513, -144, -1, 0, 1, 144, 511, 600, 2000, 66'000, 400'000}) {
      const size_t size = (mebibytes << 20) + static_cast<size_t>(more);
      EXPECT_THAT(PutAndWait(*store, {number}, size, kTimeout), Each(StoreOutcome::kOk));
      EXPECT_THAT(GetAndWait(*store, std::vector<uint32_t>(5, number), size, kTimeout).outcomes,
                  Each(StoreOutcome::kOk))
          << size;
      ++number;
    }
  }
  EXPECT_EQ(store->stats().disconnects, 0u);
}

TEST_P(RedisStoreTest, ValuesEndAfterTheirTime) {
  RedisServer server(GetParam(), {});
  const auto store = StoreAt({server.address()});
  PutAndWait(*store, {1}, kBytes, kTimeout, 1, absl::Milliseconds(300));
  ExpectRoundTrip(*store, {2});
  EXPECT_TRUE(
      WaitUntil([&] { return ExistsAndWait(*store, {1}, kTimeout)[0] == StoreOutcome::kMissing; }));
  EXPECT_THAT(ExistsAndWait(*store, {2}, kTimeout), Each(StoreOutcome::kOk));
}

TEST_P(RedisStoreTest, ValuesAreReadableForAnOperator) {
  RedisServer server(GetParam(), {});
  const auto store = StoreAt({server.address()});
  ExpectRoundTrip(*store, {7});
  RespClient client(server.port());
  const resp::Value keys = client.Do({"KEYS", "pagoda:*"});
  ASSERT_EQ(keys.elements.size(), 1u);
  EXPECT_EQ(keys.elements[0].text, StoredName("pagoda:", "", TestKey(7)));
  EXPECT_EQ(client.Do({"GETRANGE", keys.elements[0].text, "0", "7"}).text, "PAGODAKV");
}

TEST_P(RedisStoreTest, WrongTypesAndFullServersAreMisses) {
  RedisServer server(GetParam(), {"--maxmemory-policy", "noeviction"});
  const auto store = StoreAt({server.address()});
  ExpectRoundTrip(*store, {1});
  RespClient client(server.port());
  client.Do({"LPUSH", StoredName("pagoda:", "", TestKey(2)), "x"});
  EXPECT_THAT(GetAndWait(*store, {2}, kBytes, kTimeout).outcomes, Each(StoreOutcome::kRefused));
  client.Do({"CONFIG", "SET", "maxmemory", "1"});
  EXPECT_THAT(PutAndWait(*store, {3, 4}, kBytes, kTimeout), Each(StoreOutcome::kRefused));
  EXPECT_THAT(store->stats().last_error, testing::HasSubstr("OOM"));
  client.Do({"CONFIG", "SET", "maxmemory", "0"});
  ExpectRoundTrip(*store, {3, 4});
}

TEST_P(RedisStoreTest, KilledConnectionsAreReplaced) {
  RedisServer server(GetParam(), {});
  const auto store = StoreAt({server.address()});
  const std::vector<uint32_t> numbers = Numbers(0, 50);
  ExpectRoundTrip(*store, numbers);
  Load load(*store, numbers, absl::Seconds(5));
  RespClient client(server.port());
  for (int i = 0; i < 10; ++i) {
    client.Do({"CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"});
    absl::SleepFor(absl::Milliseconds(100));
  }
  load.Stop();
  EXPECT_EQ(load.wrong(), 0);
  EXPECT_EQ(load.late(), 0);
  EXPECT_GT(store->stats().disconnects, 5u);
  ExpectRecovery(*store, numbers);
}

TEST_P(RedisStoreTest, AKilledServerIsAMissUntilItIsBack) {
  RedisServer server(GetParam(), {});
  const auto store = StoreAt({server.address()});
  ExpectRoundTrip(*store, {1, 2});
  server.Kill();
  const absl::Time start = absl::Now();
  for (int i = 0; i < 50; ++i) {
    EXPECT_THAT(GetAndWait(*store, {1, 2}, kBytes, kTimeout).outcomes,
                Each(StoreOutcome::kUnreachable));
  }
  EXPECT_LT(absl::Now() - start, absl::Seconds(5)) << "no call waits for its deadline";
  server.Start();
  ASSERT_TRUE(server.is_up());
  EXPECT_TRUE(WaitUntil([&] {
    return GetAndWait(*store, {1}, kBytes, kTimeout).outcomes[0] == StoreOutcome::kMissing;
  })) << "it is back, and empty";
  ExpectRoundTrip(*store, {1, 2});
}

TEST_P(RedisStoreTest, AStoppedServerIsAMissByTheDeadline) {
  RedisServer server(GetParam(), {});
  RedisOptions options;
  options.stall_timeout = absl::Milliseconds(700);
  options.connect_timeout = absl::Milliseconds(700);
  const auto store = StoreAt({server.address()}, options);
  ExpectRoundTrip(*store, {1});
  server.Signal(SIGSTOP);
  const absl::Duration timeout = absl::Milliseconds(300);
  absl::Time start = absl::Now();
  EXPECT_THAT(GetAndWait(*store, {1}, kBytes, timeout).outcomes, Each(StoreOutcome::kTimedOut));
  EXPECT_LT(absl::Now() - start, timeout + absl::Seconds(1));
  EXPECT_TRUE(WaitUntil([&] {
    return GetAndWait(*store, {1}, kBytes, timeout).outcomes[0] == StoreOutcome::kUnreachable;
  })) << "then nothing waits any more";
  server.Signal(SIGCONT);
  ExpectRecovery(*store, {1});
}

TEST_P(RedisStoreTest, AccessRules) {
  RedisServer server(GetParam(), {"--requirepass", "root"});
  RespClient admin(server.port());
  admin.Do({"AUTH", "root"});
  admin.Do({"ACL", "SETUSER", "red", "on", ">red1", "~red:*", "+get", "+set", "+exists", "+ping"});
  admin.Do({"ACL", "SETUSER", "blue", "on", ">blue", "~blue:*", "+@all"});
  const std::string file = server.directory() + "/password";
  std::ofstream(file) << "red1\n";

  RedisOptions red;
  red.username = "red";
  red.password_file = file;
  red.key_prefix = "red:";
  const auto store = StoreAt({server.address()}, red);
  ExpectRoundTrip(*store, {1, 2});

  RedisOptions blue;
  blue.username = "blue";
  blue.password = "blue";
  blue.key_prefix = "red:";  // Blue guesses the names of red's values.
  const auto thief = StoreAt({server.address()}, blue);
  EXPECT_THAT(GetAndWait(*thief, {1, 2}, kBytes, kTimeout).outcomes, Each(StoreOutcome::kRefused));
  EXPECT_THAT(PutAndWait(*thief, {1, 2}, kBytes, kTimeout), Each(StoreOutcome::kRefused));
  EXPECT_THAT(thief->stats().last_error, testing::HasSubstr("NOPERM"));

  const auto nobody = StoreAt({server.address()});
  EXPECT_THAT(GetAndWait(*nobody, {1}, kBytes, kTimeout).outcomes,
              Each(StoreOutcome::kUnreachable));
  EXPECT_THAT(nobody->stats().last_error, testing::HasSubstr("NOAUTH"));
  blue.password = "wrong";
  const auto wrong = StoreAt({server.address()}, blue);
  EXPECT_THAT(GetAndWait(*wrong, {1}, kBytes, kTimeout).outcomes, Each(StoreOutcome::kUnreachable));
  EXPECT_THAT(wrong->stats().last_error, testing::HasSubstr("WRONGPASS"));

  // The password changes, and so does the file.
  admin.Do({"ACL", "SETUSER", "red", "resetpass", ">red2"});
  std::ofstream(file) << "red2\n";
  admin.Do({"CLIENT", "KILL", "USER", "red"});
  ExpectRecovery(*store, {1, 2});
}

// Two tenants whose daemons have secrets of their own share a store without rules.
TEST_P(RedisStoreTest, SecretsKeepTenantsApart) {
  RedisServer server(GetParam(), {});
  RedisOptions red, blue;
  red.secret = "red's secret";
  blue.secret = "blue's secret";
  const auto red_store = StoreAt({server.address()}, red);
  const auto blue_store = StoreAt({server.address()}, blue);
  ExpectRoundTrip(*red_store, {1, 2});
  EXPECT_THAT(GetAndWait(*blue_store, {1, 2}, kBytes, kTimeout).outcomes,
              Each(StoreOutcome::kMissing));
  // Blue puts a value of its own under the name of red's.
  ExpectRoundTrip(*blue_store, {1});
  RespClient client(server.port());
  const std::string theirs = StoredName("pagoda:", blue.secret, TestKey(1));
  client.Do({"RENAME", theirs, StoredName("pagoda:", red.secret, TestKey(1))});
  EXPECT_THAT(GetAndWait(*red_store, {1}, kBytes, kTimeout).outcomes, Each(StoreOutcome::kInvalid));
  EXPECT_EQ(red_store->stats().faults[static_cast<size_t>(ValueFault::kForged)], 1u);
}

TEST_P(RedisStoreTest, Tls) {
  const TempDirectory directory;
  const std::string& folder = directory.path();
  const std::string command =
      absl::StrCat("cd ", folder,
                   " && exec >log 2>&1 && openssl req -x509 -newkey rsa:2048 -nodes -keyout ca.key "
                   "-out ca.crt -subj /CN=ca "
                   "-days 2 && openssl req -newkey rsa:2048 -nodes -keyout server.key -out "
                   "server.csr -subj /CN=server && "
                   "printf 'subjectAltName=IP:127.0.0.1,DNS:localhost' >san && openssl x509 -req "
                   "-in server.csr -CA ca.crt -CAkey ca.key "
                   "-CAcreateserial -days 2 -extfile san -out server.crt && openssl req -newkey "
                   "rsa:2048 -nodes -keyout client.key -out "
                   "client.csr -subj /CN=client && openssl x509 -req -in client.csr -CA ca.crt "
                   "-CAkey ca.key -CAcreateserial -days 2 "
                   "-out client.crt && openssl req -x509 -newkey rsa:2048 -nodes -keyout other.key "
                   "-out other.crt -subj /CN=other -days 2");
  ASSERT_EQ(std::system(command.c_str()), 0);
  const uint16_t port = FreePort();
  RedisServer server(GetParam(),
                     {"--tls-port", std::to_string(port), "--tls-cert-file", folder + "/server.crt",
                      "--tls-key-file", folder + "/server.key", "--tls-ca-cert-file",
                      folder + "/ca.crt", "--tls-auth-clients", "yes"});
  ASSERT_TRUE(server.is_up());
  RedisOptions options;
  options.tls = {true, folder + "/ca.crt", folder + "/client.crt", folder + "/client.key"};
  for (const char* host : {"127.0.0.1", "localhost"}) {
    const auto store = StoreAt({{host, port}}, options);
    ASSERT_TRUE(WaitUntil([&] {
      return ExistsAndWait(*store, {1}, kTimeout)[0] != StoreOutcome::kUnreachable;
    })) << store->stats().last_error;
    ExpectRoundTrip(*store, Numbers(0, 40));
    ExpectRoundTrip(*store, {1000}, 5 << 20);
    Load load(*store, Numbers(100, 30), absl::Seconds(10));
    absl::SleepFor(absl::Seconds(1));
    load.Stop();
    EXPECT_EQ(load.wrong(), 0);
    EXPECT_GT(load.served(), 0);
  }

  RedisOptions other_authority = options;
  other_authority.tls.ca_file = folder + "/other.crt";
  RedisOptions no_certificate = options;
  no_certificate.tls.certificate_file = no_certificate.tls.key_file = "";
  for (const RedisOptions& bad : {other_authority, no_certificate, RedisOptions()}) {
    const auto store = StoreAt({{"127.0.0.1", port}}, bad);
    const GotBlocks got = GetAndWait(*store, {1}, kBytes, absl::Seconds(3));
    EXPECT_NE(got.outcomes[0], StoreOutcome::kOk) << "TLS was not checked";
    EXPECT_NE(store->stats().last_error, "");
  }
  // The name in the certificate is checked: this one names only the address.
  ASSERT_EQ(std::system(absl::StrCat("cd ", folder,
                                     " && printf subjectAltName=IP:127.0.0.1 >san && openssl x509 "
                                     "-req -in server.csr -CA ca.crt "
                                     "-CAkey ca.key -days 2 -extfile san -out server.crt >log 2>&1")
                            .c_str()),
            0);
  server.Kill();
  server.Start();
  ASSERT_TRUE(server.is_up());
  const auto by_name = StoreAt({{"localhost", port}}, options);
  EXPECT_NE(GetAndWait(*by_name, {1}, kBytes, absl::Seconds(3)).outcomes[0], StoreOutcome::kOk);
  EXPECT_TRUE(WaitUntil([&] {
    return by_name->stats().last_error.find("certificate") != std::string::npos;
  })) << by_name->stats().last_error;
  const auto by_address = StoreAt({{"127.0.0.1", port}}, options);
  EXPECT_EQ(GetAndWait(*by_address, {1}, kBytes, kTimeout).outcomes[0], StoreOutcome::kMissing);
}

// --- Six servers ---

// The GET commands that replicas have served.
uint64_t ReplicaReads(TestCluster& cluster) {
  uint64_t reads = 0;
  for (size_t i = 0; i < cluster.size(); ++i) {
    RespClient client(cluster.server(i).port());
    const std::string info = client.Do({"INFO", "all"}).text;
    const std::string calls = "cmdstat_get:calls=";
    const size_t at = info.find(calls);
    if (info.find("role:slave") != std::string::npos && at != std::string::npos) {
      reads += static_cast<uint64_t>(std::atoll(info.c_str() + at + calls.size()));
    }
  }
  return reads;
}

TEST_P(RedisStoreTest, AClusterFromAnySeed) {
  TestCluster cluster(GetParam());
  ASSERT_TRUE(cluster.is_up());
  for (size_t i = 0; i < cluster.size(); ++i) {
    const auto store = StoreAt({cluster.server(i).address()});
    ExpectRoundTrip(*store, Numbers(static_cast<uint32_t>(1000 * i), 200));
    EXPECT_EQ(store->stats().redirections, 0u) << "the map names each key's server";
  }
  // Replicas answer reads, as soon as the map names them.
  RedisOptions options;
  options.read_from_replicas = true;
  options.map_refresh = absl::Milliseconds(300);
  const auto store = StoreAt(cluster.seeds(), options);
  EXPECT_TRUE(WaitUntil([&] {
    const GotBlocks got = GetAndWait(*store, Numbers(0, 200), kBytes, kTimeout);
    return got.AreRight(Numbers(0, 200)) && CountOf(got.outcomes, StoreOutcome::kOk) == 200 &&
           ReplicaReads(cluster) >= 200;
  }));
}

TEST_P(RedisStoreTest, ASlotThatMovesLosesNothing) {
  TestCluster cluster(GetParam());
  ASSERT_TRUE(cluster.is_up());
  const auto store = StoreAt(cluster.seeds());
  const std::vector<uint32_t> numbers = Numbers(0, 60);
  ExpectRoundTrip(*store, numbers);
  Load load(*store, numbers, absl::Seconds(10));
  for (const uint32_t number : {0, 1, 2}) {
    const uint16_t slot = HashSlot(StoredName("pagoda:", "", TestKey(number)));
    cluster.MoveSlot(slot, [&] { ExpectRoundTrip(*store, {number}); });
  }
  load.Stop();
  EXPECT_EQ(load.wrong(), 0);
  EXPECT_EQ(load.late(), 0);
  ExpectRoundTrip(*store, numbers);
  EXPECT_GT(store->stats().redirections, 0u);
  const uint64_t before = store->stats().redirections;
  absl::SleepFor(absl::Seconds(1));  // The map is asked for again.
  ExpectRoundTrip(*store, numbers);
  EXPECT_EQ(store->stats().redirections, before);
}

TEST_P(RedisStoreTest, AKilledPrimaryIsReplacedUnderLoad) {
  TestCluster cluster(GetParam());
  ASSERT_TRUE(cluster.is_up());
  const auto store = StoreAt(cluster.seeds());
  const std::vector<uint32_t> numbers = Numbers(0, 60);
  ExpectRoundTrip(*store, numbers);
  Load load(*store, numbers, absl::Seconds(2));
  absl::SleepFor(absl::Milliseconds(300));
  const int primary = cluster.PrimaryOf(HashSlot(StoredName("pagoda:", "", TestKey(0))));
  ASSERT_GE(primary, 0);
  cluster.server(static_cast<size_t>(primary)).Kill();
  ExpectRecovery(*store, numbers);
  load.Stop();
  EXPECT_EQ(load.wrong(), 0);
  EXPECT_EQ(load.late(), 0);
  EXPECT_GT(load.served(), 0);
}

TEST_P(RedisStoreTest, AClusterThatIsDownIsAMiss) {
  TestCluster cluster(GetParam());
  ASSERT_TRUE(cluster.is_up());
  const auto store = StoreAt(cluster.seeds());
  ExpectRoundTrip(*store, Numbers(0, 60));
  for (size_t i = 0; i < cluster.size(); ++i) {
    if (i % 2 == 0) cluster.server(i).Kill();
  }
  Load load(*store, Numbers(0, 60), absl::Seconds(1));
  absl::SleepFor(absl::Seconds(4));
  load.Stop();
  EXPECT_EQ(load.wrong(), 0);
  EXPECT_EQ(load.late(), 0);
  for (size_t i = 0; i < cluster.size(); ++i) cluster.server(i).Kill();
  EXPECT_TRUE(WaitUntil([&] {
    const Outcomes outcomes = GetAndWait(*store, Numbers(0, 60), kBytes, absl::Seconds(1)).outcomes;
    return CountOf(outcomes, StoreOutcome::kUnreachable) == 60;
  }));
}

}  // namespace
}  // namespace pagoda
