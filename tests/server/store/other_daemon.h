// Daemons in this process that exchange prefixes, and a client's session in each.
#ifndef PAGODA_TESTS_SERVER_STORE_OTHER_DAEMON_H_
#define PAGODA_TESTS_SERVER_STORE_OTHER_DAEMON_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "grpcpp/grpcpp.h"
#include "server/daemon.h"
#include "tests/server/test_daemon.h"

namespace pagoda::server {

// `name`: distinguishes the daemons of a test. Each answers peers and reads from any of this
// machine.
inline Config ConfigOfOne(const std::string& name) {
  Config config = TestConfig();
  config.cache.model.name = "org/model";
  config.peers.address = "127.0.0.1:0";
  config.peers.sources = {"127.0.0.1:*"};
  config.fetch.base = absl::Seconds(5);
  config.store.publish.min_uses = 0;
  config.store.publish.delay = absl::ZeroDuration();
  config.cache.name = absl::StrCat(config.cache.name, name);
  config.server.unix_socket = absl::StrCat(config.server.unix_socket, name);
  return config;
}

// A daemon, with a session of a client that shows the token, if there is one.
struct Other {
  explicit Other(const Config& config, const std::string& client_token = "")
      : endpoint("unix:" + config.server.unix_socket), token(client_token) {
    absl::StatusOr<std::unique_ptr<Daemon>> started = Daemon::Start(config);
    EXPECT_TRUE(started.ok()) << started.status();
    daemon = *std::move(started);
    channel = grpc::CreateChannel(endpoint, grpc::InsecureChannelCredentials());
    cache = v1::CacheService::NewStub(channel);
    v1::OpenSessionResponse opened;
    EXPECT_TRUE(cache->OpenSession(Context().get(), {}, &opened).ok());
    session = opened.session();
  }

  std::unique_ptr<grpc::ClientContext> Context() const {
    std::unique_ptr<grpc::ClientContext> context = NewContext();
    if (!token.empty()) context->AddMetadata("authorization", "Bearer " + token);
    return context;
  }

  struct Answer {
    grpc::Status status;
    v1::FetchPrefixResponse response;
  };
  Answer Fetch(const std::vector<uint32_t>& tokens, const std::string& source = "") const {
    v1::FetchPrefixRequest request;
    *request.mutable_session() = session;
    request.mutable_tokens()->Add(tokens.begin(), tokens.end());
    if (!source.empty()) request.mutable_source()->set_address(source);
    Answer answer;
    answer.status = cache->FetchPrefix(Context().get(), request, &answer.response);
    return answer;
  }
  void ExpectFetch(const Answer& answer, v1::FetchOutcome outcome, uint32_t fetched,
                   uint32_t matched) const {
    EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
    EXPECT_EQ(v1::FetchOutcome_Name(answer.response.outcome()), v1::FetchOutcome_Name(outcome));
    EXPECT_EQ(answer.response.fetched_tokens(), fetched);
    EXPECT_EQ(answer.response.matched_tokens(), matched);
  }

  std::string endpoint;
  std::string token;
  std::unique_ptr<Daemon> daemon;
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<v1::CacheService::Stub> cache;
  v1::SessionRef session;
};

}  // namespace pagoda::server

#endif  // PAGODA_TESTS_SERVER_STORE_OTHER_DAEMON_H_
