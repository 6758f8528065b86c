#include "engine/serve/prompt/chat.h"

#include <utility>

#include "absl/strings/strip.h"

namespace pagoda {

Chat::Chat(const Answerer* answerer, Options options)
    : answerer_(*answerer), options_(std::move(options)) {
  Reset();
}

void Chat::Reset() {
  messages_.clear();
  if (!options_.system.empty()) messages_.push_back({.role = "system", .content = options_.system});
}

absl::Status Chat::Run(std::istream& input) {
  for (std::string line;;) {
    if (options_.before_line) options_.before_line();
    if (!std::getline(input, line)) return absl::OkStatus();
    const std::string said(absl::StripAsciiWhitespace(line));
    if (said == "/quit") return absl::OkStatus();
    if (said == "/reset") {
      Reset();
    } else if (!said.empty()) {
      absl::Status status = Turn(said);
      if (!status.ok() && !options_.on_error(status)) return status;
    }
  }
}

absl::Status Chat::Turn(const std::string& said) {
  messages_.push_back({.role = "user", .content = said});
  absl::StatusOr<ModelPrompt> prompt = answerer_.ReadConversation(messages_);
  absl::StatusOr<PromptAnswer> answer = prompt.ok() ? options_.answer(*std::move(prompt))
                                                    : absl::StatusOr<PromptAnswer>(prompt.status());
  if (!answer.ok()) {
    messages_.pop_back();
    return answer.status();
  }
  messages_.push_back({.role = "assistant", .content = answer->text});
  return absl::OkStatus();
}

}  // namespace pagoda
