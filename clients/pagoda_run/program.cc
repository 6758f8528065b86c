#include "clients/pagoda_run/program.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "base/error.h"
#include "clients/pagoda_run/chat.h"
#include "clients/pagoda_run/local_model.h"
#include "clients/pagoda_run/report_text.h"
#include "clients/pagoda_run/run_options.h"
#include "clients/pagodactl/command/tokens.h"
#include "clients/pagodactl/terminal/format.h"
#include "clients/pagodactl/terminal/interrupt.h"
#include "clients/pagodactl/terminal/printable_output.h"
#include "clients/pagodactl/terminal/progress_bar.h"
#include "clients/pagodactl/terminal/terminal.h"

namespace pagoda {
namespace {

constexpr char kProgram[] = "pagoda-run";
constexpr int kExitInterrupted = 130;

constexpr char kFooter[] = R"(Examples:
  pagoda-run model.gguf                                  chats
  pagoda-run model.gguf --system 'Answer in one line.' --temperature 0.7
  pagoda-run DIR --prompt 'Once upon a time' --max-new-tokens 40
  pagoda-run DIR --tokens 1,2,3 --json
  pagoda-run DIR --prompt 'Is water wet?' --regex 'yes|no'
  pagoda-run DIR --tokens 1,2,3 --kv basic --backend reference    the same ids, to compare

In a chat each line of standard input is a turn. /reset starts a new conversation. /quit or the end
of input ends the program. Ctrl-C ends an answer; without an answer it ends the program.

Answers go to standard output, everything else to standard error. After each answer the program
prints the time to the first token, the speed of the prompt (the tokens that were computed, without
the reused ones) and of the decoding (the tokens behind the first one).

Exit codes: 0 success, 1 failure, 2 bad usage, 130 ended by a signal.)";

// The bytes of the files that the model's tensors are in.
uint64_t TensorFileBytes(const std::string& model) {
  std::error_code error;
  if (std::filesystem::is_regular_file(model, error)) {
    return std::filesystem::file_size(model, error);
  }
  uint64_t bytes = 0;
  for (const auto& file : std::filesystem::directory_iterator(model, error)) {
    const std::string extension = file.path().extension();
    if (extension == ".safetensors" || extension == ".gguf") bytes += file.file_size(error);
  }
  return bytes;
}

// Answers prompts, and shows the answers.
class Runner {
 public:
  explicit Runner(const RunOptions& options)
      : options_(options),
        errors_(DetectTerminal(STDERR_FILENO)),
        prompts_(isatty(STDIN_FILENO) != 0 && errors_.interactive),
        interrupt_([this] { Interrupt(); }) {}

  absl::Status Run() {
    if (absl::Status status = Load(); !status.ok()) return status;
    return options_.chats() ? RunChat() : RunOnce();
  }

 private:
  // On a thread of interrupt_.
  void Interrupt() {
    absl::MutexLock lock(&mutex_);
    if (model_ == nullptr || !model_->Stop()) _exit(kExitInterrupted);
  }

  void Say(const std::string& what) const {
    std::cerr << Paint(errors_, Style::kDim, what) << std::endl;
  }

  absl::Status Load() {
    LocalModel::Options options = options_.model;
    const uint64_t bytes = TensorFileBytes(options.model);
    ProgressBar bar("loading", bytes, errors_, std::cerr, absl::Now());
    bar.Update(0, FormatBytes(bytes), absl::Now());
    options.on_load = [&](uint64_t done) {
      bar.Update(std::min(done, bytes), FormatBytes(bytes), absl::Now());
    };
    absl::StatusOr<std::unique_ptr<LocalModel>> loaded = LocalModel::Load(std::move(options));
    bar.Clear();
    if (!loaded.ok()) return loaded.status();
    Say(absl::StrCat(kProgram, ": ", (*loaded)->description()));
    absl::MutexLock lock(&mutex_);
    model_ = *std::move(loaded);
    return absl::OkStatus();
  }

