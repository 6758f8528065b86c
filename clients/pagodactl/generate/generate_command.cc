// pagodactl generate: prints tokens from the daemon's engine as they arrive.
#include <unistd.h>

#include <iostream>
#include <memory>
#include <optional>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/error.h"
#include "clients/command_line/number_check.h"
#include "clients/command_line/options/format_options.h"
#include "clients/command_line/options/sampling_options.h"
#include "clients/command_line/terminal/format.h"
#include "clients/command_line/terminal/interrupt.h"
#include "clients/command_line/terminal/printable_output.h"
#include "clients/command_line/terminal/terminal.h"
#include "clients/command_line/tokens.h"
#include "clients/pagodactl/command/admin_client.h"
#include "clients/pagodactl/generate/commands.h"
#include "clients/pagodactl/generate/engine_channel.h"
#include "grpcpp/client_context.h"
#include "pagoda/v1/admin.grpc.pb.h"
#include "pagoda/v1/engine.grpc.pb.h"
#include "wire/errors.h"

namespace pagoda {
namespace {

struct GenerateOptions {
  std::string prompt_tokens;
  std::string prompt_file;
  uint32_t random_prompt = 0;  // Its length.
  std::string text;
  uint32_t max_new_tokens = 20;
  std::string stop_tokens;
  uint32_t num_samples = 1;
  std::string source;
  std::string adapter;
  SamplingOptions sampling;
  FormatOptions format;
  std::optional<uint32_t> top_logprobs;
  uint32_t beams = 1;
  std::optional<float> length_penalty;
  bool early_stopping = false;
};

// A random prompt needs the vocabulary's size. The daemon tells it to operators.
absl::StatusOr<std::vector<TokenId>> RandomPrompt(const GlobalOptions& globals,
                                                  const GenerateOptions& options) {
  absl::StatusOr<AdminClient> daemon = AdminClient::Connect(globals);
  if (!daemon.ok()) return daemon.status();
  const absl::StatusOr<v1::GetStatusResponse> status =
      daemon->Call(&AdminClient::Stub::GetStatus, v1::GetStatusRequest());
  if (absl::IsUnimplemented(status.status())) {
    return absl::UnimplementedError(
        absl::StrCat("--random-prompt needs the vocabulary's size, which the daemon tells; ",
                     globals.endpoint, " is an engine's address"));
  }
  if (!status.ok()) return status.status();
  if (!status->has_engine() || status->engine().vocab_size() == 0) {
    return MakeError(Reason::kNoEngine, "the daemon runs without a model");
  }
  return RandomTokens(options.sampling.seed, status->engine().vocab_size())
      .Take(options.random_prompt);
}

absl::StatusOr<std::vector<TokenId>> Prompt(const GlobalOptions& globals,
                                            const GenerateOptions& options) {
  if (!options.text.empty()) return std::vector<TokenId>();
  if (options.random_prompt != 0) return RandomPrompt(globals, options);
  if (!options.prompt_file.empty()) return ReadTokenFile(options.prompt_file);
  return ParseTokens(options.prompt_tokens);
}

absl::StatusOr<v1::GenerateRequest> MakeRequest(const GlobalOptions& globals,
                                                const GenerateOptions& options) {
  const auto prompt = Prompt(globals, options);
  if (!prompt.ok()) return prompt.status();
  // Text is sent unchanged: the engine has the tokenizer.
  const auto stop = ParseTokens(options.stop_tokens);
  if (!stop.ok()) return stop.status();
  v1::GenerateRequest request;
  request.set_cache(globals.cache);
  request.mutable_prompt_tokens()->Add(prompt->begin(), prompt->end());
  request.set_prompt_text(options.text);
  request.mutable_stop_tokens()->Add(stop->begin(), stop->end());
  request.set_max_new_tokens(options.max_new_tokens);
  request.set_num_samples(options.num_samples);
  if (!options.source.empty()) request.mutable_source()->set_address(options.source);
  request.set_adapter(options.adapter);
  ApplySampling(options.sampling, request);
  if (absl::Status read = ApplyFormat(options.format, request); !read.ok()) return read;
  if (options.top_logprobs.has_value()) request.set_top_logprobs(*options.top_logprobs);
  if (options.beams > 1) request.set_beam_width(options.beams);
  if (options.length_penalty.has_value()) request.set_length_penalty(*options.length_penalty);
  request.set_early_stopping(options.early_stopping);
  return request;
}

void PrintSamples(const v1::GenerateResponse& answer, uint32_t num_samples) {
  std::vector<std::vector<TokenId>> samples(num_samples);
  for (const v1::GeneratedToken& token : answer.generated()) {
    if (token.sample() < num_samples) samples[token.sample()].push_back(token.token());
  }
  // The tokens of a single sample.
  if (answer.generated().empty()) {
    samples[0].assign(answer.tokens().begin(), answer.tokens().end());
  }
  const v1::GenerateReport& report = answer.report();
  for (size_t i = 0; i < samples.size(); ++i) {
    const int index = static_cast<int>(i);
    const std::string score = index < report.beam_scores_size()
                                  ? absl::StrFormat(", score %.4f", report.beam_scores(index))
                                  : "";
    Print("sample %d  %s  (%s%s)\n", i, absl::StrJoin(samples[i], " "),
          FinishText(report.finish_reasons(index)), score);
  }
}

void PrintReport(const v1::GenerateReport& report) {
  Print("\n");
  Print("prompt               %s", FormatCounted(report.prompt_tokens(), "token"));
  if (report.has_reused_tokens()) {
    Print(", %s reused from the cache (%s)", FormatCount(report.reused_tokens()),
          FormatShare(Share(report.reused_tokens(), report.prompt_tokens())));
  }
  Print("\n");
  if (report.reused_lower_tokens() > 0) {
    Print("                     %s of these were onboarded from a lower tier\n",
          FormatCount(report.reused_lower_tokens()));
  }
  Print("generated            %s in %s, ended by %s\n",
        FormatCounted(report.generated_tokens(), "token"),
        FormatElapsed(DurationOf(report.total_time())), FinishText(report.finish_reason()));
  Print("time to first token  %s, %s of it in the queue\n",
        FormatElapsed(DurationOf(report.time_to_first_token())),
        FormatElapsed(DurationOf(report.queue_time())));
  Print("tokens per second    %.1f\n", TokensPerSecond(report));
  if (report.drafted_tokens() > 0) {
    Print("draft tokens         %s of %s accepted\n", FormatCount(report.accepted_draft_tokens()),
          FormatCount(report.drafted_tokens()));
  }
  if (report.preemptions() > 0) {
    Print("preempted            %s\n", FormatCount(report.preemptions()));
  }
  std::cout.flush();
}

absl::Status RunGenerate(const GlobalOptions& globals, const GenerateOptions& options) {
  grpc::ClientContext context;
  const InterruptScope interrupt([&context] { context.TryCancel(); });
  const auto channel = ConnectToEngine(globals);
  if (!channel.ok()) return channel.status();
  const auto request = MakeRequest(globals, options);
  if (!request.ok()) return request.status();

  const auto stub = v1::EngineService::NewStub(*channel);
  const auto stream = stub->Generate(&context, *request);
  v1::GenerateResponse answer, message;
  // Several samples arrive interleaved, so they are printed at the end; and scores come at the end.
  const bool live =
      globals.output == OutputFormat::kTable && options.num_samples == 1 && options.beams == 1;
  while (stream->Read(&message)) {
    if (live) {
      if (!options.text.empty()) {
        PrintAnswer(message.text());
      } else {
        for (TokenId token : message.tokens()) std::cout << token << ' ' << std::flush;
      }
    }
    AddToAnswer(message, &answer);
  }
  if (live && !answer.tokens().empty()) std::cout << std::endl;
  const grpc::Status status = stream->Finish();
  if (interrupt.interrupted()) {
    return absl::CancelledError(absl::StrCat(
        "interrupted after ", FormatCounted(static_cast<uint64_t>(answer.tokens_size()), "token")));
  }
  if (!status.ok()) return StatusFromGrpc(status);
  if (globals.output == OutputFormat::kJson) return PrintJson(answer);
  if (!live) PrintSamples(answer, options.num_samples);
  PrintReport(answer.report());
  return absl::OkStatus();
}

void AddPromptOptions(CLI::App& command, GenerateOptions& options) {
  CLI::Option_group* prompt = command.add_option_group("prompt", "Exactly one of");
  prompt->add_option("--prompt-tokens", options.prompt_tokens, "Token ids: 1,2,3")
      ->check(CheckTokens);
  prompt
      ->add_option("--prompt-file", options.prompt_file,
                   "A file of token ids, separated by commas or whitespace; - is standard input")
      ->type_name("FILE");
  prompt->add_option("--prompt", options.text, "Text, if the model has a tokenizer")
      ->check([](const std::string& text) {
        return text.empty() ? std::string("must not be empty") : std::string();
      });
  prompt
      ->add_option("--random-prompt", options.random_prompt,
                   "A prompt of this many random token ids")
      ->check(AboveZero());
  prompt->require_option(1);
}

void AddAnswerOptions(CLI::App& command, GenerateOptions& options) {
  command.add_option("--max-new-tokens", options.max_new_tokens, "The most tokens to generate")
      ->check(AboveZero())
      ->capture_default_str();
  command.add_option("--stop-tokens", options.stop_tokens, "Token ids that end the generation")
      ->check(CheckTokens);
  command.add_option("--samples", options.num_samples, "The number of answers to the prompt")
      ->check(CLI::Range(1, 128))
      ->capture_default_str();
  command.add_option(
      "--logprobs", options.top_logprobs,
      "With -o json: add each token's log probability, and those of this many alternatives");
  command
      .add_option("--beams", options.beams,
                  "Beam search with this many beams, 2 to 32; --samples of the best answers are "
                  "printed")
      ->check(CLI::Range(1, 32));
  command.add_option("--length-penalty", options.length_penalty,
                     "With --beams: scores are divided by the answer's length to this power; "
                     "default 1");
  command.add_flag("--early-stopping", options.early_stopping,
                   "With --beams: end as soon as as many answers have ended as there are beams");
  AddAdapterOption(command, options.adapter);
  command
      .add_option("--source", options.source,
                  "Another daemon that has the prompt's blocks: its peer address")
      ->type_name("HOST:PORT");
}

}  // namespace

void AddGenerateCommand(CLI::App& app, const GlobalOptions& globals, Action& chosen) {
  CLI::App* command = app.add_subcommand(
      "generate", "Generates tokens with the daemon's model and prints them as they arrive");
  // Owned by the parser's callback and by the action it makes.
  const auto options = std::make_shared<GenerateOptions>();
  AddPromptOptions(*command, *options);
  AddAnswerOptions(*command, *options);
  AddSamplingOptions(*command, options->sampling, "The seed of the random prompt and of sampling");
  AddFormatOptions(*command, options->format);
  command->footer(
      "Examples:\n"
      "  pagodactl generate --prompt 'Once upon a time'\n"
      "  pagodactl generate --prompt-tokens 1,2,3\n"
      "  pagodactl generate --random-prompt 64 --seed 7 --max-new-tokens 40\n"
      "  pagodactl generate --prompt-tokens 1,2,3 --temperature 0.8 --top-p 0.95 --samples 4\n"
      "  pagodactl generate --prompt-tokens 1,2,3 --beams 4 --samples 2 --length-penalty 0.8\n"
      "  pagodactl generate --prompt 'Is water wet?' --regex 'yes|no'\n"
      "  echo 5 6 7 | pagodactl generate --prompt-file - -o json");
  command->callback([&globals, &chosen, options] {
    chosen = [&globals, options] { return RunGenerate(globals, *options); };
  });
}

}  // namespace pagoda
