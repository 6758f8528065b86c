// Typed keys of a YAML file. A list of keys, each bound to the field that it fills, is the schema.
// It drives reading, printing and the error messages.
#ifndef PAGODA_SERVER_CONFIG_CONFIG_KEYS_H_
#define PAGODA_SERVER_CONFIG_CONFIG_KEYS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "yaml-cpp/yaml.h"

namespace pagoda::server {

// One key of a mapping. `read` fills the field from a node, or returns an error that lists the
// allowed values. `print` writes the field's value.
struct ConfigKey {
  std::string name;
  // An error's message lacks only the file's name: "LINE: key: what is wrong".
  std::function<absl::Status(const YAML::Node&)> read;
  std::function<void(YAML::Emitter&)> print;
  // Whether PrintMapping writes the key; null: always.
  std::function<bool()> shown = nullptr;
};

// A further check of a value: OK, or an error that says what is allowed.
using TextCheck = std::function<absl::Status(const std::string&)>;
using NumberCheck = std::function<absl::Status(uint64_t)>;

// The kinds of keys. The field outlives the key.
ConfigKey TextKey(std::string name, std::string* field, TextCheck check = nullptr);
// A list of texts, or a single one for a list of one.
ConfigKey TextListKey(std::string name, std::vector<std::string>* field);
// A number from `low` to `high`.
template <class Number>
ConfigKey NumberKey(std::string name, Number* field, uint64_t low, uint64_t high,
                    const NumberCheck& check = nullptr);
ConfigKey FlagKey(std::string name, bool* field);
// A duration such as "10s" or "500ms", from `low` to `high`.
ConfigKey DurationKey(std::string name, absl::Duration* field, absl::Duration low,
                      absl::Duration high);
// One of several words.
template <class Enum>
ConfigKey ChoiceKey(std::string name, Enum* field,
                    std::vector<std::pair<std::string, Enum>> choices);
// A mapping inside a mapping. An empty one (`name:` without a value) changes nothing.
ConfigKey SectionKey(std::string name, std::vector<ConfigKey> keys);
// A list of at least `min_elements` mappings, or a single mapping for a list of one. `keys` binds
// the keys of an element. Keys that are left out keep the values of Element{}.
template <class Element>
ConfigKey ListKey(std::string name, std::vector<Element>* field,
                  std::vector<ConfigKey> (*keys)(Element*), size_t min_elements = 1);

// The key, printed only if `shown` returns true. Used for two forms of the same setting, and for
// one that another setting replaces.
ConfigKey ShownIf(ConfigKey key, std::function<bool()> shown);

// Fills the fields from a mapping. Errors: INVALID_ARGUMENT as described at ConfigKey::read, also
// for a key that is not in `keys` or occurs twice.
absl::Status ReadMapping(const YAML::Node& node, const std::vector<ConfigKey>& keys);
void PrintMapping(const std::vector<ConfigKey>& keys, YAML::Emitter& out);

// INVALID_ARGUMENT with the line of `node`: "LINE: what".
absl::Status ConfigError(const YAML::Node& node, const std::string& what);
// The same: "LINE: NAME is VALUE; allowed: ALLOWED".
absl::Status WrongValue(const YAML::Node& node, const std::string& name,
                        const std::string& allowed);

// --- Implementation ---

// The number that a scalar node holds.
// Errors: INVALID_ARGUMENT unless it is a whole number from `low` to `high`.
absl::Status ReadNumber(const YAML::Node& node, const std::string& name, uint64_t low,
                        uint64_t high, const NumberCheck& check, uint64_t* value);
// The position of a scalar node's word in `words`. Errors: INVALID_ARGUMENT for another word.
absl::Status ReadChoice(const YAML::Node& node, const std::string& name,
                        const std::vector<std::string>& words, size_t* index);

template <class Number>
ConfigKey NumberKey(std::string name, Number* field, uint64_t low, uint64_t high,
                    const NumberCheck& check) {
  auto read = [=](const YAML::Node& node) {
    uint64_t value = 0;
    absl::Status status = ReadNumber(node, name, low, high, check, &value);
    if (status.ok()) *field = static_cast<Number>(value);
    return status;
  };
  return {name, read, [field](YAML::Emitter& out) { out << uint64_t{*field}; }};
}

template <class Enum>
ConfigKey ChoiceKey(std::string name, Enum* field,
                    std::vector<std::pair<std::string, Enum>> choices) {
  std::vector<std::string> words;
  for (const auto& [word, value] : choices) words.push_back(word);
  auto read = [=](const YAML::Node& node) {
    size_t index = 0;
    absl::Status status = ReadChoice(node, name, words, &index);
    if (status.ok()) *field = choices[index].second;
    return status;
  };
  auto print = [=](YAML::Emitter& out) {
    for (const auto& [word, value] : choices) {
      if (value == *field) out << word;
    }
  };
  return {name, read, print};
}

template <class Element>
ConfigKey ListKey(std::string name, std::vector<Element>* field,
                  std::vector<ConfigKey> (*keys)(Element*), size_t min_elements) {
  auto read = [=](const YAML::Node& node) {
    if (node.IsNull()) return absl::OkStatus();
    const bool one = node.IsMap();
    if (!one && !(node.IsSequence() && node.size() >= min_elements)) {
      return WrongValue(node, name, "a mapping, or a list of mappings");
    }
    std::vector<Element> elements(one ? 1 : node.size());
    for (size_t i = 0; i < elements.size(); ++i) {
      const YAML::Node& element = one ? node : node[i];
      if (!element.IsMap()) return WrongValue(element, name, "a mapping, or a list of mappings");
      absl::Status status = ReadMapping(element, keys(&elements[i]));
      if (!status.ok()) return status;
    }
    *field = std::move(elements);
    return absl::OkStatus();
  };
  auto print = [=](YAML::Emitter& out) {
    if (field->size() == 1) return PrintMapping(keys(&field->front()), out);
    out << YAML::BeginSeq;
    for (Element& element : *field) PrintMapping(keys(&element), out);
    out << YAML::EndSeq;
  };
  return {name, read, print};
}

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_CONFIG_CONFIG_KEYS_H_
