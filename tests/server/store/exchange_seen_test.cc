// What a daemon shows of its store and of other daemons: /metrics, /api/v1/status and GetStatus.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "google/protobuf/util/json_util.h"
#include "grpcpp/grpcpp.h"
#include "server/daemon.h"
#include "tests/pools/store/redis_servers.h"
#include "tests/server/test_daemon.h"
#include "tests/wait_until.h"

namespace pagoda::server {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

Config ConfigOf(const std::string& name) {
  Config config = TestConfig();
  config.cache.model.name = "org/model";
  config.cache.name = absl::StrCat(config.cache.name, name);
  config.server.unix_socket = absl::StrCat(config.server.unix_socket, name);
  config.server.http_address = "127.0.0.1:0";
  config.peers.address = "127.0.0.1:0";
  config.peers.sources = {"127.0.0.1:*"};
  config.fetch.base = absl::Seconds(5);
  config.store.publish.min_uses = 0;
  config.store.publish.delay = absl::ZeroDuration();
  return config;
}

class SeenDaemon {
 public:
  explicit SeenDaemon(const Config& config) : cache_name_(config.cache.name) {
    absl::StatusOr<std::unique_ptr<Daemon>> started = Daemon::Start(config);
    EXPECT_TRUE(started.ok()) << started.status();
    daemon_ = *std::move(started);
    const auto channel = grpc::CreateChannel("unix:" + config.server.unix_socket,
                                             grpc::InsecureChannelCredentials());
    cache_ = v1::CacheService::NewStub(channel);
    admin_ = v1::AdminService::NewStub(channel);
    v1::OpenSessionResponse opened;
    EXPECT_TRUE(cache_->OpenSession(NewContext().get(), {}, &opened).ok());
    session_ = opened.session();
  }

  std::string peer_endpoint() const { return daemon_->peer_endpoint(); }

  void Cache(const std::vector<uint32_t>& tokens) {
    v1::ExecuteRequest request;
    *request.mutable_session() = session_;
    for (const v1::Operation& operation :
         {AddOp(1, tokens), CommitOp(1, static_cast<uint32_t>(tokens.size())), FreeSequenceOp(1)}) {
      *request.mutable_batch()->add_operations() = operation;
    }
    v1::ExecuteResponse response;
    ASSERT_TRUE(cache_->Execute(NewContext().get(), request, &response).ok());
  }

