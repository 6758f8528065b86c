#include "engine/structured/check_grammar_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/error.h"
#include "engine/structured/bracket_depth.h"
#include "engine/structured/grammar_rules.h"

namespace pagoda {
namespace {

using Kind = StructuredOutput::Kind;

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

absl::Status CheckExpression(const std::string& expression, size_t max_depth) {
  const size_t depth = BracketDepth(Kind::kRegex, expression);
  if (depth <= max_depth) return absl::OkStatus();
  return InvalidArgument(
      absl::StrCat("a pattern of the schema nests ", depth, " brackets; it may nest ", max_depth));
}

absl::Status CheckSchema(const nlohmann::json& schema, size_t max_depth) {
  if (schema.is_array()) {
    for (const nlohmann::json& element : schema) {
      if (absl::Status status = CheckSchema(element, max_depth); !status.ok()) return status;
    }
  }
  if (!schema.is_object()) return absl::OkStatus();
  for (const auto& [name, value] : schema.items()) {
    if (IsOneOf(kIgnored, name) && value != false) {
      return InvalidArgument(absl::StrCat("the schema's keyword '", name, "' is not supported"));
    }
    if (IsOneOf(kValues, name)) continue;
    if (name == "pattern" && value.is_string()) {
      if (absl::Status status = CheckExpression(value.get<std::string>(), max_depth);
          !status.ok()) {
        return status;
      }
    }
    if (!IsOneOf(kMaps, name) || !value.is_object()) {
      if (absl::Status status = CheckSchema(value, max_depth); !status.ok()) return status;
      continue;
    }
    for (const auto& [property, sub_schema] : value.items()) {
      if (name == "patternProperties") {
        if (absl::Status status = CheckExpression(property, max_depth); !status.ok()) return status;
      }
      if (absl::Status status = CheckSchema(sub_schema, max_depth); !status.ok()) return status;
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckGrammarText(const StructuredOutput& wanted, const GrammarTextLimits& limits) {
  if (wanted.text.find('\0') != std::string::npos) {
    return InvalidArgument("the grammar contains a zero byte");
  }
  if (const size_t depth = BracketDepth(wanted.kind, wanted.text); depth > limits.depth) {
    return InvalidArgument(
        absl::StrCat("the grammar nests ", depth, " brackets; it may nest ", limits.depth));
  }
  if (wanted.kind == Kind::kGrammar) return CheckGrammarRules(wanted.text, limits);
  if (wanted.kind != Kind::kJsonSchema) return absl::OkStatus();
  const auto schema = nlohmann::json::parse(wanted.text, nullptr, /*allow_exceptions=*/false);
  if (schema.is_discarded()) return InvalidArgument("the schema is not JSON");
  if (!schema.is_object() && !schema.is_boolean()) {
    return InvalidArgument("the schema is neither an object nor a boolean");
  }
  return CheckSchema(schema, limits.depth);
}

}  // namespace pagoda
