#include "tests/engine/golden_runs.h"

#include <cmath>
#include <utility>

#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/notification.h"
#include "base/check.h"
#include "tests/base/require.h"

namespace pagoda {
namespace {

// Receives a golden's tokens, and compares their logits.
bool TakeToken(const Golden& golden, const GeneratedToken& token, GoldenAnswer& answer) {
  const std::vector<float>& expected = golden.logits[answer.ids.size()];
  for (size_t t = 0; t < expected.size(); ++t) {
    const float difference = std::abs(token.logits[t] - expected[t]);
    // NaN counts as the worst error.
    if (!(difference <= answer.worst_logit_difference)) answer.worst_logit_difference = difference;
  }
  answer.ids.push_back(token.token);
  answer.logits.emplace_back(token.logits.begin(), token.logits.end());
  return true;
}

}  // namespace

Engine::Options EngineOptionsFor(const GoldenModel& model, const EngineSetting& setting) {
  return {.model_dir = GoldenDir(model.name),
          .backend = setting.backend,
          .cpu = {.num_threads = 1, .compute = ComputeType::kFloat32},
          .scheduler = {.max_step_tokens = setting.max_step_tokens,
                        .max_running_sequences = setting.max_running_sequences,
                        .preemption = setting.preemption}};
}

ServedModel Serve(const GoldenModel& model, const EngineSetting& setting,
                  std::function<absl::Status(const CopyOrder&)> before_copy) {
  ServedModel served;
  const Engine::Options options = EngineOptionsFor(model, setting);
  served.cache =
      std::make_unique<TestCache>(Require(Engine::CacheSpecForModel(
                                      options.model_dir, kGoldenTokensPerBlock, setting.kv_dtype)),
                                  setting.blocks, std::move(before_copy));
  served.engine = Require(Engine::Create(options, served.cache->OpenClient()));
  return served;
}

GenerateRequest RequestFor(const Golden& golden) {
  return {.prompt = golden.prompt, .max_new_tokens = static_cast<uint32_t>(golden.ids.size())};
}

std::vector<GoldenAnswer> GenerateAll(Engine& engine, absl::Span<const Golden> goldens) {
  std::vector<GoldenAnswer> answers(goldens.size());
  absl::BlockingCounter left(static_cast<int>(goldens.size()));
  absl::Notification all_submitted;
  for (size_t i = 0; i < goldens.size(); ++i) {
    const absl::Status submitted = engine.Submit(
        RequestFor(goldens[i]),
        [&, i](const GeneratedToken& token) {
          all_submitted.WaitForNotification();
          return TakeToken(goldens[i], token, answers[i]);
        },
        [&answer = answers[i], &left](absl::StatusOr<GenerateReport> report) {
          answer.report = std::move(report);
          left.DecrementCount();
        });
    PAGODA_CHECK(submitted.ok(), "a golden can be submitted");
  }
  all_submitted.Notify();
  left.Wait();
  return answers;
}

std::vector<GoldenAnswer> GenerateInTurn(Engine& engine, absl::Span<const Golden> goldens) {
  std::vector<GoldenAnswer> answers;
  for (const Golden& golden : goldens) answers.push_back(GenerateAll(engine, {golden}).front());
  return answers;
}

std::vector<GoldenAnswer> GenerateInterrupted(Engine& engine, const Golden& first,
                                              const Golden& second) {
  std::vector<GoldenAnswer> answers(2);
  absl::BlockingCounter left(2);
  const auto end = [&left](GoldenAnswer& answer) {
    return [&answer, &left](absl::StatusOr<GenerateReport> report) {
      answer.report = std::move(report);
      left.DecrementCount();
    };
  };
  const auto interrupt = [&] {
    GenerateRequest request = RequestFor(second);
    request.priority = 1;
    const absl::Status submitted = engine.Submit(
        std::move(request),
        [&](const GeneratedToken& token) { return TakeToken(second, token, answers[1]); },
        end(answers[1]));
    PAGODA_CHECK(submitted.ok(), "the second golden can be submitted");
  };
  const absl::Status submitted = engine.Submit(
      RequestFor(first),
      [&](const GeneratedToken& token) {
        if (answers[0].ids.size() == 5) interrupt();
        return TakeToken(first, token, answers[0]);
      },
      end(answers[0]));
  PAGODA_CHECK(submitted.ok(), "the first golden can be submitted");
  left.Wait();
  return answers;
}

}  // namespace pagoda
