#include "engine/serve/prompt/report_text.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "clients/command_line/terminal/format.h"
#include "engine/serve/prompt/generated.h"

namespace pagoda {
namespace {

double Rate(uint64_t tokens, absl::Duration time) {
  const double seconds = absl::ToDoubleSeconds(time);
  return tokens > 0 && seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
}

std::string EndText(const PromptAnswer& answer) {
  if (answer.is_stopped) return "stopped";
  return FinishText(answer.report.finish_reasons.front());
}

}  // namespace

double PromptTokensPerSecond(const GenerateReport& report) {
  return Rate(report.prompt_tokens - report.reused_tokens,
              report.time_to_first_token - report.queue_time);
}

double DecodeTokensPerSecond(const GenerateReport& report) {
  if (report.generated_tokens < 2) return 0;
  return Rate(report.generated_tokens - 1, report.total_time - report.time_to_first_token);
}

std::string ReportText(const PromptAnswer& answer) {
  const GenerateReport& report = answer.report;
  if (report.generated_tokens == 0) return "stopped before the first token";
  std::string text = absl::StrFormat(
      "%s prompt tokens, %s reused (%s); first token after %s; prompt %.1f tokens/s",
      FormatCount(report.prompt_tokens), FormatCount(report.reused_tokens),
      FormatShare(Share(report.reused_tokens, report.prompt_tokens)),
      FormatElapsed(report.time_to_first_token), PromptTokensPerSecond(report));
  if (report.reused_lower_tokens > 0) {
    absl::StrAppend(&text, ", ", FormatCount(report.reused_lower_tokens),
                    " reused from a lower tier");
  }
  if (report.generated_tokens > 1) {
    absl::StrAppendFormat(&text, ", decode %.1f tokens/s", DecodeTokensPerSecond(report));
  }
  absl::StrAppend(&text, "; ", FormatCounted(report.generated_tokens, "token"), ", ended by ",
                  EndText(answer));
  if (report.drafted_tokens > 0) {
    absl::StrAppend(&text, ", ", FormatCount(report.accepted_draft_tokens), " of ",
                    FormatCount(report.drafted_tokens), " draft tokens accepted");
  }
  if (report.preemptions > 0) {
    absl::StrAppend(&text, ", preempted ", FormatCounted(report.preemptions, "time"));
  }
  return text;
}

nlohmann::ordered_json AnswerJson(const PromptAnswer& answer) {
  nlohmann::ordered_json json = {
      {"tokens", answer.tokens}, {"text", answer.text}, {"stopped", answer.is_stopped}};
  const GenerateReport& report = answer.report;
  if (report.generated_tokens == 0) return json;
  json.update(GeneratedToJson({.tokens = {answer.tokens}, .report = report}));
  json["finish_reason"] = EndText(answer);
  json["prompt_tokens_per_second"] = PromptTokensPerSecond(report);
  json["decode_tokens_per_second"] = DecodeTokensPerSecond(report);
  return json;
}

}  // namespace pagoda
