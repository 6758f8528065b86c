#include "engine/serve/run/run_prompts.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "base/error.h"
#include "clients/command_line/terminal/format.h"
#include "clients/command_line/terminal/interrupt.h"
#include "clients/command_line/terminal/printable_output.h"
#include "clients/command_line/terminal/progress_bar.h"
#include "clients/command_line/terminal/terminal.h"
#include "clients/command_line/tokens.h"
#include "engine/serve/prompt/answerer.h"
#include "engine/serve/prompt/chat.h"
#include "engine/serve/prompt/report_text.h"
#include "engine/serve/run/chosen_engine.h"

namespace pagoda {
namespace {

constexpr int kExitInterrupted = 130;

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

absl::StatusOr<std::string> ReadTextFile(const std::string& path) {
  std::ifstream file;
  if (path != "-") {
    file.open(path);
    if (!file) return MakeError(Reason::kInvalidArgument, absl::StrCat("cannot read ", path));
  }
  std::istream& input = path == "-" ? std::cin : file;
  return std::string{std::istreambuf_iterator<char>(input), {}};
}

// Answers prompts, and shows the answers.
class PromptRunner {
 public:
  explicit PromptRunner(const ProgramOptions& options)
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
    if (answerer_ == nullptr || !answerer_->Stop()) _exit(kExitInterrupted);
  }

  void Say(const std::string& what) const {
    std::cerr << Paint(errors_, Style::kDim, what) << std::endl;
  }

  absl::Status Load() {
    const uint64_t bytes = TensorFileBytes(options_.model_dir);
    ProgressBar bar("loading", bytes, errors_, std::cerr, absl::Now());
    absl::StatusOr<std::unique_ptr<ChosenEngine>> engine = ChosenEngine::Open(
        options_,
        {.on_load =
             [&](uint64_t done) {
               bar.Update(std::min(done, bytes), FormatBytes(bytes), absl::Now());
             },
         // The next prompt searches for a daemon again.
         .on_lost = [](const absl::Status& why) { SayAsEngine(std::string(why.message())); }});
    bar.Clear();
    if (!engine.ok()) return engine.status();
    engine_ = *std::move(engine);
    if (absl::Status status = engine_->Begin(options_); !status.ok()) return status;
    text_.emplace(ModelText::Load(options_.model_dir));
    absl::MutexLock lock(&mutex_);
    answerer_ = std::make_unique<Answerer>(&engine_->generator(), &*text_, engine_->context());
    return absl::OkStatus();
  }

  absl::StatusOr<GenerateRequest> RequestFor(ModelPrompt prompt) const {
    const absl::StatusOr<std::vector<TokenId>> stops = ParseTokens(options_.stop_tokens);
    if (!stops.ok()) return stops.status();
    prompt.stop_tokens.insert(prompt.stop_tokens.end(), stops->begin(), stops->end());
    const SamplingOptions& sampling = options_.sampling;
    GenerateRequest request{.prompt = std::move(prompt.tokens),
                            .max_new_tokens = options_.max_new_tokens,
                            .stop_tokens = std::move(prompt.stop_tokens),
                            .name_space = {.cache_salt = sampling.salt},
                            .adapter = options_.adapter,
                            .sampling = {.temperature = sampling.temperature,
                                         .top_k = sampling.top_k,
                                         .top_p = sampling.top_p,
                                         .repetition_penalty = sampling.repetition_penalty,
                                         .seed = sampling.seed,
                                         .top_logprobs = std::nullopt},
                            .max_draft_tokens = sampling.max_draft_tokens};
    const absl::StatusOr<std::optional<StructuredOutput>> format = ReadFormat(options_.format);
    if (!format.ok()) return format.status();
    if (format->has_value()) {
      absl::StatusOr<std::shared_ptr<const CompiledGrammar>> grammar =
          text_->CompileGrammar(**format);
      if (!grammar.ok()) return grammar.status();
      request.grammar = *std::move(grammar);
    }
    return request;
  }

