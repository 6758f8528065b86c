#include "engine/structured/check_grammar_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/error.h"

namespace pagoda {
namespace {

using Kind = StructuredOutput::Kind;

// The most brackets that are open at once. Those in strings, in classes of characters, in comments
// and behind a backslash are text.
size_t DepthOf(Kind kind, absl::string_view text) {
  const bool has_strings = kind != Kind::kRegex;
  const bool has_classes = kind != Kind::kJsonSchema;
  const bool has_comments = kind == Kind::kGrammar;
  size_t depth = 0;
  size_t deepest = 0;
  char closes = 0;  // What ends the part that is text; 0 outside of one.
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (closes != 0) {
      if (c == '\\' && closes != '\n') ++i;
      if (c == closes) closes = 0;
    } else if (c == '\\') {
      ++i;
    } else if (has_strings && c == '"') {
      closes = '"';
    } else if (has_classes && c == '[') {
      closes = ']';
    } else if (has_comments && c == '#') {
      closes = '\n';
    } else if (c == '(' || c == '[' || c == '{') {
      deepest = std::max(deepest, ++depth);
    } else if (c == ')' || c == ']' || c == '}') {
      depth -= depth > 0 ? 1 : 0;
    }
  }
  return deepest;
}

constexpr absl::string_view kIgnored[] = {"not",
                                          "if",
                                          "then",
                                          "else",
                                          "dependentRequired",
                                          "dependentSchemas",
                                          "uniqueItems",
                                          "contains",
                                          "minContains",
                                          "maxContains",
                                          "$dynamicRef"};
// Keywords whose values are no schemas, or maps of names to schemas.
constexpr absl::string_view kValues[] = {"const", "default", "enum", "example", "examples"};
constexpr absl::string_view kMaps[] = {"$defs", "definitions", "patternProperties", "properties"};

template <size_t N>
bool IsOneOf(const absl::string_view (&list)[N], absl::string_view name) {
  return std::find(std::begin(list), std::end(list), name) != std::end(list);
}

absl::Status CheckSchema(const nlohmann::json& schema) {
  if (schema.is_array()) {
    for (const nlohmann::json& element : schema) {
      if (absl::Status status = CheckSchema(element); !status.ok()) return status;
    }
  }
  if (!schema.is_object()) return absl::OkStatus();
  for (const auto& [name, value] : schema.items()) {
    if (IsOneOf(kIgnored, name) && value != false) {
      return InvalidArgument(absl::StrCat("the schema's keyword '", name, "' is not supported"));
    }
    if (IsOneOf(kValues, name)) continue;
    if (!IsOneOf(kMaps, name) || !value.is_object()) {
      if (absl::Status status = CheckSchema(value); !status.ok()) return status;
      continue;
    }
    for (const auto& [property, sub_schema] : value.items()) {
      if (absl::Status status = CheckSchema(sub_schema); !status.ok()) return status;
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckGrammarText(const StructuredOutput& wanted, size_t max_depth) {
  if (wanted.text.find('\0') != std::string::npos) {
    return InvalidArgument("the grammar contains a zero byte");
  }
  if (const size_t depth = DepthOf(wanted.kind, wanted.text); depth > max_depth) {
    return InvalidArgument(
        absl::StrCat("the grammar nests ", depth, " brackets; it may nest ", max_depth));
  }
  if (wanted.kind != Kind::kJsonSchema) return absl::OkStatus();
  const auto schema = nlohmann::json::parse(wanted.text, nullptr, /*allow_exceptions=*/false);
  if (schema.is_discarded()) return InvalidArgument("the schema is not JSON");
  if (!schema.is_object() && !schema.is_boolean()) {
    return InvalidArgument("the schema is neither an object nor a boolean");
  }
  return CheckSchema(schema);
}

}  // namespace pagoda
