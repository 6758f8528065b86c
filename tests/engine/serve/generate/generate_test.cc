#include <gtest/gtest.h>
#include <unistd.h>

#include <optional>

#include "tests/server/test_daemon.h"

namespace pagoda::server {
namespace {

v1::GenerateRequest Prompt(uint32_t prompt_tokens, uint32_t max_new_tokens) {
  v1::GenerateRequest request;
  for (uint32_t i = 0; i < prompt_tokens; ++i) request.add_prompt_tokens(i % 50 + 1);
  request.set_max_new_tokens(max_new_tokens);
  return request;
}

struct Generation {
  std::vector<uint32_t> tokens;  // The tokens of the first sample.
  int generated = 0;             // Tokens of all samples, if there are several.
  std::optional<v1::GenerateReport> report;
  grpc::Status status;
};

Generation Generate(const std::shared_ptr<grpc::Channel>& channel,
                    const v1::GenerateRequest& request) {
  const auto stub = v1::EngineService::NewStub(channel);
  const auto context = NewContext();
  const auto reader = stub->Generate(context.get(), request);
  Generation result;
  v1::GenerateResponse response;
  while (reader->Read(&response)) {
    EXPECT_FALSE(result.report.has_value()) << "the report is in the last message";
    result.tokens.insert(result.tokens.end(), response.tokens().begin(), response.tokens().end());
    result.generated += response.generated_size();
    if (response.has_report()) result.report = response.report();
  }
  result.status = reader->Finish();
  return result;
}

class NoEngineTest : public DaemonTest {};

TEST_F(NoEngineTest, ADaemonDoesNotGenerate) {
  const Generation refused = Generate(channel(), Prompt(3, 1));
  EXPECT_EQ(refused.status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_FALSE(Status().has_engine());
}

Config EngineConfig() {
  Config config = TestConfig();
  config.cache.tokens_per_block = 16;
  config.cache.primary = BlockBudget{{256}};
  config.engine.model_dir = GOLDEN_MODEL;
  return config;
}

class EngineTest : public DaemonTest {
 protected:
  EngineTest() : DaemonTest(EngineConfig()) {}

  // The engine's own, not the daemon's.
  const std::shared_ptr<grpc::Channel> channel_ = EngineChannel();
  std::shared_ptr<grpc::Channel> channel() const { return channel_; }
};

TEST_F(EngineTest, AFieldForLaterIsRefusedFirst) {
  v1::GenerateRequest request = Prompt(0, 1);
  // The former field `tenant`.
  v1::GenerateRequest::GetReflection()->MutableUnknownFields(&request)->AddLengthDelimited(10, "x");
  EXPECT_EQ(InfoOf(Generate(channel(), request).status).reason(), "FIELD_NOT_SERVED");
}

TEST_F(EngineTest, TokensStreamAndTheReportIsLast) {
  const Generation first = Generate(channel(), Prompt(40, 6));
  ASSERT_TRUE(first.status.ok()) << first.status.error_message();
  EXPECT_EQ(first.tokens.size(), 6u);
  ASSERT_TRUE(first.report.has_value());
  EXPECT_EQ(first.report->prompt_tokens(), 40u);
  EXPECT_EQ(first.report->generated_tokens(), 6u);
  EXPECT_EQ(first.report->reused_tokens(), 0u);
  EXPECT_EQ(first.report->finish_reason(), v1::FINISH_REASON_LENGTH);

  const Generation again = Generate(channel(), Prompt(40, 6));
  EXPECT_EQ(again.tokens, first.tokens);
  // All tokens except the last, whose logits are needed: a part of the tail block is copied.
  EXPECT_EQ(again.report->reused_tokens(), 39u);
  EXPECT_EQ(Status().engine().model(), "qwen3_tiny");
  EXPECT_EQ(Primary().active_blocks(), 0u);
}

TEST_F(EngineTest, TheEnginesOwnRefusalsComeThrough) {
  EXPECT_EQ(InfoOf(Generate(channel(), Prompt(0, 1)).status).reason(), "INVALID_PROMPT");
}

TEST_F(EngineTest, ABeamSearchSaysItsBestAnswersAndScoresAtTheEnd) {
  v1::GenerateRequest request = Prompt(40, 6);
  request.set_beam_width(4);
  request.set_num_samples(2);
  request.set_length_penalty(0);
  const Generation search = Generate(channel(), request);
  ASSERT_TRUE(search.status.ok()) << search.status.error_message();
  EXPECT_EQ(search.tokens.size(), 6u);
  EXPECT_EQ(search.generated, 12);
  ASSERT_EQ(search.report->beam_scores_size(), 2);
  // Without a penalty a score is a sum. With the default it is divided by the length.
  request.clear_length_penalty();
  const Generation divided = Generate(channel(), request);
  ASSERT_EQ(divided.report->beam_scores_size(), 2);
  EXPECT_NEAR(divided.report->beam_scores(0), search.report->beam_scores(0) / 6, 1e-4);
  EXPECT_GT(search.report->beam_scores(0), search.report->beam_scores(1));
  EXPECT_EQ(Primary().active_blocks(), 0u);
  request.set_temperature(0.5);
  EXPECT_EQ(InfoOf(Generate(channel(), request).status).reason(), "INVALID_SAMPLING");
}

TEST_F(EngineTest, ACancelledGenerationStopsAndTheNextOneRuns) {
  const auto stub = v1::EngineService::NewStub(channel());
  const auto context = NewContext();
  // A generation as long as the model allows, so that the cancellation comes before its end.
  const auto reader = stub->Generate(context.get(), Prompt(8, 4000));
  v1::GenerateResponse response;
  ASSERT_TRUE(reader->Read(&response));
  context->TryCancel();
  while (reader->Read(&response)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  // Requests run in the order of arrival: this one waits until the cancelled one has stopped.
  EXPECT_TRUE(Generate(channel(), Prompt(4, 2)).status.ok());
  EXPECT_EQ(Primary().active_blocks(), 0u);
}

}  // namespace
}  // namespace pagoda::server
