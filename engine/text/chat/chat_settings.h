// What a model's files say about conversations.
#ifndef PAGODA_ENGINE_TEXT_CHAT_CHAT_SETTINGS_H_
#define PAGODA_ENGINE_TEXT_CHAT_CHAT_SETTINGS_H_

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace pagoda {

struct ChatSettings {
  std::optional<std::string> chat_template;  // Jinja.
  std::string bos_token;                     // Empty: none.
  std::string eos_token;
  // For conversations with tools. Absent: chat_template.
  std::optional<std::string> tool_template;
  // Other special tokens that templates can use: {"pad_token", "<pad>"}.
  std::vector<std::pair<std::string, std::string>> other_tokens;
};

// Reads tokenizer_config.json and chat_template.jinja in the model's folder; both are optional.
// Errors: INVALID_CHECKPOINT (a file is damaged or too large).
absl::StatusOr<ChatSettings> LoadChatSettings(const std::string& model_dir);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_TEXT_CHAT_CHAT_SETTINGS_H_
