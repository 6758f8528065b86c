// Two daemons in this process: prefixes that one has cached, and the other one fetches.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/error.h"
#include "base/file_descriptor.h"
#include "clients/cpp/prefix_fetcher.h"
#include "grpcpp/grpcpp.h"
#include "server/daemon.h"
#include "tests/clients/fixtures/temp_directory.h"
#include "tests/pools/store/redis_servers.h"
#include "tests/server/store/other_daemon.h"
#include "tests/server/test_daemon.h"

namespace pagoda::server {
namespace {

std::vector<TokenId> TokensOf(uint32_t count) {
  const std::vector<uint32_t> tokens = TokensTo(count);
  return {tokens.begin(), tokens.end()};
}

void CacheIn(const Other& daemon, const std::vector<uint32_t>& tokens) {
  v1::ExecuteRequest request;
  *request.mutable_session() = daemon.session;
  for (const v1::Operation& operation :
       {AddOp(1, tokens), CommitOp(1, static_cast<uint32_t>(tokens.size())), FreeSequenceOp(1)}) {
    *request.mutable_batch()->add_operations() = operation;
  }
  v1::ExecuteResponse response;
  ASSERT_TRUE(daemon.cache->Execute(NewContext().get(), request, &response).ok());
  for (const v1::OperationResult& result : response.result().results()) {
    ASSERT_FALSE(result.has_error()) << result.error().message();
  }
}

class PeersTest : public DaemonTest {
 protected:
  PeersTest() : DaemonTest(ConfigOfOne("-a")) {}

