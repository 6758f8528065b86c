#include "server/config/config_keys.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <string_view>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/error.h"

namespace pagoda::server {
namespace {

// Describes a node's content for a message.
std::string Describe(const YAML::Node& node) {
  if (node.IsScalar()) return absl::StrCat("'", node.Scalar(), "'");
  if (node.IsSequence()) return "a list";
  return node.IsMap() ? "a mapping" : "nothing";
}

std::string NamesOf(const std::vector<ConfigKey>& keys) {
  return absl::StrJoin(
      keys, ", ", [](std::string* out, const ConfigKey& key) { absl::StrAppend(out, key.name); });
}

// The number of bytes of a character that begins with `lead`; 0 if none begins with it.
size_t Utf8Length(unsigned char lead) {
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead < 0xE0) return 2;
  if (lead >= 0xE0 && lead < 0xF0) return 3;
  return lead >= 0xF0 && lead < 0xF5 ? 4 : 0;
}

// YAML requires UTF-8. yaml-cpp accepts other bytes but prints them as other text.
bool IsUtf8(std::string_view text) {
  while (!text.empty()) {
    const size_t length = Utf8Length(static_cast<unsigned char>(text[0]));
    if (length == 0 || length > text.size()) return false;
    uint32_t character = static_cast<unsigned char>(text[0]) & (0xFFu >> length);
    for (size_t i = 1; i < length; ++i) {
      const auto byte = static_cast<unsigned char>(text[i]);
      if ((byte & 0xC0) != 0x80) return false;
      character = character << 6 | (byte & 0x3F);
    }
    const bool overlong =
        (length == 3 && character < 0x800) || (length == 4 && character < 0x10000);
    const bool surrogate = character >= 0xD800 && character < 0xE000;
    if (overlong || surrogate || character > 0x10FFFF) return false;
    text.remove_prefix(length);
  }
  return true;
}

}  // namespace

absl::Status ConfigError(const YAML::Node& node, const std::string& what) {
  return MakeError(Reason::kInvalidArgument, absl::StrCat(node.Mark().line + 1, ": ", what));
}

absl::Status WrongValue(const YAML::Node& node, const std::string& name,
                        const std::string& allowed) {
  return ConfigError(node, absl::StrCat(name, " is ", Describe(node), "; allowed: ", allowed));
}

ConfigKey TextKey(std::string name, std::string* field, TextCheck check) {
  auto read = [=](const YAML::Node& node) {
    if (!node.IsScalar()) return WrongValue(node, name, "text");
    if (!IsUtf8(node.Scalar())) return ConfigError(node, absl::StrCat(name, " is not UTF-8"));
    if (check != nullptr) {
      if (const absl::Status status = check(node.Scalar()); !status.ok()) {
        return ConfigError(node, absl::StrCat(name, ": ", status.message()));
      }
    }
    *field = node.Scalar();
    return absl::OkStatus();
  };
  return {name, read, [field](YAML::Emitter& out) { out << YAML::DoubleQuoted << *field; }};
}

ConfigKey TextListKey(std::string name, std::vector<std::string>* field) {
  auto read = [=](const YAML::Node& node) {
    if (!node.IsScalar() && !node.IsSequence()) return WrongValue(node, name, "a list of texts");
    std::vector<std::string> texts;
    if (node.IsScalar()) texts.push_back(node.Scalar());
    for (const YAML::Node& element : node) {
      if (!element.IsScalar()) return WrongValue(element, name, "a list of texts");
      texts.push_back(element.Scalar());
    }
    *field = std::move(texts);
    return absl::OkStatus();
  };
  auto print = [field](YAML::Emitter& out) {
    out << YAML::BeginSeq;
    for (const std::string& text : *field) out << YAML::DoubleQuoted << text;
    out << YAML::EndSeq;
  };
  return {name, read, print};
}

