// pagodactl generate: tokens from the daemon's engine, as they come.
#include <unistd.h>

#include <iostream>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "clients/cpp/errors.h"
#include "clients/pagodactl/command.h"
#include "clients/pagodactl/format.h"
#include "clients/pagodactl/interrupt.h"
#include "clients/pagodactl/terminal.h"
#include "clients/pagodactl/tokens.h"
#include "grpcpp/client_context.h"
#include "nlohmann/json.hpp"
#include "pagoda/v1/admin.grpc.pb.h"
#include "pagoda/v1/engine.grpc.pb.h"
#include "pools/error.h"

namespace pagoda {
namespace {

struct GenerateOptions {
  std::string prompt_tokens;
  std::string prompt_file;
  uint32_t random_prompt = 0;  // Its length.
  uint64_t seed = 1;
  uint32_t max_new_tokens = 20;
  std::string stop_tokens;
  std::string salt;
};

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

// A random prompt needs the vocabulary's size, which the daemon knows.
absl::StatusOr<std::vector<TokenId>> RandomPrompt(const GlobalOptions& globals,
                                                  const GenerateOptions& options,
                                                  const std::shared_ptr<grpc::Channel>& channel) {
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + globals.timeout()));
  v1::GetStatusResponse status;
  const grpc::Status called = v1::AdminService::NewStub(channel)->GetStatus(&context, {}, &status);
  if (!called.ok()) return StatusFromGrpc(called);
  if (!status.has_engine() || status.engine().vocab_size() == 0) {
    return MakeError(Reason::kNoEngine, "the daemon runs without a model");
  }
  return RandomTokens(options.seed, status.engine().vocab_size()).Take(options.random_prompt);
}

absl::StatusOr<std::vector<TokenId>> Prompt(const GlobalOptions& globals,
                                            const GenerateOptions& options,
                                            const std::shared_ptr<grpc::Channel>& channel) {
  if (options.random_prompt != 0) return RandomPrompt(globals, options, channel);
  if (!options.prompt_file.empty()) return ReadTokenFile(options.prompt_file);
  return ParseTokens(options.prompt_tokens);
}

absl::StatusOr<v1::GenerateRequest> MakeRequest(const GlobalOptions& globals,
                                                const GenerateOptions& options,
                                                const std::shared_ptr<grpc::Channel>& channel) {
  const auto prompt = Prompt(globals, options, channel);
  if (!prompt.ok()) return prompt.status();
  const auto stop = ParseTokens(options.stop_tokens);
  if (!stop.ok()) return stop.status();
  v1::GenerateRequest request;
  request.mutable_prompt_tokens()->Add(prompt->begin(), prompt->end());
  request.mutable_stop_tokens()->Add(stop->begin(), stop->end());
  request.set_max_new_tokens(options.max_new_tokens);
  if (!options.salt.empty()) request.mutable_namespace_()->set_cache_salt(options.salt);
  return request;
}

// Of the time in which the engine worked for this request: waiting for others is left out.
double TokensPerSecond(const v1::GenerateReport& report) {
  const double seconds =
      absl::ToDoubleSeconds(DurationOf(report.total_time()) - DurationOf(report.queue_time()));
  return seconds > 0 ? report.generated_tokens() / seconds : 0;
}

void PrintReport(const v1::GenerateReport& report) {
  const double reused = Share(report.reused_tokens(), report.prompt_tokens());
  absl::PrintF("\n");
  absl::PrintF("prompt               %s tokens, %s reused from the cache (%s)\n",
               FormatCount(report.prompt_tokens()), FormatCount(report.reused_tokens()),
               FormatShare(reused));
  absl::PrintF("generated            %s tokens in %s, ended by %s\n",
               FormatCount(report.generated_tokens()),
               FormatElapsed(DurationOf(report.total_time())), FinishText(report.finish_reason()));
  absl::PrintF("time to first token  %s, %s of it in the queue\n",
               FormatElapsed(DurationOf(report.time_to_first_token())),
               FormatElapsed(DurationOf(report.queue_time())));
  absl::PrintF("tokens per second    %.1f\n", TokensPerSecond(report));
  std::fflush(stdout);
}

