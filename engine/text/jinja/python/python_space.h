// Whitespace as Python's str.strip and str.split know it.
#ifndef PAGODA_ENGINE_TEXT_JINJA_PYTHON_PYTHON_SPACE_H_
#define PAGODA_ENGINE_TEXT_JINJA_PYTHON_PYTHON_SPACE_H_

#include "absl/strings/string_view.h"

namespace pagoda::jinja {

bool IsPythonSpace(char32_t code_point);

// Without the whitespace at one end. `text` is UTF-8.
absl::string_view StripLeft(absl::string_view text);
absl::string_view StripRight(absl::string_view text);

// Without the characters of `set` at one end.
absl::string_view StripLeft(absl::string_view text, absl::string_view set);
absl::string_view StripRight(absl::string_view text, absl::string_view set);

}  // namespace pagoda::jinja

#endif  // PAGODA_ENGINE_TEXT_JINJA_PYTHON_PYTHON_SPACE_H_