  absl::StatusOr<LocalAnswer> Answer(LocalPrompt prompt) {
    const absl::StatusOr<std::vector<TokenId>> stops = ParseTokens(options_.stop_tokens);
    if (!stops.ok()) return stops.status();
    prompt.stop_tokens.insert(prompt.stop_tokens.end(), stops->begin(), stops->end());
    absl::StatusOr<std::optional<StructuredOutput>> format = ReadFormat(options_.format);
    if (!format.ok()) return format.status();
    const bool is_json = options_.output == OutputFormat::kJson;
    const bool is_ids = !options_.tokens.empty();
    const char* separator = "";
    ProgressBar bar("prompt", prompt.tokens.size(), errors_, std::cerr, absl::Now());
    LocalModel::Request request{.prompt = std::move(prompt),
                                .max_new_tokens = options_.max_new_tokens,
                                .sampling = SamplingOf(options_.sampling),
                                .max_draft_tokens = options_.sampling.max_draft_tokens,
                                .structured = *std::move(format)};
    request.on_prompt = [&](uint64_t done, uint64_t) { bar.Update(done, "tokens", absl::Now()); };
    request.on_token = [&, first = true](TokenId token, const std::string& text) mutable {
      if (std::exchange(first, false)) bar.Clear();
      if (is_json) return;
      if (is_ids) {
        std::cout << std::exchange(separator, " ") << token << std::flush;
      } else {
        PrintAnswer(text);
      }
    };
    absl::StatusOr<LocalAnswer> answer = model_->Answer(std::move(request));
    interrupt_.Rearm();
    if (!answer.ok() || answer->tokens.empty()) bar.Clear();
    if (!answer.ok()) return answer;
    if (is_json) {
      // Broken UTF-8 becomes the replacement character.
      std::cout << AnswerJson(*answer).dump(-1, ' ', false,
                                            nlohmann::json::error_handler_t::replace)
                << std::endl;
    } else {
      std::cout << std::endl;
    }
    if (!std::cout) return absl::AbortedError("cannot write the answer");
    Say(ReportText(*answer));
    return answer;
  }

  absl::StatusOr<LocalPrompt> ReadPrompt() const {
    if (!options_.tokens.empty()) {
      absl::StatusOr<std::vector<TokenId>> tokens = ParseTokens(options_.tokens);
      if (!tokens.ok()) return tokens.status();
      return LocalPrompt{.tokens = *std::move(tokens), .stop_tokens = {}};
    }
    if (options_.prompt_file.empty()) return model_->ReadText(options_.prompt);
    std::ifstream file;
    if (options_.prompt_file != "-") {
      file.open(options_.prompt_file);
      if (!file) {
        return MakeError(Reason::kInvalidArgument,
                         absl::StrCat("cannot read ", options_.prompt_file));
      }
    }
    std::istream& input = options_.prompt_file == "-" ? std::cin : file;
    return model_->ReadText({std::istreambuf_iterator<char>(input), {}});
  }

  absl::Status RunOnce() {
    absl::StatusOr<LocalPrompt> prompt = ReadPrompt();
    if (!prompt.ok()) return prompt.status();
    return Answer(*std::move(prompt)).status();
  }

  absl::Status RunChat() {
    if (absl::Status takes = model_->takes_conversations(); !takes.ok()) return takes;
    if (prompts_) Say(Chat::kHelp);
    Chat chat(model_.get(),
              {.system = options_.system,
               .before_line =
                   [this] {
                     if (prompts_) std::cerr << Paint(errors_, Style::kBold, "> ") << std::flush;
                   },
               .answer = [this](LocalPrompt prompt) { return Answer(std::move(prompt)); },
               .on_error =
                   [this](const absl::Status& error) {
                     if (!prompts_ || ReasonOf(error) != Reason::kInvalidPrompt) return false;
                     std::cerr << Paint(errors_, Style::kRed, std::string(error.message()))
                               << std::endl;
                     return true;
                   }});
    return chat.Run(std::cin);
  }

  const RunOptions& options_;
  const Terminal errors_;  // Standard error.
  const bool prompts_;     // A person types.
  absl::Mutex mutex_;
  // Written once. Interrupt reads it under the lock.
  std::unique_ptr<LocalModel> model_;
  // Before the model's threads, which inherit the signal mask; see Load. Ends first.
  InterruptScope interrupt_;
};

}  // namespace

int RunPagodaRun(int argc, char** argv) {
  const PrintableOutput output;
  RunOptions options;
  CLI::App app("Chats with a model, or continues a prompt, in one process without a daemon.",
               kProgram);
  app.footer(kFooter);
  app.set_version_flag("--version", absl::StrCat(kProgram, " ", PAGODA_VERSION));
  AddRunOptions(app, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // --help and --version also end up here, with code 0.
    return app.exit(error) == 0 ? kExitOk : kExitBadUsage;
  }
  const absl::Status status = Runner(options).Run();
  if (status.ok()) return kExitOk;
  const Reason reason = ReasonOf(status);
  std::cerr << kProgram << ": "
            << Paint(DetectTerminal(STDERR_FILENO), Style::kRed,
                     reason == Reason::kNone ? absl::StatusCodeToString(status.code())
                                             : std::string(ReasonName(reason)))
            << ": " << status.message() << std::endl;
  return kExitFailed;
}

}  // namespace pagoda