  v1::FetchPrefixResponse Fetch(const std::vector<uint32_t>& tokens,
                                const std::string& source = "") {
    v1::FetchPrefixRequest request;
    *request.mutable_session() = session_;
    request.mutable_tokens()->Add(tokens.begin(), tokens.end());
    if (!source.empty()) request.mutable_source()->set_address(source);
    v1::FetchPrefixResponse response;
    const grpc::Status status = cache_->FetchPrefix(NewContext().get(), request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }

  v1::GetStatusResponse Status() {
    v1::GetStatusResponse response;
    const grpc::Status status = admin_->GetStatus(NewContext().get(), {}, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }
  // Asks again until the predicate holds.
  template <class Predicate>
  v1::GetStatusResponse StatusWhen(Predicate predicate) {
    v1::GetStatusResponse status;
    EXPECT_TRUE(WaitUntil([&] {
      status = Status();
      return predicate(status);
    })) << status.ShortDebugString();
    return status;
  }

  // The body of the answer to a GET.
  std::string Get(const std::string& path) const {
    const std::string endpoint = daemon_->http_endpoint();
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port =
        htons(static_cast<uint16_t>(std::atoi(endpoint.substr(endpoint.rfind(':') + 1).c_str())));
    inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
      close(fd);
      return "no connection";
    }
    const std::string request = absl::StrCat("GET ", path, " HTTP/1.1\r\nHost: localhost\r\n\r\n");
    EXPECT_EQ(write(fd, request.data(), request.size()), static_cast<ssize_t>(request.size()));
    std::string answer;
    char buffer[4096];
    for (ssize_t n; (n = read(fd, buffer, sizeof(buffer))) > 0;) answer.append(buffer, n);
    close(fd);
    return answer.substr(answer.find("\r\n\r\n") + 3);
  }
  // The answer of /api/v1/status.
  v1::GetStatusResponse HttpStatus() const {
    v1::GetStatusResponse response;
    const auto status =
        google::protobuf::util::JsonStringToMessage(Get("/api/v1/status"), &response);
    EXPECT_TRUE(status.ok()) << status.ToString();
    return response;
  }
  std::string Metric(const std::string& name, const std::string& labels) const {
    return absl::StrCat("\n", name, "{cache=\"", cache_name_, "\"", labels, "} ");
  }

 private:
  const std::string cache_name_;
  std::unique_ptr<Daemon> daemon_;
  std::unique_ptr<v1::CacheService::Stub> cache_;
  std::unique_ptr<v1::AdminService::Stub> admin_;
  v1::SessionRef session_;
};

uint64_t CountOf(const google::protobuf::RepeatedPtrField<v1::NamedCount>& counts,
                 const std::string& name) {
  for (const v1::NamedCount& one : counts) {
    if (one.name() == name) return one.count();
  }
  return 0;
}

TEST(ExchangeSeenTest, NothingIsShownIfNothingIsExchanged) {
  Config config = ConfigOf("-n");
  config.peers = {};
  SeenDaemon daemon(config);
  const v1::GetStatusResponse status = daemon.Status();
  EXPECT_FALSE(status.has_exchange() || status.has_store() || status.has_peer_server());
  const v1::GetStatusResponse http = daemon.HttpStatus();
  EXPECT_FALSE(http.has_exchange() || http.has_store() || http.has_peer_server());
  EXPECT_EQ(http.peer_sources_size(), 0);
  EXPECT_THAT(daemon.Get("/metrics"),
              AllOf(Not(HasSubstr("pagoda_store_")), Not(HasSubstr("pagoda_fetches_total")),
                    Not(HasSubstr("pagoda_peer_")), Not(HasSubstr("pagoda_publisher_"))));
}

TEST(ExchangeSeenTest, AFetchFromAnotherDaemonIsSeenAtBothEnds) {
  SeenDaemon first(ConfigOf("-a")), second(ConfigOf("-b"));
  first.Cache(TokensTo(40));
  ASSERT_EQ(second.Fetch(TokensTo(41), first.peer_endpoint()).fetched_tokens(), 40u);

  const v1::GetStatusResponse status = second.Status();
  EXPECT_FALSE(status.has_store());
  EXPECT_EQ(CountOf(status.exchange().fetches_total(), "fetched"), 1u);
  EXPECT_EQ(status.exchange().fetched_blocks_total(), 40u / kTestTokensPerBlock);
  EXPECT_EQ(status.exchange().fetched_tokens_total(), 40u);
  EXPECT_EQ(status.exchange().unavailable(), "");
  EXPECT_FALSE(status.exchange().has_publisher());
  ASSERT_EQ(status.peer_sources_size(), 1);
  const v1::PeerSourceStatus& source = status.peer_sources(0);
  EXPECT_EQ(source.address(), first.peer_endpoint());
  EXPECT_TRUE(source.connection().up());
  EXPECT_EQ(CountOf(source.connection().gets_total(), "ok"), 40u / kTestTokensPerBlock);
  EXPECT_EQ(source.connection().read_bytes_total(), status.exchange().fetched_bytes_total());
  const std::string text = second.Get("/metrics");
  EXPECT_THAT(text,
              HasSubstr(second.Metric("pagoda_fetches_total", ",outcome=\"fetched\"") + "1\n"));
  EXPECT_THAT(text, HasSubstr(second.Metric("pagoda_fetched_tokens_total", "") + "40\n"));
  EXPECT_THAT(text, HasSubstr(absl::StrCat("\npagoda_source_gets_total{address=\"",
                                           first.peer_endpoint(), "\",outcome=\"ok\"} 10\n")));
  EXPECT_THAT(text, Not(HasSubstr("pagoda_publisher_")));

  const v1::GetStatusResponse served = first.Status();
  EXPECT_EQ(served.peer_server().address(), first.peer_endpoint());
  EXPECT_EQ(served.peer_server().hits_total(), 40u / kTestTokensPerBlock);
  EXPECT_EQ(served.peer_server().index_blocks(), 40u / kTestTokensPerBlock);
  EXPECT_GE(served.peer_server().value_bytes_total(), status.exchange().fetched_bytes_total());
  EXPECT_THAT(first.Get("/metrics"),
              AllOf(HasSubstr("\npagoda_peer_gets_total{outcome=\"hit\"} 10\n"),
                    HasSubstr(first.Metric("pagoda_peer_index_blocks", "") + "10\n")));
  EXPECT_EQ(first.HttpStatus().peer_server().hits_total(), 10u);
  const v1::GetStatusResponse http = second.HttpStatus();
  ASSERT_EQ(http.peer_sources_size(), 1);
  EXPECT_EQ(http.peer_sources(0).address(), first.peer_endpoint());
}

// The server is a real one.
class StoreSeenTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::vector<ServerKind> kinds = InstalledServers();
    if (kinds.empty()) GTEST_SKIP() << "no Redis and no Valkey is installed";
    server_ = std::make_unique<RedisServer>(kinds.front(), std::vector<std::string>{});
    ASSERT_TRUE(server_->is_up());
  }
  Config WithStore(const std::string& name) const {
    Config config = ConfigOf(name);
    config.store.servers = {ToString(server_->address())};
    return config;
  }

