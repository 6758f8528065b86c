#include "engine/serve/generate/generate_prompt.h"

#include <string>
#include <utility>

#include "absl/time/civil_time.h"
#include "base/error.h"

namespace pagoda::server {
namespace {

absl::StatusOr<std::string> RenderMessages(const v1::GenerateRequest& request,
                                           const ModelText& text, absl::Time now) {
  if (!text.chat.ok()) return text.chat.status();
  std::vector<ChatMessage> messages;
  for (const v1::ChatMessage& message : request.messages()) {
    messages.push_back(
        {.role = message.role(), .content = message.content(), .fields = message.fields()});
  }
  const std::vector<std::string> tools(request.tools().begin(), request.tools().end());
  return text.chat->Render(
      {.messages = messages, .tools = tools, .template_kwargs = request.chat_template_kwargs()},
      absl::ToCivilSecond(now, absl::UTCTimeZone()));
}

}  // namespace

absl::StatusOr<GeneratePrompt> ReadPrompt(const v1::GenerateRequest& request, const ModelText& text,
                                          const ModelConfig& model, absl::Time now) {
  const bool is_chat = request.messages_size() > 0;
  const bool is_text = !request.prompt_text().empty();
  const bool is_ids = request.prompt_tokens_size() > 0;
  if (is_chat + is_text + is_ids > 1) {
    return MakeError(Reason::kInvalidPrompt,
                     "a prompt is one of prompt_tokens, prompt_text and messages");
  }
  if (!is_chat && (request.tools_size() > 0 || !request.chat_template_kwargs().empty())) {
    return MakeError(
        Reason::kInvalidPrompt,
        "tools and chat_template_kwargs are for messages: the chat template gets them");
  }
  GeneratePrompt prompt;
  prompt.stop_tokens = {request.stop_tokens().begin(), request.stop_tokens().end()};
  if (!is_chat && !is_text) {
    prompt.tokens = {request.prompt_tokens().begin(), request.prompt_tokens().end()};
    return prompt;
  }
  if (!text.tokenizer.ok()) return text.tokenizer.status();
  prompt.tokenizer = text.tokenizer->get();
  const auto stop = [&](const std::vector<TokenId>& ids) {
    prompt.stop_tokens.insert(prompt.stop_tokens.end(), ids.begin(), ids.end());
  };
  stop(model.eos_token_ids);
  stop(prompt.tokenizer->end_tokens());
  absl::StatusOr<std::string> words = request.prompt_text();
  if (is_chat) {
    words = RenderMessages(request, text, now);
    if (!words.ok()) return words.status();
    stop(text.chat->stop_tokens());
  }
  // A chat format has already written the special tokens around the text.
  absl::StatusOr<std::vector<TokenId>> tokens =
      prompt.tokenizer->Encode(*words, is_chat ? SpecialTokens::kLeaveOut : SpecialTokens::kKeep);
  if (!tokens.ok()) return tokens.status();
  prompt.tokens = *std::move(tokens);
  return prompt;
}

}  // namespace pagoda::server
