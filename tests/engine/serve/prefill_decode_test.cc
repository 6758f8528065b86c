// Prefill and decode in two daemons, each with the bundled engine.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/file_descriptor.h"
#include "grpcpp/grpcpp.h"
#include "server/config/listen_address.h"
#include "server/daemon.h"
#include "tests/server/store/other_daemon.h"
#include "tests/server/test_daemon.h"
#include "tests/wait_until.h"

namespace pagoda::server {
namespace {

constexpr uint32_t kBlock = 16;

Config WithEngine(const std::string& name) {
  Config config = ConfigOfOne(name);
  config.cache.model = {};
  config.cache.tokens_per_block = kBlock;
  config.cache.primary = BlockBudget{{256}};
  config.engine.model_dir = GOLDEN_MODEL;
  return config;
}

std::vector<uint32_t> PromptOf(uint32_t tokens) {
  std::vector<uint32_t> prompt;
  for (uint32_t i = 0; i < tokens; ++i) prompt.push_back(i * 7 % 50 + 1);
  return prompt;
}

struct Generated {
  std::vector<uint32_t> tokens;
  uint32_t reused = 0;
  grpc::Status status;
};

Generated Generate(const Other& daemon, const std::vector<uint32_t>& prompt, uint32_t most,
                   const std::string& source = "") {
  v1::GenerateRequest request;
  request.mutable_prompt_tokens()->Add(prompt.begin(), prompt.end());
  request.set_max_new_tokens(most);
  if (!source.empty()) request.mutable_source()->set_address(source);
  const auto context = NewContext();
  const auto stub = v1::EngineService::NewStub(EngineChannelOf(*daemon.daemon));
  const auto reader = stub->Generate(context.get(), request);
  Generated generated;
  for (v1::GenerateResponse response; reader->Read(&response);) {
    generated.tokens.insert(generated.tokens.end(), response.tokens().begin(),
                            response.tokens().end());
    if (response.has_report()) generated.reused = response.report().reused_tokens();
  }
  generated.status = reader->Finish();
  return generated;
}

v1::ExportPrefixResponse Export(const Other& daemon, const std::vector<uint32_t>& prompt) {
  v1::ExportPrefixRequest request;
  *request.mutable_session() = daemon.session;
  request.mutable_tokens()->Add(prompt.begin(), prompt.end());
  request.set_lease_ms(60'000);
  v1::ExportPrefixResponse response;
  const grpc::Status status = daemon.cache->ExportPrefix(NewContext().get(), request, &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return response;
}

TEST(PrefillDecodeTest, OneDaemonComputesThePromptAndTheOtherOneAnswers) {
  const Other alone(WithEngine("-a")), prefill(WithEngine("-b")), decode(WithEngine("-c"));
  const std::vector<uint32_t> prompt = PromptOf(150);
  const Generated expected = Generate(alone, prompt, 12);
  ASSERT_EQ(expected.tokens.size(), 12u) << expected.status.error_message();

  const Generated first = Generate(prefill, prompt, 1);
  ASSERT_EQ(first.tokens, std::vector<uint32_t>{expected.tokens.front()});
  const v1::ExportPrefixResponse exported = Export(prefill, prompt);
  EXPECT_EQ(exported.exported_tokens(), 9 * kBlock);

  std::vector<uint32_t> continued = prompt;
  continued.push_back(first.tokens.front());
  const Generated rest = Generate(decode, continued, 11, exported.source().address());
  ASSERT_TRUE(rest.status.ok()) << rest.status.error_message();
  EXPECT_EQ(rest.reused, 9 * kBlock);
  EXPECT_EQ(rest.tokens, std::vector<uint32_t>(expected.tokens.begin() + 1, expected.tokens.end()));
}

TEST(PrefillDecodeTest, WithoutItsSourceTheDecoderComputesThePrompt) {
  const Other alone(WithEngine("-a")), decode(WithEngine("-c"));
  const std::vector<uint32_t> prompt = PromptOf(150);
  const Generated expected = Generate(alone, prompt, 12);
  const Generated generated = Generate(decode, prompt, 12, "127.0.0.1:1");
  EXPECT_TRUE(generated.status.ok()) << generated.status.error_message();
  EXPECT_EQ(generated.reused, 0u);
  EXPECT_EQ(generated.tokens, expected.tokens);
  EXPECT_EQ(InfoOf(Generate(decode, prompt, 1, "127.0.0.2:1").status).reason(),
            "PERMISSION_DENIED");
}

// A source that accepts connections and says nothing.
class SilentSource {
 public:
  SilentSource() : listener_(*ListenOn({.host = "127.0.0.1", .port = 0}, 8)) {
    fcntl(listener_.fd.get(), F_SETFL, 0);  // accept() waits.
  }
  std::string address() const { return listener_.address.ToString(); }
  void WaitForConnection() {
    connection_ = FileDescriptor(accept(listener_.fd.get(), nullptr, nullptr));
    EXPECT_TRUE(connection_.valid());
  }

 private:
  const ListeningSocket listener_;
  FileDescriptor connection_;
};

// How long a daemon takes to end while it fetches a prompt.
absl::Duration EndWhileAPromptIsFetched() {
  Config slow = WithEngine("-c");
  slow.server.drain_timeout = absl::Milliseconds(50);
  slow.fetch.base = absl::Minutes(5);
  SilentSource source;
  auto decode = std::make_unique<Other>(slow);
  v1::GenerateRequest request;
  for (const uint32_t token : PromptOf(150)) request.add_prompt_tokens(token);
  request.set_max_new_tokens(1);
  request.mutable_source()->set_address(source.address());
  const auto context = NewContext();
  const auto stub = v1::EngineService::NewStub(EngineChannelOf(*decode->daemon));
  const auto reader = stub->Generate(context.get(), request);
  source.WaitForConnection();
  const absl::Time begun = absl::Now();
  decode.reset();
  return absl::Now() - begun;
}

// The source's connection would time out after two seconds, and the fetch after minutes.
TEST(PrefillDecodeTest, ADaemonEndsWhileAPromptIsFetched) {
  EXPECT_TRUE(TakesLess(absl::Milliseconds(1500), EndWhileAPromptIsFetched));
}

// The same while a client waits for a fetch.
absl::Duration EndWhileAClientWaitsForAFetch() {
  Config slow = ConfigOfOne("-c");
  slow.server.drain_timeout = absl::Milliseconds(50);
  slow.fetch.base = absl::Minutes(5);
  SilentSource source;
  auto daemon = std::make_unique<Other>(slow);
  v1::FetchPrefixRequest request;
  *request.mutable_session() = daemon->session;
  for (uint32_t token = 0; token < 41; ++token) request.add_tokens(token);
  request.mutable_source()->set_address(source.address());
  const auto context = NewContext();
  v1::FetchPrefixResponse response;
  absl::Notification answered;
  daemon->cache->async()->FetchPrefix(context.get(), &request, &response,
                                      [&](const grpc::Status&) { answered.Notify(); });
  source.WaitForConnection();
  const absl::Time begun = absl::Now();
  daemon->daemon.reset();
  const absl::Duration took = absl::Now() - begun;
  answered.WaitForNotification();
  return took;
}

TEST(PrefillDecodeTest, ADaemonEndsWhileItsClientWaitsForAFetch) {
  EXPECT_TRUE(TakesLess(absl::Milliseconds(1500), EndWhileAClientWaitsForAFetch));
}

}  // namespace
}  // namespace pagoda::server
