// Turns a conversation into the prompt that a model was trained on.
#ifndef PAGODA_ENGINE_TEXT_CHAT_CHAT_FORMAT_H_
#define PAGODA_ENGINE_TEXT_CHAT_CHAT_FORMAT_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/civil_time.h"
#include "absl/types/span.h"
#include "engine/text/chat/chat_settings.h"
#include "engine/text/jinja/template.h"
#include "engine/text/tokenizer/tokenizer.h"
#include "pools/types.h"

namespace pagoda {

struct ChatMessage {
  std::string role;  // One that the model's template knows: "system", "user", "assistant", "tool".
  std::string content;
  // The other fields as a JSON object: {"tool_calls": [...]}. Empty: none. A `content` here
  // replaces the one above; it can be null or a list of parts.
  std::string fields;
};

// The input of a template.
struct Conversation {
  absl::Span<const ChatMessage> messages;
  absl::Span<const std::string> tools = {};  // Each a JSON object.
  // Further variables as a JSON object: {"enable_thinking": false}. Empty: none.
  std::string template_kwargs;
};

// The chat template of a model, a program in Jinja. It is run as transformers runs it, with bounds
// (jinja/template.h). Thread-safe; copies share the program.
class ChatFormat {
 public:
  // Errors: those of LoadChatSettings and From.
  static absl::StatusOr<ChatFormat> Load(const std::string& model_dir, const Tokenizer& tokenizer);

  // Without a template: ChatML, if the vocabulary has its tokens. Errors: INVALID_CHECKPOINT (there
  // is no template, or it cannot be parsed).
  static absl::StatusOr<ChatFormat> From(const ChatSettings& settings, const Tokenizer& tokenizer);

  // The prompt with its special tokens, up to the beginning of the answer. `now` is for models that
  // get the date. Errors: INVALID_PROMPT (there are no messages; something is not JSON; the
  // template refuses the conversation, fails on it, or needs more than its bounds),
  // INVALID_CHECKPOINT (the template uses a filter that does not exist).
  absl::StatusOr<std::string> Render(const Conversation& conversation, absl::CivilSecond now) const;

  // Any of these ends the answer: the end-of-text tokens, and the end-of-turn tokens that the
  // template names.
  const std::vector<TokenId>& stop_tokens() const { return stop_tokens_; }
  // "its own template" or "ChatML".
  absl::string_view name() const { return name_; }

 private:
  explicit ChatFormat(jinja::Template main) : main_(std::move(main)) {}

  jinja::Template main_;
  std::optional<jinja::Template> for_tools_;
  absl::string_view name_;
  std::vector<jinja::Field> tokens_;  // The special tokens, as variables.
  std::vector<TokenId> stop_tokens_;
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_TEXT_CHAT_CHAT_FORMAT_H_
