// ChatFormat::Render, for each format.
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "base/error.h"
#include "engine/text/chat_format.h"
#include "engine/text/utf8.h"

namespace pagoda {
namespace {

absl::Status BadMessages(absl::string_view what) {
  return MakeError(Reason::kInvalidPrompt, absl::StrCat("messages: ", what));
}

// Jinja's `trim` is Python's str.strip, which also strips ASCII's four separators.
bool IsTrimmed(char32_t code_point) {
  return IsWhitespace(code_point) || (code_point >= 0x1C && code_point <= 0x1F);
}

absl::string_view Trim(absl::string_view text) {
  while (!text.empty() && IsTrimmed(ReadUtf8(text).code_point)) {
    text.remove_prefix(ReadUtf8(text).size);
  }
  while (!text.empty()) {
    size_t last = text.size() - 1;
    while (last > 0 && (static_cast<uint8_t>(text[last]) & 0xC0) == 0x80) --last;
    if (!IsTrimmed(ReadUtf8(text.substr(last)).code_point)) break;
    text = text.substr(0, last);
  }
  return text;
}

// An answer without the model's thoughts before it.
absl::string_view WithoutThoughts(absl::string_view answer) {
  constexpr absl::string_view kEnd = "</think>";
  const size_t end = answer.rfind(kEnd);
  if (end == absl::string_view::npos) return answer;
  answer.remove_prefix(end + kEnd.size());
  while (absl::ConsumePrefix(&answer, "\n")) {
  }
  return answer;
}

}  // namespace

absl::Status ChatFormat::CheckRoles(absl::Span<const ChatMessage> messages) const {
  if (messages.empty()) return BadMessages("the list is empty");
  if (messages.back().role != "user") return BadMessages("the last message is not the user's");
  const bool system_anywhere = kind_ == Kind::kChatMl || (kind_ == Kind::kLlama3 && !tells_date_);
  const bool alternates = kind_ == Kind::kMistral || kind_ == Kind::kGemma;
  size_t turn = 0;
  for (size_t i = 0; i < messages.size(); ++i) {
    const ChatMessage& message = messages[i];
    if (!IsUtf8(message.content)) return BadMessages(absl::StrCat("[", i, "] is not valid UTF-8"));
    if (message.role == "system") {
      if (alternates && system_ == SystemPlace::kNone) {
        return BadMessages(absl::StrCat("the model's format, ", name(), ", has no system message"));
      }
      if (i > 0 && !system_anywhere) return BadMessages("the system message is not the first one");
      continue;
    }
    if (message.role != "user" && message.role != "assistant") {
      return BadMessages(
          absl::StrCat("the role '", message.role, "' is not system, user or assistant"));
    }
    if (alternates && (message.role == "user") != (turn++ % 2 == 0)) {
      return BadMessages("user and assistant do not alternate");
    }
  }
  return absl::OkStatus();
}

std::string ChatFormat::RenderChatMl(absl::Span<const ChatMessage> messages) const {
  std::string text = begin_;
  const auto add = [&](absl::string_view role, absl::string_view content) {
    absl::StrAppend(&text, "<|im_start|>", role, "\n", content, "<|im_end|>\n");
  };
  if (messages[0].role != "system" && default_system_.has_value()) add("system", *default_system_);
  for (const ChatMessage& message : messages) {
    const bool drops = drops_thoughts_ && message.role == "assistant";
    add(message.role, drops ? WithoutThoughts(message.content) : message.content);
  }
  return text + "<|im_start|>assistant\n";
}

std::string ChatFormat::RenderLlama3(absl::Span<const ChatMessage> messages,
                                     absl::CivilDay today) const {
  std::string text = begin_;
  const auto add = [&](absl::string_view role, absl::string_view content) {
    absl::StrAppend(&text, "<|start_header_id|>", role, "<|end_header_id|>\n\n", content,
                    "<|eot_id|>");
  };
  if (tells_date_) {
    absl::string_view system;
    if (messages[0].role == "system") {
      system = Trim(messages[0].content);
      messages.remove_prefix(1);
    }
    const std::string date =
        fixed_date_.empty()
            ? absl::FormatTime("%d %b %Y", absl::FromCivil(today, absl::UTCTimeZone()),
                               absl::UTCTimeZone())
            : fixed_date_;
    add("system",
        absl::StrCat("Cutting Knowledge Date: December 2023\nToday Date: ", date, "\n\n", system));
  }
  for (const ChatMessage& message : messages) add(message.role, Trim(message.content));
  return text + "<|start_header_id|>assistant<|end_header_id|>\n\n";
}

std::string ChatFormat::RenderMistral(absl::Span<const ChatMessage> messages) const {
  std::string text = begin_;
  std::string system;
  if (messages[0].role == "system") {
    system = messages[0].content;
    messages.remove_prefix(1);
    if (system_ == SystemPlace::kOwnTurn) {
      absl::StrAppend(&text, before_system_, std::exchange(system, ""), "[/SYSTEM_PROMPT]");
    } else {
      system += "\n\n";
    }
  }
  for (size_t i = 0; i < messages.size(); ++i) {
    const ChatMessage& message = messages[i];
    if (message.role == "user") {
      const size_t place = system_ == SystemPlace::kLastUser ? messages.size() - 1 : 0;
      absl::StrAppend(&text, before_user_, i == place ? system : "", message.content, behind_user_);
    } else {
      const absl::string_view content =
          trims_assistant_ ? Trim(message.content) : absl::string_view(message.content);
      absl::StrAppend(&text, before_assistant_, content, behind_assistant_);
    }
  }
  return text;
}

std::string ChatFormat::RenderGemma(absl::Span<const ChatMessage> messages) const {
  std::string text = begin_;
  std::string system;
  if (messages[0].role == "system") {
    system = messages[0].content + "\n\n";
    messages.remove_prefix(1);
  }
  for (const ChatMessage& message : messages) {
    absl::StrAppend(&text, "<start_of_turn>", message.role == "assistant" ? "model" : "user", "\n",
                    std::exchange(system, ""), Trim(message.content), "<end_of_turn>\n");
  }
  return text + "<start_of_turn>model\n";
}

absl::StatusOr<std::string> ChatFormat::Render(absl::Span<const ChatMessage> messages,
                                               absl::CivilDay today) const {
  if (absl::Status status = CheckRoles(messages); !status.ok()) return status;
  switch (kind_) {
    case Kind::kChatMl:
      return RenderChatMl(messages);
    case Kind::kLlama3:
      return RenderLlama3(messages, today);
    case Kind::kMistral:
      return RenderMistral(messages);
    case Kind::kGemma:
      return RenderGemma(messages);
  }
  return BadMessages("no format");
}

}  // namespace pagoda