  std::unique_ptr<RedisServer> server_;
};

TEST_F(StoreSeenTest, WritesAndFetchesAreCounted) {
  SeenDaemon first(WithStore("-d")), second(WithStore("-e"));
  first.Cache(TokensTo(40));
  const v1::GetStatusResponse written = first.StatusWhen([](const v1::GetStatusResponse& status) {
    return status.exchange().publisher().published_total() > 0 &&
           status.exchange().publisher().in_flight() == 0;
  });
  EXPECT_EQ(written.exchange().published_blocks_total(), 10u);
  EXPECT_EQ(written.exchange().published_bytes_total(), written.store().written_bytes_total());
  EXPECT_EQ(CountOf(written.store().puts_total(), "ok"), 10u);
  EXPECT_TRUE(written.store().up());
  ASSERT_EQ(written.store().servers_size(), 1);
  EXPECT_EQ(written.store().servers(0), ToString(server_->address()));
  ASSERT_EQ(second.Fetch(TokensTo(41)).fetched_tokens(), 40u);
  const v1::GetStatusResponse read = second.Status();
  EXPECT_EQ(CountOf(read.exchange().fetches_total(), "fetched"), 1u);
  EXPECT_EQ(CountOf(read.store().gets_total(), "ok"), 10u);
  EXPECT_EQ(read.store().read_bytes_total(), read.exchange().fetched_bytes_total());
  EXPECT_GT(read.exchange().fetch_bytes_per_second(), 0);
  EXPECT_THAT(first.Get("/metrics"),
              AllOf(HasSubstr(first.Metric("pagoda_published_blocks_total", "") + "10\n"),
                    HasSubstr("\npagoda_store_up 1\n"),
                    HasSubstr("\npagoda_store_operations_total{operation=\"put\",outcome=\"ok\"} "
                              "10\n")));
  const v1::GetStatusResponse http = second.HttpStatus();
  EXPECT_EQ(CountOf(http.store().gets_total(), "ok"), 10u);
  ASSERT_EQ(http.store().servers_size(), 1);
  EXPECT_EQ(http.store().servers(0), ToString(server_->address()));
  EXPECT_EQ(http.exchange().fetched_tokens_total(), 40u);
}

TEST_F(StoreSeenTest, AStoreThatIsAwayIsTold) {
  SeenDaemon daemon(WithStore("-f"));
  daemon.StatusWhen([](const v1::GetStatusResponse& status) { return status.store().up(); });
  server_->Kill();
  daemon.Cache(TokensTo(40));
  const v1::GetStatusResponse status = daemon.StatusWhen([](const v1::GetStatusResponse& now) {
    return !now.store().up() && now.exchange().publisher().store_away();
  });
  EXPECT_NE(status.store().last_error(), "");
  EXPECT_GT(status.store().disconnects_total(), 0u);
  EXPECT_THAT(daemon.Get("/metrics"),
              AllOf(HasSubstr("\npagoda_store_up 0\n"),
                    HasSubstr(daemon.Metric("pagoda_publisher_store_away", "") + "1\n")));
  const v1::GetStatusResponse http = daemon.HttpStatus();
  EXPECT_TRUE(http.has_store());
  EXPECT_FALSE(http.store().up());
  EXPECT_TRUE(http.exchange().publisher().store_away());
}

}  // namespace
}  // namespace pagoda::server
