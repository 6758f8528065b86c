// Turns a conversation into the prompt that a model was trained on.
#ifndef PAGODA_ENGINE_TEXT_CHAT_FORMAT_H_
#define PAGODA_ENGINE_TEXT_CHAT_FORMAT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/civil_time.h"
#include "absl/types/span.h"
#include "engine/text/tokenizer.h"
#include "pools/types.h"

namespace pagoda {

struct ChatMessage {
  std::string role;  // "system", "user" or "assistant".
  std::string content;
};

// The part of tokenizer_config.json about conversations.
struct ChatSettings {
  std::optional<std::string> chat_template;  // Jinja.
  std::string bos_token;                     // Empty: none.
  std::string eos_token;
};

// One of the known formats. A model's template is a Jinja program, which is not run. It is
// recognised by the tokens and words that it writes; an unknown template is refused. Thread-safe.
class ChatFormat {
 public:
  // Reads tokenizer_config.json and chat_template.jinja in the model's folder; both are optional.
  // Errors: INVALID_CHECKPOINT (damaged files; those of From).
  static absl::StatusOr<ChatFormat> Load(const std::string& model_dir, const Tokenizer& tokenizer);

  // Without a template: ChatML, if the vocabulary has its tokens. Errors: INVALID_CHECKPOINT, which
  // names the known formats.
  static absl::StatusOr<ChatFormat> From(const ChatSettings& settings, const Tokenizer& tokenizer);

  // The prompt with its special tokens, up to the beginning of the answer. `today` is for models
  // that are told the date. Errors: INVALID_PROMPT (no messages, the last one is not the user's, or
  // roles or an order that the format does not have).
  absl::StatusOr<std::string> Render(absl::Span<const ChatMessage> messages,
                                     absl::CivilDay today) const;

  // Any of these ends the answer.
  const std::vector<TokenId>& stop_tokens() const { return stop_tokens_; }
  // "ChatML".
  absl::string_view name() const;

 private:
  enum class Kind : uint8_t { kChatMl, kLlama3, kMistral, kGemma };
  // The place of the system message in the formats of Mistral and Gemma.
  enum class SystemPlace : uint8_t { kNone, kFirstUser, kLastUser, kOwnTurn };

  ChatFormat() = default;

  void ReadChatMl(absl::string_view text);
  void ReadLlama3(absl::string_view text);
  void ReadMistral(absl::string_view text);
  void ReadGemma(absl::string_view text);
  absl::Status CheckVocabulary(const Tokenizer& tokenizer);

  absl::Status CheckRoles(absl::Span<const ChatMessage> messages) const;
  std::string RenderChatMl(absl::Span<const ChatMessage> messages) const;
  std::string RenderLlama3(absl::Span<const ChatMessage> messages, absl::CivilDay today) const;
  std::string RenderMistral(absl::Span<const ChatMessage> messages) const;
  std::string RenderGemma(absl::Span<const ChatMessage> messages) const;

  Kind kind_ = Kind::kChatMl;
  std::string begin_;  // The beginning of every prompt.
  std::string eos_;
  std::vector<TokenId> stop_tokens_;
  // ChatML: the system message of conversations without one, and whether thoughts are dropped from
  // earlier answers.
  std::optional<std::string> default_system_;
  bool drops_thoughts_ = false;
  // Llama 3: whether the system message has the training and current dates. An empty fixed_date_
  // means today.
  bool tells_date_ = false;
  std::string fixed_date_;
  // Mistral: the text around the messages of the user and the assistant.
  SystemPlace system_ = SystemPlace::kNone;
  absl::string_view before_system_;
  absl::string_view before_user_;
  absl::string_view behind_user_;
  absl::string_view before_assistant_;
  std::string behind_assistant_;
  bool trims_assistant_ = false;
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_TEXT_CHAT_FORMAT_H_
