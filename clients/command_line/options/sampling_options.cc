#include "clients/command_line/options/sampling_options.h"

#include "CLI/CLI.hpp"
#include "clients/command_line/number_check.h"

namespace pagoda {

void AddSamplingOptions(CLI::App& command, SamplingOptions& options, const std::string& seed_help) {
  command.add_option("--seed", options.seed, seed_help)->capture_default_str();
  command.add_option("--temperature", options.temperature, "0: always the most likely token")
      ->check(NotNegative())
      ->capture_default_str();
  command
      .add_option("--top-k", options.top_k,
                  "Sample only from the k most likely tokens; 0: from all")
      ->capture_default_str();
  command
      .add_option("--top-p", options.top_p,
                  "Sample only from the most likely tokens that together have this probability")
      ->capture_default_str();
  command
      .add_option("--repetition-penalty", options.repetition_penalty,
                  "Above 1: tokens that occurred before are less likely")
      ->capture_default_str();
  command
      .add_option("--draft-tokens", options.max_draft_tokens,
                  "The most draft tokens per step, guessed from earlier text and checked in one "
                  "step; the answer is the same")
      ->capture_default_str();
  command
      .add_option("--priority", options.priority,
                  "Requests of higher priority run first and can preempt others")
      ->capture_default_str();
  command.add_option("--salt", options.salt,
                     "Only prompts with the same salt share their cached prefixes");
}

void AddAdapterOption(CLI::App& command, std::string& adapter) {
  command
      .add_option(
          "--adapter", adapter,
          "A LoRA adapter of the daemon's engine (engine.adapters); default: the model alone")
      ->type_name("NAME");
}

void ApplySampling(const SamplingOptions& options, v1::GenerateRequest& request) {
  request.set_seed(options.seed);
  request.set_temperature(options.temperature);
  request.set_top_k(options.top_k);
  request.set_top_p(options.top_p);
  request.set_repetition_penalty(options.repetition_penalty);
  request.set_max_draft_tokens(options.max_draft_tokens);
  request.set_priority(options.priority);
  if (!options.salt.empty()) request.mutable_namespace_()->set_cache_salt(options.salt);
}

absl::Duration DurationOf(const google::protobuf::Duration& proto) {
  return absl::Seconds(proto.seconds()) + absl::Nanoseconds(proto.nanos());
}

const char* FinishText(v1::FinishReason reason) {
  switch (reason) {
    case v1::FINISH_REASON_LENGTH:
      return "length";
    case v1::FINISH_REASON_STOP_TOKEN:
      return "stop token";
    default:
      return "unknown";
  }
}

double TokensPerSecond(const v1::GenerateReport& report) {
  const double seconds =
      absl::ToDoubleSeconds(DurationOf(report.total_time()) - DurationOf(report.queue_time()));
  return seconds > 0 ? report.generated_tokens() / seconds : 0;
}

}  // namespace pagoda
