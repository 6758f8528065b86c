// The tokens of a template.
#ifndef PAGODA_ENGINE_TEXT_JINJA_PARSER_TOKEN_H_
#define PAGODA_ENGINE_TEXT_JINJA_PARSER_TOKEN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/text/jinja/values/value.h"

namespace pagoda::jinja {

struct Token {
  enum class Kind : uint8_t {
    kText,            // Outside of tags.
    kPrintBegin,      // {{
    kPrintEnd,        // }}
    kStatementBegin,  // {%
    kStatementEnd,    // %}
    kName,
    kString,
    kInteger,
    kFloat,
    kOperator,
    kEnd  // The end of the template.
  };

  Kind kind = Kind::kEnd;
  int line = 1;
  std::string text;  // The name, the operator, the string's value, the text.
  Value number;

  bool Is(absl::string_view op) const { return kind == Kind::kOperator && text == op; }
  bool IsName(absl::string_view name) const { return kind == Kind::kName && text == name; }
};

// Splits a template as Jinja does with trim_blocks and lstrip_blocks. The list ends with kEnd.
// Errors: INVALID_CHECKPOINT, with the line.
absl::StatusOr<std::vector<Token>> Tokenize(absl::string_view source);

// The value of a string literal's inside. Errors: INVALID_ARGUMENT.
absl::StatusOr<std::string> Unescape(absl::string_view inside);

// INVALID_CHECKPOINT: the template cannot be parsed.
absl::Status BadTemplate(int line, absl::string_view what);

}  // namespace pagoda::jinja

#endif  // PAGODA_ENGINE_TEXT_JINJA_PARSER_TOKEN_H_