  absl::StatusOr<PromptAnswer> Answer(ModelPrompt prompt) {
    absl::StatusOr<GenerateRequest> request = RequestFor(std::move(prompt));
    if (!request.ok()) return request.status();
    const bool is_json = options_.output == OutputFormat::kJson;
    const char* separator = "";
    ProgressBar bar("prompt", request->prompt.size(), errors_, std::cerr, absl::Now());
    AnswerWatch watch;
    watch.on_prompt = [&](uint64_t done) { bar.Update(done, "tokens", absl::Now()); };
    watch.on_token = [&, first = true](TokenId token, const std::string& text) mutable {
      if (std::exchange(first, false)) bar.Clear();
      if (is_json) return;
      if (options_.has_ids()) {
        std::cout << std::exchange(separator, " ") << token << std::flush;
      } else {
        PrintAnswer(text);
      }
    };
    absl::StatusOr<PromptAnswer> answer = answerer_->Answer(*std::move(request), watch);
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

  absl::StatusOr<ModelPrompt> ReadPrompt() {
    if (!options_.prompt.empty()) return answerer_->ReadText(options_.prompt);
    if (!options_.text_file.empty()) {
      const absl::StatusOr<std::string> text = ReadTextFile(options_.text_file);
      return text.ok() ? answerer_->ReadText(*text) : text.status();
    }
    absl::StatusOr<std::vector<TokenId>> tokens =
        options_.random_prompt != 0
            ? RandomTokens(options_.sampling.seed, engine_->generator().model().vocab_size)
                  .Take(options_.random_prompt)
        : options_.prompt_file.empty() ? ParseTokens(options_.prompt_tokens)
                                       : ReadTokenFile(options_.prompt_file);
    if (!tokens.ok()) return tokens.status();
    return ModelPrompt{.tokens = *std::move(tokens), .stop_tokens = {}};
  }

  absl::Status RunOnce() {
    absl::StatusOr<ModelPrompt> prompt = ReadPrompt();
    if (!prompt.ok()) return prompt.status();
    std::vector<TokenId> tokens = prompt->tokens;
    const absl::StatusOr<PromptAnswer> answer = Answer(*std::move(prompt));
    if (!answer.ok() || options_.save_kv.empty()) return answer.status();
    tokens.insert(tokens.end(), answer->tokens.begin(), answer->tokens.end());
    const absl::StatusOr<KvFileReport> saved =
        engine_->SaveKv({.cache_salt = options_.sampling.salt}, tokens, options_.save_kv);
    if (!saved.ok()) return saved.status();
    SayAsEngine(absl::StrCat("saved the KV of ", FormatCounted(saved->tokens, "token"), " to ",
                             options_.save_kv, ", ", saved->bytes, " bytes"));
    return absl::OkStatus();
  }

  absl::Status RunChat() {
    if (!text_->chat.ok()) return text_->chat.status();
    if (prompts_) Say(Chat::kHelp);
    Chat chat(answerer_.get(),
              {.system = options_.system,
               .before_line =
                   [this] {
                     if (prompts_) std::cerr << Paint(errors_, Style::kBold, "> ") << std::flush;
                   },
               .answer = [this](ModelPrompt prompt) { return Answer(std::move(prompt)); },
               .on_error =
                   [this](const absl::Status& error) {
                     if (!prompts_ || ReasonOf(error) != Reason::kInvalidPrompt) return false;
                     std::cerr << Paint(errors_, Style::kRed, std::string(error.message()))
                               << std::endl;
                     return true;
                   }});
    return chat.Run(std::cin);
  }

  const ProgramOptions& options_;
  const Terminal errors_;  // Standard error.
  const bool prompts_;     // A person types.
  std::optional<ModelText> text_;
  std::unique_ptr<ChosenEngine> engine_;
  absl::Mutex mutex_;
  // Uses the two above. Written once. Interrupt reads it under the lock.
  std::unique_ptr<Answerer> answerer_;
  // Before the engine's threads, which inherit the signal mask; see Load. Ends first.
  InterruptScope interrupt_;
};

}  // namespace

absl::Status RunPrompts(const ProgramOptions& options) { return PromptRunner(options).Run(); }

}  // namespace pagoda
