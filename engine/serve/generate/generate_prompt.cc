#include "engine/serve/generate/generate_prompt.h"

#include <string>
#include <utility>

#include "absl/time/civil_time.h"
#include "base/error.h"
#include "engine/serve/prompt/model_prompt.h"

namespace pagoda::server {
namespace {

absl::StatusOr<ModelPrompt> EncodeMessages(const v1::GenerateRequest& request,
                                           const ModelText& text, const ModelConfig& model,
                                           absl::Time now) {
  std::vector<ChatMessage> messages;
  for (const v1::ChatMessage& message : request.messages()) {
    messages.push_back(
        {.role = message.role(), .content = message.content(), .fields = message.fields()});
  }
  const std::vector<std::string> tools(request.tools().begin(), request.tools().end());
  return EncodeConversation(
      {.messages = messages, .tools = tools, .template_kwargs = request.chat_template_kwargs()},
      text, model, absl::ToCivilSecond(now, absl::UTCTimeZone()));
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
  absl::StatusOr<ModelPrompt> encoded = is_chat ? EncodeMessages(request, text, model, now)
                                                : EncodeText(request.prompt_text(), text, model);
  if (!encoded.ok()) return encoded.status();
  prompt.tokens = std::move(encoded->tokens);
  prompt.stop_tokens.insert(prompt.stop_tokens.end(), encoded->stop_tokens.begin(),
                            encoded->stop_tokens.end());
  prompt.tokenizer = text.tokenizer->get();
  return prompt;
}

}  // namespace pagoda::server
