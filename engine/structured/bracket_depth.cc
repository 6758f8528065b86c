#include "engine/structured/bracket_depth.h"

#include <algorithm>

namespace pagoda {

size_t BracketDepth(StructuredOutput::Kind kind, absl::string_view text) {
  const bool has_strings = kind != StructuredOutput::Kind::kRegex;
  const bool has_classes = kind != StructuredOutput::Kind::kJsonSchema;
  const bool has_comments = kind == StructuredOutput::Kind::kGrammar;
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

}  // namespace pagoda