ConfigKey FlagKey(std::string name, bool* field) {
  auto read = [=](const YAML::Node& node) {
    if (!node.IsScalar() || (node.Scalar() != "true" && node.Scalar() != "false")) {
      return WrongValue(node, name, "true or false");
    }
    *field = node.Scalar() == "true";
    return absl::OkStatus();
  };
  return {name, read, [field](YAML::Emitter& out) { out << *field; }};
}

ConfigKey DurationKey(std::string name, absl::Duration* field, absl::Duration low,
                      absl::Duration high) {
  auto read = [=](const YAML::Node& node) {
    absl::Duration value;
    if (!node.IsScalar() || !absl::ParseDuration(node.Scalar(), &value) || value < low ||
        value > high) {
      return WrongValue(node, name,
                        absl::StrCat("a duration with its unit, from ", absl::FormatDuration(low),
                                     " to ", absl::FormatDuration(high)));
    }
    *field = value;
    return absl::OkStatus();
  };
  return {name, read, [field](YAML::Emitter& out) { out << absl::FormatDuration(*field); }};
}

ConfigKey SectionKey(std::string name, std::vector<ConfigKey> keys) {
  auto read = [name, keys](const YAML::Node& node) {
    if (node.IsNull()) return absl::OkStatus();
    if (!node.IsMap()) return WrongValue(node, name, absl::StrCat("a mapping of ", NamesOf(keys)));
    return ReadMapping(node, keys);
  };
  return {name, read, [keys](YAML::Emitter& out) { PrintMapping(keys, out); }};
}

ConfigKey ShownIf(ConfigKey key, std::function<bool()> shown) {
  key.shown = std::move(shown);
  return key;
}

absl::Status ReadMapping(const YAML::Node& node, const std::vector<ConfigKey>& keys) {
  std::set<std::string> seen;
  for (const auto& entry : node) {
    const std::string name = entry.first.IsScalar() ? entry.first.Scalar() : "";
    const auto key =
        std::find_if(keys.begin(), keys.end(), [&](const ConfigKey& k) { return k.name == name; });
    if (key == keys.end()) {
      return ConfigError(entry.first, absl::StrCat("unknown key ", Describe(entry.first),
                                                   "; allowed: ", NamesOf(keys)));
    }
    if (!seen.insert(name).second) {
      return ConfigError(entry.first, absl::StrCat("key '", name, "' occurs twice"));
    }
    if (absl::Status status = key->read(entry.second); !status.ok()) return status;
  }
  return absl::OkStatus();
}

void PrintMapping(const std::vector<ConfigKey>& keys, YAML::Emitter& out) {
  out << YAML::BeginMap;
  for (const ConfigKey& key : keys) {
    if (key.shown != nullptr && !key.shown()) continue;
    out << YAML::Key << key.name << YAML::Value;
    key.print(out);
  }
  out << YAML::EndMap;
}

absl::Status ReadNumber(const YAML::Node& node, const std::string& name, uint64_t low,
                        uint64_t high, const NumberCheck& check, uint64_t* value) {
  if (!node.IsScalar() || !absl::SimpleAtoi(node.Scalar(), value) || *value < low ||
      *value > high) {
    return WrongValue(node, name, absl::StrCat("a whole number from ", low, " to ", high));
  }
  if (check == nullptr) return absl::OkStatus();
  const absl::Status status = check(*value);
  return status.ok() ? status : ConfigError(node, absl::StrCat(name, ": ", status.message()));
}

absl::Status ReadChoice(const YAML::Node& node, const std::string& name,
                        const std::vector<std::string>& words, size_t* index) {
  const auto word =
      node.IsScalar() ? std::find(words.begin(), words.end(), node.Scalar()) : words.end();
  if (word == words.end()) return WrongValue(node, name, absl::StrJoin(words, ", "));
  *index = static_cast<size_t>(word - words.begin());
  return absl::OkStatus();
}

}  // namespace pagoda::server
