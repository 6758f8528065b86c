#include "engine/text/chat_format.h"

#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/error.h"
#include "engine/text/bounded_json.h"

namespace pagoda {
namespace {

constexpr uint64_t kMaxFileBytes = 16 << 20;
constexpr absl::string_view kSystem = "<|im_start|>system";
constexpr char kKnown[] = "ChatML (Qwen), Llama 3, Mistral, Gemma";

absl::Status Unknown(absl::string_view why) {
  return MakeError(
      Reason::kInvalidCheckpoint,
      absl::StrCat("the model has no supported chat format: ", why, "; known formats: ", kKnown));
}

bool HasAny(absl::string_view text, std::initializer_list<absl::string_view> words) {
  for (const absl::string_view word : words) {
    if (absl::StrContains(text, word)) return true;
  }
  return false;
}

// Nothing if there is no such file.
absl::StatusOr<std::optional<std::string>> ReadFile(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return std::nullopt;
  const uint64_t size = std::filesystem::file_size(path, error);
  std::ifstream in(path, std::ios::binary);
  if (error || size > kMaxFileBytes || !in.is_open()) {
    return MakeError(Reason::kInvalidCheckpoint, absl::StrCat("cannot read ", path));
  }
  return std::string(std::istreambuf_iterator<char>(in), {});
}

// A special token is a string, or an object with its content.
std::string TokenText(const nlohmann::json& root, const char* key) {
  const auto field = root.find(key);
  if (field == root.end()) return "";
  if (field->is_string()) return field->get<std::string>();
  if (!field->is_object()) return "";
  const auto content = field->find("content");
  return content != field->end() && content->is_string() ? content->get<std::string>() : "";
}

// One template, or a list of them with names.
std::optional<std::string> TemplateOf(const nlohmann::json& root) {
  const auto field = root.find("chat_template");
  if (field == root.end()) return std::nullopt;
  if (field->is_string()) return field->get<std::string>();
  if (!field->is_array()) return std::nullopt;
  for (const nlohmann::json& element : *field) {
    if (element.is_object() && TokenText(element, "name") == "default") {
      return TokenText(element, "template");
    }
  }
  return std::nullopt;
}

// The text between `before` and `behind`, if all three are in one literal of the template.
std::optional<std::string> LiteralBetween(absl::string_view text, absl::string_view before,
                                          absl::string_view behind) {
  const size_t begin = text.find(before);
  if (begin == absl::string_view::npos) return std::nullopt;
  text.remove_prefix(begin + before.size());
  const size_t end = text.find(behind);
  if (end == absl::string_view::npos) return std::nullopt;
  return std::string(text.substr(0, end));
}

}  // namespace

absl::StatusOr<ChatFormat> ChatFormat::Load(const std::string& model_dir,
                                            const Tokenizer& tokenizer) {
  ChatSettings settings;
  const std::filesystem::path folder = model_dir;
  absl::StatusOr<std::optional<std::string>> config =
      ReadFile((folder / "tokenizer_config.json").string());
  if (!config.ok()) return config.status();
  if (config->has_value()) {
    const absl::StatusOr<nlohmann::json> root = ParseBoundedJson(**config, kMaxJsonDepth);
    if (!root.ok() || !root->is_object()) {
      return MakeError(Reason::kInvalidCheckpoint, "tokenizer_config.json is not a JSON object");
    }
    settings = {TemplateOf(*root), TokenText(*root, "bos_token"), TokenText(*root, "eos_token")};
  }
  absl::StatusOr<std::optional<std::string>> own =
      ReadFile((folder / "chat_template.jinja").string());
  if (!own.ok()) return own.status();
  if (own->has_value()) settings.chat_template = **std::move(own);
  return From(settings, tokenizer);
}

absl::StatusOr<ChatFormat> ChatFormat::From(const ChatSettings& settings,
                                            const Tokenizer& tokenizer) {
  ChatFormat format;
  const std::string text = settings.chat_template.value_or("");
  format.eos_ = settings.eos_token;
  if (absl::StrContains(text, "bos_token")) format.begin_ = settings.bos_token;
  if (HasAny(text, {"<|im_sep|>", "<<SYS>>"})) return Unknown("its template is another one");
  if (!settings.chat_template.has_value()) {
    if (!tokenizer.Find("<|im_start|>").has_value()) return Unknown("it has no template");
  } else if (absl::StrContains(text, "<|im_start|>")) {
    format.ReadChatMl(text);
  } else if (absl::StrContains(text, "<|start_header_id|>")) {
    format.ReadLlama3(text);
  } else if (absl::StrContains(text, "[INST]")) {
    format.ReadMistral(text);
  } else if (absl::StrContains(text, "<start_of_turn>")) {
    format.ReadGemma(text);
  } else {
    return Unknown("its template is another one");
  }
  if (absl::Status status = format.CheckVocabulary(tokenizer); !status.ok()) return status;
  return format;
}

void ChatFormat::ReadChatMl(absl::string_view text) {
  kind_ = Kind::kChatMl;
  drops_thoughts_ = absl::StrContains(text, "</think>");
  // Not the first place: templates write a conversation's own system message first.
  for (size_t at = text.find(kSystem); at != absl::string_view::npos;
       at = text.find(kSystem, at + kSystem.size())) {
    absl::string_view rest = text.substr(at + kSystem.size());
    // A template has line ends as "\n" escapes or as such.
    if (!absl::ConsumePrefix(&rest, "\\n") && !absl::ConsumePrefix(&rest, "\n")) continue;
    const absl::string_view words = rest.substr(0, rest.find("<|im_end|>"));
    // A quote or a brace means an expression between two literals.
    if (words.find_first_of("'\"{}") != absl::string_view::npos) continue;
    default_system_ = std::string(words);
  }
}

void ChatFormat::ReadLlama3(absl::string_view text) {
  kind_ = Kind::kLlama3;
  tells_date_ = absl::StrContains(text, "Cutting Knowledge Date: December 2023");
  if (!absl::StrContains(text, "strftime_now")) {
    fixed_date_ = LiteralBetween(text, "date_string = \"", "\"").value_or("26 Jul 2024");
  }
}

void ChatFormat::ReadMistral(absl::string_view text) {
  kind_ = Kind::kMistral;
  const bool own_turn = absl::StrContains(text, "[SYSTEM_PROMPT]");
  before_system_ =
      absl::StrContains(text, "[SYSTEM_PROMPT] ") ? "[SYSTEM_PROMPT] " : "[SYSTEM_PROMPT]";
  before_user_ = absl::StrContains(text, "[INST] ") ? "[INST] " : "[INST]";
  behind_user_ = absl::StrContains(text, " [/INST]") ? " [/INST]" : "[/INST]";
  if (HasAny(text, {"' ' + message", "\" \" + message"})) before_assistant_ = " ";
  behind_assistant_ = HasAny(text, {"eos_token + ' '", "eos_token + \" \""}) ? eos_ + " " : eos_;
  trims_assistant_ = HasAny(text, {"|trim", "| trim"});
  if (own_turn) {
    system_ = SystemPlace::kOwnTurn;
  } else if (absl::StrContains(text, "system_message")) {
    system_ =
        absl::StrContains(text, "loop.last") ? SystemPlace::kLastUser : SystemPlace::kFirstUser;
  }
}

void ChatFormat::ReadGemma(absl::string_view text) {
  kind_ = Kind::kGemma;
  if (!absl::StrContains(text, "System role not supported")) system_ = SystemPlace::kFirstUser;
}

absl::string_view ChatFormat::name() const {
  switch (kind_) {
    case Kind::kChatMl:
      return "ChatML";
    case Kind::kLlama3:
      return "Llama 3";
    case Kind::kMistral:
      return "Mistral";
    case Kind::kGemma:
      return "Gemma";
  }
  return "";
}

absl::Status ChatFormat::CheckVocabulary(const Tokenizer& tokenizer) {
  struct Tokens {
    std::vector<std::string> needed;
    std::vector<std::string> stops;
  };
  const auto tokens = [&]() -> Tokens {
    switch (kind_) {
      case Kind::kChatMl:
        return {{"<|im_start|>", "<|im_end|>"}, {"<|im_end|>", "<|endoftext|>"}};
      case Kind::kLlama3:
        return {{"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"},
                {"<|eot_id|>", "<|eom_id|>", "<|end_of_text|>"}};
      case Kind::kMistral:
        return {{eos_}, {eos_}};
      case Kind::kGemma:
        return {{"<start_of_turn>", "<end_of_turn>"}, {"<end_of_turn>", "<eos>"}};
    }
    return {};
  }();
  for (const std::string& token : tokens.needed) {
    if (!tokenizer.Find(token).has_value()) {
      return Unknown(absl::StrCat("the vocabulary has no token '", token, "' for ", name()));
    }
  }
  for (const std::string& token : tokens.stops) {
    if (const std::optional<TokenId> id = tokenizer.Find(token)) stop_tokens_.push_back(*id);
  }
  return absl::OkStatus();
}

}  // namespace pagoda
