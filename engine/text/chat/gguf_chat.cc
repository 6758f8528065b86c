#include "engine/text/chat/gguf_chat.h"

#include <optional>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "engine/checkpoint/gguf/gguf_arrays.h"

namespace pagoda {
namespace {

constexpr char kTemplate[] = "tokenizer.chat_template";

std::optional<std::string> TextOf(const GgufMetadata& metadata, const std::string& key) {
  const auto it = metadata.find(key);
  if (it == metadata.end()) return std::nullopt;
  const std::optional<absl::string_view> text = GgufText(it->second);
  if (!text.has_value()) return std::nullopt;
  return std::string(*text);
}

std::optional<std::string> Template(const GgufMetadata& metadata) {
  std::optional<std::string> text = TextOf(metadata, kTemplate);
  if (!text.has_value()) text = TextOf(metadata, absl::StrCat(kTemplate, ".default"));
  if (text.has_value()) return text;
  const std::string prefix = absl::StrCat(kTemplate, ".");
  const auto first = metadata.lower_bound(prefix);
  if (first == metadata.end() || !absl::StartsWith(first->first, prefix)) return std::nullopt;
  const auto second = std::next(first);
  const bool is_only = second == metadata.end() || !absl::StartsWith(second->first, prefix);
  return is_only ? TextOf(metadata, first->first) : std::nullopt;
}

}  // namespace

ChatSettings GgufChatSettings(const GgufMetadata& metadata, const Tokenizer& tokenizer) {
  const auto token = [](const std::optional<TokenId>& id, const Tokenizer& of) {
    const std::string* const text = id.has_value() ? of.Token(*id) : nullptr;
    return text == nullptr ? std::string() : *text;
  };
  ChatSettings settings;
  settings.chat_template = Template(metadata);
  settings.tool_template = TextOf(metadata, absl::StrCat(kTemplate, ".tool_use"));
  settings.bos_token = token(tokenizer.bos_token(), tokenizer);
  settings.eos_token = token(tokenizer.eos_token(), tokenizer);
  return settings;
}

}  // namespace pagoda
