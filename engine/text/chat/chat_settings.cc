#include "engine/text/chat/chat_settings.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "engine/text/encoding/bounded_json.h"

namespace pagoda {
namespace {

constexpr uint64_t kMaxFileBytes = 16 << 20;

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
void ReadTemplates(const nlohmann::json& root, ChatSettings& settings) {
  const auto field = root.find("chat_template");
  if (field == root.end()) return;
  if (field->is_string()) settings.chat_template = field->get<std::string>();
  if (!field->is_array()) return;
  for (const nlohmann::json& element : *field) {
    const std::string name = element.is_object() ? TokenText(element, "name") : "";
    if (name == "default") settings.chat_template = TokenText(element, "template");
    if (name == "tool_use") settings.tool_template = TokenText(element, "template");
  }
}

}  // namespace

absl::StatusOr<ChatSettings> LoadChatSettings(const std::string& model_dir) {
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
    ReadTemplates(*root, settings);
    settings.bos_token = TokenText(*root, "bos_token");
    settings.eos_token = TokenText(*root, "eos_token");
    for (const char* name : {"unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}) {
      std::string token = TokenText(*root, name);
      if (!token.empty()) settings.other_tokens.emplace_back(name, std::move(token));
    }
  }
  absl::StatusOr<std::optional<std::string>> own =
      ReadFile((folder / "chat_template.jinja").string());
  if (!own.ok()) return own.status();
  if (own->has_value()) settings.chat_template = **std::move(own);
  return settings;
}

}  // namespace pagoda
