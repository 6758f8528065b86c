// pagodactl chat: a conversation with the daemon's model. Each turn finds the earlier turns in the
// cache.
#include <unistd.h>

#include <fstream>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/mutex.h"
#include "base/error.h"
#include "clients/command_line/number_check.h"
#include "clients/command_line/options/format_options.h"
#include "clients/command_line/options/sampling_options.h"
#include "clients/command_line/terminal/format.h"
#include "clients/command_line/terminal/interrupt.h"
#include "clients/command_line/terminal/printable_output.h"
#include "clients/command_line/terminal/terminal.h"
#include "clients/pagodactl/generate/commands.h"
#include "clients/pagodactl/generate/engine_channel.h"
#include "grpcpp/client_context.h"
#include "nlohmann/json.hpp"
#include "pagoda/v1/engine.grpc.pb.h"
#include "wire/errors.h"

namespace pagoda {
namespace {

constexpr char kHelp[] =
    "/reset starts a new conversation. /quit or the end of input ends the program. Ctrl-C stops an "
    "answer; a second Ctrl-C ends the program.";

struct ChatOptions {
  SamplingOptions sampling;
  FormatOptions format;
  std::string system;
  std::string tools_file;
  std::string template_kwargs;
  std::string adapter;
  uint32_t max_new_tokens = 256;
};

// A file with a JSON list of tools, as in OpenAI's API.
absl::Status ReadTools(const std::string& path, v1::GenerateRequest& request) {
  std::ifstream in(path);
  const auto list = nlohmann::ordered_json::parse(in, nullptr, /*allow_exceptions=*/false);
  if (!in.is_open() || !list.is_array()) {
    return MakeError(Reason::kInvalidArgument, absl::StrCat(path, " is not a JSON list of tools"));
  }
  for (const auto& tool : list) request.add_tools(tool.dump());
  return absl::OkStatus();
}

class Chat {
 public:
  // `conversation` has no messages yet.
  Chat(const GlobalOptions& globals, const ChatOptions& options, v1::GenerateRequest conversation,
       std::unique_ptr<v1::EngineService::Stub> stub)
      : globals_(globals),
        options_(options),
        terminal_(DetectTerminal(STDOUT_FILENO)),
        prompts_(isatty(STDIN_FILENO) != 0 && terminal_.interactive),
        stub_(std::move(stub)),
        conversation_(std::move(conversation)) {
    Reset();
  }

  // Runs until the end of input. Errors: those of the daemon.
  absl::Status Run() {
    if (prompts_) std::cout << Paint(terminal_, Style::kDim, kHelp) << std::endl;
    for (std::string line; Ask(line);) {
      const std::string said(absl::StripAsciiWhitespace(line));
      if (said == "/quit") break;
      if (said == "/reset") {
        Reset();
      } else if (!said.empty()) {
        if (absl::Status status = Answer(said); !status.ok()) return status;
      }
    }
    return absl::OkStatus();
  }

  // Stops the answer that is being received. Returns false if there is none. Thread-safe.
  bool Stop() {
    absl::MutexLock lock(&mutex_);
    if (context_ == nullptr) return false;
    context_->TryCancel();
    return true;
  }

 private:
  void Reset() {
    conversation_.clear_messages();
    if (!options_.system.empty()) Say("system", options_.system);
  }

  bool Ask(std::string& line) {
    if (prompts_) std::cout << Paint(terminal_, Style::kBold, "> ") << std::flush;
    return static_cast<bool>(std::getline(std::cin, line));
  }

  void Say(const std::string& role, const std::string& content) {
    v1::ChatMessage* message = conversation_.add_messages();
    message->set_role(role);
    message->set_content(content);
  }

  absl::Status Answer(const std::string& said) {
    Say("user", said);
    conversation_.set_cache(globals_.cache);
    conversation_.set_max_new_tokens(options_.max_new_tokens);
    ApplySampling(options_.sampling, conversation_);
    grpc::ClientContext context;
    SetContext(&context);
    const auto stream = stub_->Generate(&context, conversation_);
    v1::GenerateResponse answer, message;
    while (stream->Read(&message)) {
      AddToAnswer(message, &answer);
      if (globals_.output == OutputFormat::kTable) PrintAnswer(message.text());
    }
    SetContext(nullptr);
    const grpc::Status status = stream->Finish();
    if (!status.ok() && status.error_code() != grpc::StatusCode::CANCELLED) {
      return StatusFromGrpc(status);
    }
    // The text of a stopped answer, which has no report, is also part of the conversation.
    Say("assistant", answer.text());
    if (!status.ok()) answer.clear_report();
    if (globals_.output == OutputFormat::kJson) return PrintJson(answer);
    PrintReport(answer);
    return absl::OkStatus();
  }