void PrintJson(const std::vector<TokenId>& tokens, const v1::GenerateReport& report) {
  const nlohmann::ordered_json json = {
      {"tokens", tokens},
      {"finish_reason", FinishText(report.finish_reason())},
      {"prompt_tokens", report.prompt_tokens()},
      {"reused_tokens", report.reused_tokens()},
      {"generated_tokens", report.generated_tokens()},
      {"time_to_first_token_seconds",
       absl::ToDoubleSeconds(DurationOf(report.time_to_first_token()))},
      {"total_time_seconds", absl::ToDoubleSeconds(DurationOf(report.total_time()))},
      {"queue_time_seconds", absl::ToDoubleSeconds(DurationOf(report.queue_time()))},
      {"tokens_per_second", TokensPerSecond(report)}};
  std::cout << json.dump() << std::endl;
}

absl::Status RunGenerate(const GlobalOptions& globals, const GenerateOptions& options) {
  grpc::ClientContext context;
  const InterruptScope interrupt([&context] { context.TryCancel(); });
  const auto channel = ConnectToDaemon(globals);
  if (!channel.ok()) return channel.status();
  const auto request = MakeRequest(globals, options, *channel);
  if (!request.ok()) return request.status();

  const auto stub = v1::EngineService::NewStub(*channel);
  const auto stream = stub->Generate(&context, *request);
  std::vector<TokenId> tokens;
  v1::GenerateReport report;
  v1::GenerateResponse message;
  while (stream->Read(&message)) {
    if (globals.output == OutputFormat::kTable) {
      for (TokenId token : message.tokens()) std::cout << token << ' ' << std::flush;
    }
    tokens.insert(tokens.end(), message.tokens().begin(), message.tokens().end());
    if (message.has_report()) report = message.report();
  }
  if (globals.output == OutputFormat::kTable && !tokens.empty()) std::cout << std::endl;
  const grpc::Status status = stream->Finish();
  if (interrupt.interrupted()) {
    return absl::CancelledError(absl::StrCat("interrupted after ", tokens.size(), " tokens"));
  }
  if (!status.ok()) return StatusFromGrpc(status);
  if (globals.output == OutputFormat::kJson) {
    PrintJson(tokens, report);
  } else {
    PrintReport(report);
  }
  return absl::OkStatus();
}

// Refuses a word that is no token id while arguments are parsed.
std::string CheckTokens(const std::string& text) {
  return std::string(ParseTokens(text).status().message());
}

void AddPromptOptions(CLI::App& command, GenerateOptions& options) {
  CLI::Option_group* prompt = command.add_option_group("prompt", "Exactly one of");
  prompt->add_option("--prompt-tokens", options.prompt_tokens, "Token ids: 1,2,3")
      ->check(CheckTokens);
  prompt
      ->add_option("--prompt-file", options.prompt_file,
                   "A file of token ids, separated by commas or whitespace; - is standard input")
      ->type_name("FILE");
  prompt->add_option("--random-prompt", options.random_prompt, "As many random token ids")
      ->check(CLI::PositiveNumber);
  prompt->require_option(1);
}

}  // namespace

void AddGenerateCommand(CLI::App& app, const GlobalOptions& globals, Action& chosen) {
  CLI::App* command = app.add_subcommand(
      "generate",
      "Generates tokens with the daemon's model, greedily, and prints them as they come");
  // Owned by the parser's callback and by the action it makes.
  const auto options = std::make_shared<GenerateOptions>();
  AddPromptOptions(*command, *options);
  command->add_option("--seed", options->seed, "Of the random prompt")->capture_default_str();
  command->add_option("--max-new-tokens", options->max_new_tokens, "At most this many tokens")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--stop-tokens", options->stop_tokens, "Token ids that end the generation")
      ->check(CheckTokens);
  command->add_option("--salt", options->salt,
                      "Only prompts with the same salt share their cached prefixes");
  command->footer(
      "Examples:\n"
      "  pagodactl generate --prompt-tokens 1,2,3\n"
      "  pagodactl generate --random-prompt 64 --seed 7 --max-new-tokens 40\n"
      "  echo 5 6 7 | pagodactl generate --prompt-file - -o json");
  command->callback([&globals, &chosen, options] {
    chosen = [&globals, options] { return RunGenerate(globals, *options); };
  });
}

}  // namespace pagoda
