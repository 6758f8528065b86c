// The requests that an engine accepts and refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "base/error.h"
#include "engine/engine.h"
#include "tests/engine/fixtures/golden.h"
#include "tests/engine/fixtures/test_cache.h"

namespace pagoda {
namespace {

using ::testing::HasSubstr;

class EngineFrontendsTest : public ::testing::Test {
 protected:
  std::unique_ptr<Engine> Create(Engine::Options options) {
    options.model_dir = golden_.model_dir;
    return *Engine::Create(std::move(options), cache_.OpenClient());
  }
  GenerateRequest Request(const std::string& tenant, uint32_t max_new_tokens) const {
    GenerateRequest request = {.prompt = golden_.prompt, .max_new_tokens = max_new_tokens};
    request.tenant = tenant;
    return request;
  }

 private:
  const Golden golden_ = ReadGolden(kTinyModel);
  TestCache cache_{*Engine::CacheSpecForModel(golden_.model_dir, 16, DType::kFloat32),
                   {.primary_blocks = 512},
                   nullptr,
                   {{.name = "red", .shares = true}, {.name = "blue", .shares = true}}};
};

TEST_F(EngineFrontendsTest, AFullQueueIsRefused) {
  const auto engine = Create({.waiting = {.requests = 0}});
  EXPECT_EQ(ReasonOf(engine->Submit(Request("", 1), nullptr, nullptr)), Reason::kQueueFull);
}

// One request runs until it is told to end; the others wait.
TEST_F(EngineFrontendsTest, ATenantThatFillsTheQueueLeavesAnotherItsPart) {
  std::atomic<int> ended = 0;
  std::atomic<bool> stop = false;
  const auto engine = Create({.scheduler = {.max_running_sequences = 1},
                              .waiting = {.requests = 8},
                              .tenants = {"red", "blue"}});
  const auto submit = [&](const std::string& tenant, uint32_t max_new_tokens) {
    return engine->Submit(
        Request(tenant, max_new_tokens),
        [&, max_new_tokens](const GeneratedToken&) { return !stop || max_new_tokens == 1; },
        [&](const absl::StatusOr<GenerateReport>&) { ++ended; });
  };
  ASSERT_TRUE(submit("red", 4000).ok());
  while (engine->Stats().running_requests == 0) absl::SleepFor(absl::Milliseconds(1));
  int red = 0, blue = 0;
  while (submit("red", 1).ok()) ++red;
  EXPECT_EQ(red, 6) << "the place that the first one had while it waited is free again";
  while (submit("blue", 1).ok()) ++blue;
  EXPECT_EQ(blue, 2);
  EXPECT_EQ(ReasonOf(submit("red", 1)), Reason::kQueueFull);
  stop = true;
  while (ended < 1 + red + blue) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_EQ(engine->Stats().waiting_requests, 0u);
  EXPECT_TRUE(submit("red", 1).ok()) << "a request that has ended does not wait";
}

// The request has its place while it is prepared, and gives it back when it is cancelled.
TEST_F(EngineFrontendsTest, ARequestThatIsNotPreparedWaitsInTheSameQueue) {
  auto engine = Create({.waiting = {.requests = 1}});
  std::vector<Engine::PreparedCallback> dones;
  std::atomic<bool> cancel = false;
  std::atomic<int> ended = 0, answered = 0;
  const auto submit = [&](bool is_again) {
    GenerateRequest request = Request("", 1);
    request.cancelled = [&] { return cancel.load(); };
    return engine->Submit(
        std::move(request), [](const GeneratedToken&) { return true; },
        [&](const absl::StatusOr<GenerateReport>& report) {
          answered += report.ok() ? 1 : 0;
          ++ended;
        },
        {.prepare = [&](const NamespaceKey&,
                        Engine::PreparedCallback done) { dones.push_back(std::move(done)); },
         .is_again = is_again});
  };
  const auto wait_for_ends = [&](int count) {
    while (ended < count) absl::SleepFor(absl::Milliseconds(1));
  };
  ASSERT_TRUE(submit(false).ok());
  EXPECT_EQ(ReasonOf(submit(false)), Reason::kQueueFull);
  ASSERT_TRUE(submit(true).ok()) << "it has been in the engine before";
  EXPECT_EQ(engine->Stats().waiting_requests, 2u);
  cancel = true;
  wait_for_ends(2);
  EXPECT_EQ(engine->Stats().waiting_requests, 0u);
  cancel = false;
  ASSERT_TRUE(submit(false).ok());
  for (const auto& done : dones) done(0);
  wait_for_ends(3);
  EXPECT_EQ(answered, 1);
  ASSERT_TRUE(submit(false).ok());
  engine.reset();
  EXPECT_EQ(ended, 4);
  dones.back()(0);
}

TEST_F(EngineFrontendsTest, AnAdapterIsRefusedByName) {
  const auto engine = Create({});
  GenerateRequest request = Request("", 1);
  request.name_space.lora_id = 0;
  bool generated = false;
  const auto report =
      engine->Generate(request, [&](const GeneratedToken&) { return generated = true; });
  EXPECT_EQ(ReasonOf(report.status()), Reason::kFieldNotServed) << report.status();
  EXPECT_THAT(std::string(report.status().message()), HasSubstr("namespace.lora_id is 0"));
  EXPECT_FALSE(generated) << "the base model's tokens";
}

TEST_F(EngineFrontendsTest, AKeyedNamespaceIsRefusedByName) {
  const auto engine = Create({});
  GenerateRequest request = Request("", 1);
  request.name_space.keyed = true;
  const auto report = engine->Generate(request, [](const GeneratedToken&) { return true; });
  EXPECT_EQ(ReasonOf(report.status()), Reason::kKeysAndTokens) << report.status();
}

}  // namespace
}  // namespace pagoda