  void PrintReport(const v1::GenerateResponse& answer) const {
    std::cout << "\n";
    if (!answer.has_report()) {
      std::cout << Paint(terminal_, Style::kDim, "stopped") << std::endl;
      return;
    }
    const v1::GenerateReport& report = answer.report();
    std::string reused;  // The daemon hides it from a tenant that shares prefixes.
    if (report.has_reused_tokens()) {
      reused = absl::StrFormat(", %s reused (%s)", FormatCount(report.reused_tokens()),
                               FormatShare(Share(report.reused_tokens(), report.prompt_tokens())));
    }
    if (report.reused_lower_tokens() > 0) {
      absl::StrAppend(&reused, ", ", FormatCount(report.reused_lower_tokens()),
                      " from a lower tier");
    }
    const std::string line = absl::StrFormat(
        "%s%s; first token after %s, %.1f tokens/s",
        FormatCounted(report.prompt_tokens(), "prompt token"), reused,
        FormatElapsed(DurationOf(report.time_to_first_token())), TokensPerSecond(report));
    std::cout << Paint(terminal_, Style::kDim, line) << std::endl;
  }

  void SetContext(grpc::ClientContext* context) {
    absl::MutexLock lock(&mutex_);
    context_ = context;
  }

  const GlobalOptions& globals_;
  const ChatOptions options_;
  const Terminal terminal_;
  const bool prompts_;  // A person types, so prompts are shown.
  const std::unique_ptr<v1::EngineService::Stub> stub_;
  v1::GenerateRequest conversation_;

  absl::Mutex mutex_;
  grpc::ClientContext* context_ ABSL_GUARDED_BY(mutex_) = nullptr;  // The current answer's context.
};

absl::Status RunChat(const GlobalOptions& globals, const ChatOptions& options) {
  // Created before the channel, whose threads inherit the signal mask.
  absl::Mutex mutex;
  Chat* running = nullptr;
  const InterruptScope interrupt([&] {
    absl::MutexLock lock(&mutex);
    // If there is no answer to stop, end the program.
    if (running == nullptr || !running->Stop()) _exit(kExitFailed);
  });
  v1::GenerateRequest request;
  request.set_chat_template_kwargs(options.template_kwargs);
  request.set_adapter(options.adapter);
  if (!options.tools_file.empty()) {
    if (absl::Status status = ReadTools(options.tools_file, request); !status.ok()) return status;
  }
  if (absl::Status read = ApplyFormat(options.format, request); !read.ok()) return read;
  const auto channel = ConnectToEngine(globals);
  if (!channel.ok()) return channel.status();
  Chat chat(globals, options, std::move(request), v1::EngineService::NewStub(*channel));
  {
    absl::MutexLock lock(&mutex);
    running = &chat;
  }
  const absl::Status status = chat.Run();
  absl::MutexLock lock(&mutex);
  running = nullptr;
  return status;
}

}  // namespace

void AddChatCommand(CLI::App& app, const GlobalOptions& globals, Action& chosen) {
  CLI::App* command = app.add_subcommand(
      "chat",
      "Chats with the daemon's model, and shows how many tokens each turn found in the cache");
  // Owned by the parser's callback and by the action it makes.
  const auto options = std::make_shared<ChatOptions>();
  command->add_option("--system", options->system, "The system prompt before the first turn");
  command->add_option("--tools", options->tools_file,
                      "A JSON file: a list of tools, as in OpenAI's API, for the chat template");
  command->add_option("--template-kwargs", options->template_kwargs,
                      "Further variables for the chat template: a JSON object");
  command->add_option("--max-new-tokens", options->max_new_tokens, "The most tokens of an answer")
      ->check(AboveZero())
      ->capture_default_str();
  AddAdapterOption(*command, options->adapter);
  AddSamplingOptions(*command, options->sampling, "The seed of sampling");
  AddFormatOptions(*command, options->format);
  command->footer(absl::StrCat(kHelp,
                               "\n\nExamples:\n"
                               "  pagodactl chat\n"
                               "  pagodactl chat --system 'Answer in one line.' --temperature 0.7\n"
                               "  pagodactl chat --template-kwargs '{\"enable_thinking\": false}'\n"
                               "  pagodactl chat --json-schema answer.json\n"
                               "  printf 'Hello\\nAnd again\\n' | pagodactl chat -o json"));
  command->callback([&globals, &chosen, options] {
    chosen = [&globals, options] { return RunChat(globals, *options); };
  });
}

}  // namespace pagoda
