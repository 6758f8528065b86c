#include "engine/serve/prompt/generated.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/synchronization/notification.h"
#include "engine/engine.h"

namespace pagoda {
namespace {

using Json = nlohmann::ordered_json;

double Milliseconds(absl::Duration duration) { return absl::ToDoubleMilliseconds(duration); }

}  // namespace

absl::StatusOr<Generated> GenerateAll(Generator& engine, GenerateRequest request) {
  struct Waited {
    absl::Notification done;
    Generated generated;
    absl::StatusOr<GenerateReport> report;
  };
  const auto waited = std::make_shared<Waited>();
  // Submit refuses more samples.
  waited->generated.tokens.resize(std::min(request.num_samples, Engine::kMaxSamples));
  absl::Status status = engine.Submit(
      std::move(request),
      [waited](const GeneratedToken& token) {
        waited->generated.tokens[token.sample].push_back(token.token);
        return true;
      },
      [waited](absl::StatusOr<GenerateReport> report) {
        waited->report = std::move(report);
        waited->done.Notify();
      });
  if (!status.ok()) return status;
  waited->done.WaitForNotification();
  if (!waited->report.ok()) return waited->report.status();
  waited->generated.report = *std::move(waited->report);
  return std::move(waited->generated);
}

Json GeneratedToJson(const Generated& generated) {
  const GenerateReport& report = generated.report;
  Json json = {{"tokens", generated.tokens.front()},
               {"prompt_tokens", report.prompt_tokens},
               {"reused_tokens", report.reused_tokens},
               {"reused_lower_tokens", report.reused_lower_tokens},
               {"generated_tokens", report.generated_tokens},
               {"finish_reason", FinishText(report.finish_reasons.front())},
               {"time_to_first_token_ms", Milliseconds(report.time_to_first_token)},
               {"queue_ms", Milliseconds(report.queue_time)},
               {"total_ms", Milliseconds(report.total_time)},
               {"tokens_per_second", report.tokens_per_second()},
               {"preemptions", report.preemptions},
               {"drafted_tokens", report.drafted_tokens},
               {"accepted_draft_tokens", report.accepted_draft_tokens}};
  if (!report.beam_scores.empty()) json["beam_scores"] = report.beam_scores;
  if (generated.tokens.size() == 1) return json;
  for (size_t i = 0; i < generated.tokens.size(); ++i) {
    json["samples"].push_back(
        {{"tokens", generated.tokens[i]}, {"finish_reason", FinishText(report.finish_reasons[i])}});
  }
  return json;
}

std::string FinishText(FinishReason reason) {
  return reason == FinishReason::kLength ? "length" : "stop token";
}

}  // namespace pagoda
