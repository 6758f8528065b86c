#include "engine/text/chat/chat_format.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "base/error.h"

namespace pagoda {
namespace {

using jinja::Field;

constexpr char kChatMl[] =
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

// Tokens that end a text in every vocabulary that has them.
constexpr const char* kTextEnds[] = {"<|endoftext|>", "<|end_of_text|>", "<eos>"};
// Tokens that end an answer if the template writes them.
constexpr const char* kTurnEnds[] = {
    "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<end_of_turn>",         "<turn|>",
    "<|end|>",    "<|return|>", "<|call|>",   "<|END_OF_TURN_TOKEN|>", "<|eot|>",
    "<|eom|>",    "[e~[",       "<|flush|>",  "<end_of_utterance>",    "<｜end▁of▁sentence｜>"};

std::vector<TokenId> StopTokens(const ChatSettings& settings, const Tokenizer& tokenizer) {
  std::vector<TokenId> stops;
  const auto add = [&](const std::string& token) {
    const std::optional<TokenId> id = tokenizer.Find(token);
    if (id.has_value() && std::find(stops.begin(), stops.end(), *id) == stops.end()) {
      stops.push_back(*id);
    }
  };
  if (!settings.eos_token.empty()) add(settings.eos_token);
  for (const char* const token : kTextEnds) add(token);
  const std::string text = settings.chat_template.value_or(kChatMl);
  // gpt-oss's <|end|> ends a part of an answer: the answer goes on behind it.
  const bool has_parts = tokenizer.Find("<|return|>").has_value();
  for (const absl::string_view token : kTurnEnds) {
    if (token == "<|end|>" && has_parts) continue;
    if (absl::StrContains(text, token)) add(std::string(token));
  }
  return stops;
}

std::vector<Field> TokenVariables(const ChatSettings& settings) {
  std::vector<Field> fields;
  const auto add = [&](const std::string& name, const std::string& token) {
    if (!token.empty()) fields.push_back({name, Field::Form::kText, token});
  };
  add("bos_token", settings.bos_token);
  add("eos_token", settings.eos_token);
  for (const auto& [name, token] : settings.other_tokens) add(name, token);
  return fields;
}

}  // namespace

absl::StatusOr<ChatFormat> ChatFormat::Load(const std::string& model_dir,
                                            const Tokenizer& tokenizer) {
  const absl::StatusOr<ChatSettings> settings = LoadChatSettings(model_dir);
  if (!settings.ok()) return settings.status();
  return From(*settings, tokenizer);
}

absl::StatusOr<ChatFormat> ChatFormat::From(const ChatSettings& settings,
                                            const Tokenizer& tokenizer) {
  const bool has_template = settings.chat_template.has_value();
  if (!has_template && !tokenizer.Find("<|im_start|>").has_value()) {
    return MakeError(Reason::kInvalidCheckpoint,
                     "the model takes no conversations: it has no chat template");
  }
  absl::StatusOr<jinja::Template> main =
      jinja::Template::Parse(has_template ? *settings.chat_template : kChatMl);
  if (!main.ok()) return main.status();
  ChatFormat format(*std::move(main));
  if (settings.tool_template.has_value()) {
    absl::StatusOr<jinja::Template> for_tools = jinja::Template::Parse(*settings.tool_template);
    if (!for_tools.ok()) return for_tools.status();
    format.for_tools_ = *std::move(for_tools);
  }
  format.name_ = has_template ? "its own template" : "ChatML";
  format.tokens_ = TokenVariables(settings);
  format.stop_tokens_ = StopTokens(settings, tokenizer);
  return format;
}

absl::StatusOr<std::string> ChatFormat::Render(const Conversation& conversation,
                                               absl::CivilSecond now) const {
  if (conversation.messages.empty()) {
    return MakeError(Reason::kInvalidPrompt, "messages: the list is empty");
  }
  jinja::TemplateInput input{.variables = tokens_, .messages = {}, .tools = {}, .now = now};
  input.variables.push_back({"documents", Field::Form::kJson, "null"});
  input.variables.push_back({"add_generation_prompt", Field::Form::kJson, "true"});
  if (!conversation.template_kwargs.empty()) {
    input.variables.push_back(
        {"chat_template_kwargs", Field::Form::kMembers, conversation.template_kwargs});
  }
  input.tools.assign(conversation.tools.begin(), conversation.tools.end());
  for (const ChatMessage& message : conversation.messages) {
    std::vector<Field> fields = {{"role", Field::Form::kText, message.role},
                                 {"content", Field::Form::kText, message.content}};
    if (!message.fields.empty()) {
      fields.push_back({"fields", Field::Form::kMembers, message.fields});
    }
    input.messages.push_back(std::move(fields));
  }
  const bool uses_tools = for_tools_.has_value() && !input.tools.empty();
  return (uses_tools ? *for_tools_ : main_).Render(input);
}

}  // namespace pagoda
