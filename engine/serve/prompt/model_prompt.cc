#include "engine/serve/prompt/model_prompt.h"

#include <utility>

namespace pagoda {
namespace {

absl::StatusOr<ModelPrompt> Encode(const std::string& words, SpecialTokens around, PromptKind kind,
                                   const ModelText& text, const ModelConfig& model) {
  if (!text.tokenizer.ok()) return text.tokenizer.status();
  absl::StatusOr<std::vector<TokenId>> tokens = (*text.tokenizer)->Encode(words, around);
  if (!tokens.ok()) return tokens.status();
  return ModelPrompt{.tokens = *std::move(tokens), .stop_tokens = EndTokens(kind, text, model)};
}

}  // namespace

std::vector<TokenId> EndTokens(PromptKind kind, const ModelText& text, const ModelConfig& model) {
  std::vector<TokenId> tokens = model.eos_token_ids;
  const auto add = [&](const std::vector<TokenId>& ids) {
    tokens.insert(tokens.end(), ids.begin(), ids.end());
  };
  if (text.tokenizer.ok()) add((*text.tokenizer)->end_tokens());
  if (kind == PromptKind::kConversation && text.chat.ok()) add(text.chat->stop_tokens());
  return tokens;
}

absl::StatusOr<ModelPrompt> EncodeText(const std::string& words, const ModelText& text,
                                       const ModelConfig& model) {
  return Encode(words, SpecialTokens::kKeep, PromptKind::kText, text, model);
}

absl::StatusOr<ModelPrompt> EncodeConversation(const Conversation& conversation,
                                               const ModelText& text, const ModelConfig& model,
                                               absl::CivilSecond now) {
  if (!text.chat.ok()) return text.chat.status();
  const absl::StatusOr<std::string> words = text.chat->Render(conversation, now);
  if (!words.ok()) return words.status();
  // The chat format has already written the special tokens around the text.
  return Encode(*words, SpecialTokens::kLeaveOut, PromptKind::kConversation, text, model);
}

}  // namespace pagoda