  v1::ExportPrefixResponse Export(const v1::SessionRef& session,
                                  const std::vector<uint32_t>& tokens) {
    v1::ExportPrefixRequest request;
    *request.mutable_session() = session;
    request.mutable_tokens()->Add(tokens.begin(), tokens.end());
    request.set_lease_ms(60'000);
    v1::ExportPrefixResponse response;
    const grpc::Status status = cache().ExportPrefix(NewContext().get(), request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }

  const Other other_{ConfigOfOne("-b")};
};

TEST_F(PeersTest, APrefixComesFromTheNamedDaemon) {
  const v1::SessionRef session = OpenRef();
  CacheTokens(session, TokensTo(40));
  other_.ExpectFetch(other_.Fetch(TokensTo(41)), v1::FETCH_OUTCOME_NO_SOURCE, 0, 0);
  other_.ExpectFetch(other_.Fetch(TokensTo(41), daemon().peer_endpoint()),
                     v1::FETCH_OUTCOME_FETCHED, 40, 40);
  other_.ExpectFetch(other_.Fetch(TokensTo(41), daemon().peer_endpoint()), v1::FETCH_OUTCOME_CACHED,
                     0, 40);
}

TEST_F(PeersTest, ADaemonThatIsAwayCostsTheFetchAlone) {
  Config bounded = ConfigOfOne("-c");
  bounded.fetch.base = absl::Milliseconds(200);
  const Other other(bounded);
  const absl::Time begun = absl::Now();
  other.ExpectFetch(other.Fetch(TokensTo(41), "127.0.0.1:1"), v1::FETCH_OUTCOME_FAILED, 0, 0);
  EXPECT_LT(absl::Now() - begun, absl::Seconds(5));
}

TEST_F(PeersTest, ClientsCannotNameOtherMachines) {
  for (const char* const address :
       {"127.0.0.2:7072", "localhost:7072", "[::1]:7072", "127.0.0.1.example:7072"}) {
    const Other::Answer answer = other_.Fetch(TokensTo(41), address);
    EXPECT_EQ(InfoOf(answer.status).reason(), "PERMISSION_DENIED") << address;
  }
  const Other::Answer answer = other_.Fetch(TokensTo(41), "127.0.0.1:port");
  EXPECT_EQ(InfoOf(answer.status).reason(), "INVALID_ARGUMENT");
}

TEST_F(PeersTest, BadPromptsAreRefused) {
  EXPECT_EQ(InfoOf(other_.Fetch({}).status).reason(), "INVALID_COUNT");
  v1::FetchPrefixRequest request;
  request.add_tokens(1);
  v1::FetchPrefixResponse response;
  EXPECT_EQ(InfoOf(other_.cache->FetchPrefix(NewContext().get(), request, &response)).reason(),
            "UNKNOWN_SESSION");
}

TEST_F(PeersTest, AnExportedPrefixStaysUntilItsPinEnds) {
  const v1::SessionRef session = OpenRef();
  CacheTokens(session, TokensTo(22));
  const v1::ExportPrefixResponse exported = Export(session, TokensTo(22));
  EXPECT_EQ(exported.exported_tokens(), 20u);
  EXPECT_EQ(exported.stored_tokens(), 0u);
  EXPECT_NE(exported.pin_id(), 0u);
  EXPECT_EQ(exported.source().address(), daemon().peer_endpoint());
  // Other sequences take all blocks but the pinned ones.
  const std::vector<BlockHandle> taken = Allocate(session, kTestBlocks - 6);
  other_.ExpectFetch(other_.Fetch(TokensTo(22), daemon().peer_endpoint()),
                     v1::FETCH_OUTCOME_FETCHED, 20, 20);
  Run(session, FreeOp(taken));
  v1::Operation unpin;
  unpin.mutable_unpin_prefix()->set_pin_id(exported.pin_id());
  Run(session, unpin);
}

TEST_F(PeersTest, TheClientLibraryFetches) {
  CacheTokens(OpenRef(), TokensTo(40));
  const absl::StatusOr<std::unique_ptr<PrefixFetcher>> fetcher =
      PrefixFetcher::Open({.endpoint = other_.endpoint, .client_name = "test"});
  ASSERT_TRUE(fetcher.ok()) << fetcher.status();
  const auto fetch = [&](PrefixToFetch prefix) { return (*fetcher)->Fetch(prefix); };
  absl::StatusOr<FetchedFromAfar> fetched = fetch({.name_space = {}, .tokens = TokensOf(41)});
  ASSERT_TRUE(fetched.ok()) << fetched.status();
  EXPECT_EQ(fetched->outcome, FetchOutcome::kNoSource);
  fetched = fetch({.name_space = {}, .tokens = TokensOf(41), .source = daemon().peer_endpoint()});
  ASSERT_TRUE(fetched.ok()) << fetched.status();
  EXPECT_EQ(fetched->outcome, FetchOutcome::kFetched);
  EXPECT_EQ(fetched->fetched_tokens, 40u);
  EXPECT_EQ(fetched->matched_tokens, 40u);
  fetched = fetch({.name_space = {}, .tokens = TokensOf(41), .source = "127.0.0.2:1"});
  EXPECT_EQ(ReasonOf(fetched.status()), Reason::kPermissionDenied);
  fetched = fetch({.name_space = {}, .tokens = {}});
  EXPECT_EQ(ReasonOf(fetched.status()), Reason::kInvalidCount);
}

TEST_F(PeersTest, ACancelledFetchEndsAlthoughTheSourceIsSilent) {
  Config patient = ConfigOfOne("-c");
  patient.fetch.base = absl::Minutes(10);
  const Other other(patient);
  const FileDescriptor silent(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  socklen_t size = sizeof(address);
  ASSERT_EQ(bind(silent.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(silent.get(), 8), 0);
  ASSERT_EQ(getsockname(silent.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  const absl::StatusOr<std::unique_ptr<PrefixFetcher>> fetcher =
      PrefixFetcher::Open({.endpoint = other.endpoint, .client_name = "test"});
  ASSERT_TRUE(fetcher.ok()) << fetcher.status();
  absl::Status status;
  absl::Notification ended;
  const uint64_t fetch =
      (*fetcher)->Fetch({.name_space = {},
                         .tokens = TokensOf(41),
                         .source = absl::StrCat("127.0.0.1:", ntohs(address.sin_port))},
                        [&](const absl::StatusOr<FetchedFromAfar>& fetched) {
                          status = fetched.status();
                          ended.Notify();
                        });
  (*fetcher)->Cancel(fetch + 1);  // There is none.
  EXPECT_FALSE(ended.HasBeenNotified());
  (*fetcher)->Cancel(fetch);
  EXPECT_TRUE(ended.WaitForNotificationWithTimeout(absl::Seconds(60)));
  EXPECT_TRUE(absl::IsCancelled(status)) << status;
  (*fetcher)->Cancel(fetch);
}

TEST_F(PeersTest, NothingIsExportedThatIsNotCached) {
  const v1::ExportPrefixResponse exported = Export(OpenRef(), TokensTo(22));
  EXPECT_EQ(exported.exported_tokens(), 0u);
  EXPECT_EQ(exported.pin_id(), 0u);
}

// store.secret_file says which daemons believe each other.
class PeerSecretsTest : public testing::Test {
 protected:
  std::string FileOf(const std::string& text) const {
    const std::string path = folder_.File(text);
    std::ofstream(path) << text << "\n";
    std::filesystem::permissions(path, std::filesystem::perms(0600));
    return path;
  }
  Config WithSecret(const std::string& name, const std::string& secret) const {
    Config config = ConfigOfOne(name);
    if (!secret.empty()) config.store.secret_file = FileOf(secret);
    return config;
  }
  // With a tenant that shares its prefixes with others.
  Config WithTenant(const std::string& secret) const {
    Config config = WithSecret("-d", secret);
    config.tenants = {
        {.name = "alice", .credentials = {.tokens_file = FileOf(kToken)}, .shares = true},
        {.name = "bob", .credentials = {.tokens_file = FileOf(kOtherToken)}}};
    config.peers.address.clear();
    return config;
  }
  static constexpr char kToken[] = "alice-has-this-token";
  static constexpr char kOtherToken[] = "bob-has-another-token";

 private:
  const TempDirectory folder_;
};

TEST_F(PeerSecretsTest, OnlyDaemonsWithTheSameSecretReadEachOther) {
  const Other first(WithSecret("-c", "one secret"));
  CacheIn(first, TokensTo(40));
  const std::string source = first.daemon->peer_endpoint();
  for (const char* const secret : {"", "another secret"}) {
    const Other second(WithSecret("-d", secret));
    second.ExpectFetch(second.Fetch(TokensTo(41), source), v1::FETCH_OUTCOME_MISSING, 0, 0);
  }
  const Other second(WithSecret("-d", "one secret"));
  second.ExpectFetch(second.Fetch(TokensTo(41), source), v1::FETCH_OUTCOME_FETCHED, 40, 40);
}

TEST_F(PeerSecretsTest, ATenantThatSharesFetchesOnlyWhatASecretAuthenticates) {
  {
    const Other first(WithSecret("-c", ""));
    CacheIn(first, TokensTo(40));
    const std::string source = first.daemon->peer_endpoint();
    const Other alice(WithTenant(""), kToken);
    const Other::Answer answer = alice.Fetch(TokensTo(41), source);
    EXPECT_EQ(InfoOf(answer.status).reason(), "PERMISSION_DENIED");
    EXPECT_EQ(answer.status.error_message(),
              "the tenant 'alice' shares its prefixes, so other tenants would read what the source "
              "answers: set store.secret_file on both daemons");
  }
  {
    // What bob fetches is bob's own.
    const Other first(WithSecret("-c", ""));
    const Other bob(WithTenant(""), kOtherToken);
    bob.ExpectFetch(bob.Fetch(TokensTo(41), first.daemon->peer_endpoint()),
                    v1::FETCH_OUTCOME_MISSING, 0, 0);
  }
  const Other first(WithSecret("-c", "one secret"));
  CacheIn(first, TokensTo(40));
  const Other alice(WithTenant("one secret"), kToken);
  alice.ExpectFetch(alice.Fetch(TokensTo(41), first.daemon->peer_endpoint()),
                    v1::FETCH_OUTCOME_FETCHED, 40, 40);
}

// The store between two daemons is a real server.
class StoreBetweenTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::vector<ServerKind> kinds = InstalledServers();
    if (kinds.empty()) GTEST_SKIP() << "no Redis and no Valkey is installed";
    server_ = std::make_unique<RedisServer>(kinds.front(), std::vector<std::string>{});
    ASSERT_TRUE(server_->is_up());
  }
  Config WithStore(const std::string& name) const {
    Config config = ConfigOfOne(name);
    config.store.servers = {ToString(server_->address())};
    return config;
  }

  std::unique_ptr<RedisServer> server_;
};

TEST_F(StoreBetweenTest, APrefixOfOneDaemonIsFetchedByTheOtherOne) {
  const Other first(WithStore("-d")), second(WithStore("-e"));
  CacheIn(first, TokensTo(40));
  Other::Answer answer;
  const absl::Time until = absl::Now() + absl::Seconds(20);
  do {
    answer = second.Fetch(TokensTo(41));
    ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  } while (answer.response.matched_tokens() < 40 && absl::Now() < until);
  EXPECT_EQ(answer.response.matched_tokens(), 40u);
}

TEST_F(StoreBetweenTest, ThePolicyDecidesWhatIsWritten) {
  Config used_once = WithStore("-d");
  used_once.store.publish.min_uses = 1;
  const Other first(used_once), second(WithStore("-e"));
  CacheIn(first, TokensTo(28));
  absl::SleepFor(absl::Milliseconds(300));  // Longer than the delay and some ticks.
  second.ExpectFetch(second.Fetch(TokensTo(29)), v1::FETCH_OUTCOME_MISSING, 0, 0);
  // ExportPrefix writes without asking the policy.
  v1::ExportPrefixRequest request;
  *request.mutable_session() = first.session;
  request.mutable_tokens()->Add(0);
  for (uint32_t token = 1; token < 28; ++token) request.add_tokens(token);
  request.set_lease_ms(1000);
  request.set_to_store(true);
  v1::ExportPrefixResponse exported;
  const grpc::Status status = first.cache->ExportPrefix(NewContext().get(), request, &exported);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(exported.stored_tokens(), 28u);
  second.ExpectFetch(second.Fetch(TokensTo(29)), v1::FETCH_OUTCOME_FETCHED, 28, 28);
}

TEST_F(StoreBetweenTest, AStoreThatStallsIsAMissByTheDeadline) {
  Config bounded = WithStore("-e");
  bounded.fetch.base = absl::Milliseconds(300);
  bounded.fetch.per_1k_tokens = absl::ZeroDuration();
  const Other daemon(bounded);
  server_->Signal(SIGSTOP);
  const absl::Time begun = absl::Now();
  const Other::Answer answer = daemon.Fetch(TokensTo(41));
  const absl::Duration took = absl::Now() - begun;
  server_->Signal(SIGCONT);
  daemon.ExpectFetch(answer, v1::FETCH_OUTCOME_FAILED, 0, 0);
  EXPECT_GE(took, absl::Milliseconds(250));
  EXPECT_LT(took, absl::Seconds(3));
}

TEST_F(StoreBetweenTest, AFetcherEndsWhileItsFetchWaits) {
  const Other daemon(WithStore("-e"));
  server_->Signal(SIGSTOP);
  absl::StatusOr<std::unique_ptr<PrefixFetcher>> fetcher =
      PrefixFetcher::Open({.endpoint = daemon.endpoint, .client_name = "test"});
  ASSERT_TRUE(fetcher.ok()) << fetcher.status();
  absl::Notification ended;
  absl::Status status;
  (*fetcher)->Fetch({.name_space = {}, .tokens = TokensOf(41)},
                    [&](const absl::StatusOr<FetchedFromAfar>& fetched) {
                      status = fetched.status();
                      ended.Notify();
                    });
  fetcher->reset();
  EXPECT_TRUE(ended.HasBeenNotified());
  EXPECT_TRUE(absl::IsCancelled(status)) << status;
  server_->Signal(SIGCONT);
}

TEST_F(StoreBetweenTest, ADaemonEndsWhileItsStoreStalls) {
  auto daemon = std::make_unique<Other>(WithStore("-e"));
  server_->Signal(SIGSTOP);
  CacheIn(*daemon, TokensTo(40));
  absl::SleepFor(absl::Milliseconds(100));  // Some ticks, so that a publish waits for the store.
  const absl::Time begun = absl::Now();
  daemon.reset();
  server_->Signal(SIGCONT);
  // A publish may take five seconds.
  EXPECT_LT(absl::Now() - begun, absl::Seconds(3));
}

}  // namespace
}  // namespace pagoda::server
