// Prefill and decode in two daemons, each with the bundled engine.
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "grpcpp/grpcpp.h"
#include "server/daemon.h"
#include "tests/server/store/other_daemon.h"
#include "tests/server/test_daemon.h"

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
  const auto stub = v1::EngineService::NewStub(daemon.channel);
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

TEST(PrefillDecodeTest, ADaemonEndsWhileAPromptIsFetched) {
  // Nothing listens at the source, so the fetch lasts for a while.
  Config slow = WithEngine("-c");
  slow.server.drain_timeout = absl::ZeroDuration();
  const std::vector<uint32_t> prompt = PromptOf(150);
  for (int i = 0; i < 3; ++i) {
    const Other decode(slow);
    v1::GenerateRequest request;
    request.mutable_prompt_tokens()->Add(prompt.begin(), prompt.end());
    request.set_max_new_tokens(1);
    request.mutable_source()->set_address("127.0.0.1:1");
    const auto context = NewContext();
    const auto stub = v1::EngineService::NewStub(decode.channel);
    const auto reader = stub->Generate(context.get(), request);
    // The daemon ends here, with the request where it is.
  }
}

}  // namespace
}  // namespace pagoda::server
