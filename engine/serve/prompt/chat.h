#ifndef PAGODA_ENGINE_SERVE_PROMPT_CHAT_H_
#define PAGODA_ENGINE_SERVE_PROMPT_CHAT_H_

#include <functional>
#include <istream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/serve/prompt/answerer.h"

namespace pagoda {

// A conversation, line by line. Thread-compatible.
class Chat {
 public:
  struct Options {
    std::string system;  // Empty: no system message.
    // Called before each line is read; may be empty.
    std::function<void()> before_line = nullptr;
    // Answers a conversation's prompt, and shows the answer.
    std::function<absl::StatusOr<PromptAnswer>(ModelPrompt prompt)> answer;
    // Called with an error of one turn. That turn is then forgotten. Returns whether the
    // conversation goes on.
    std::function<bool(const absl::Status& error)> on_error;
  };
  static constexpr char kHelp[] =
      "/reset starts a new conversation. /quit or the end of input ends the program. Ctrl-C ends "
      "an answer, or the program if there is none.";

  // `answerer` reads the conversation, and outlives the chat.
  Chat(const Answerer* answerer, Options options);

  // Runs until the end of input. The text of a stopped answer is also part of the conversation.
  // Errors: those of ReadConversation and `answer` that `on_error` does not accept.
  absl::Status Run(std::istream& input);

 private:
  void Reset();
  absl::Status Turn(const std::string& said);

  const Answerer& answerer_;
  const Options options_;
  std::vector<ChatMessage> messages_;
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_SERVE_PROMPT_CHAT_H_
