// JSON to values and back.
#ifndef PAGODA_ENGINE_TEXT_JINJA_PYTHON_JSON_TEXT_H_
#define PAGODA_ENGINE_TEXT_JINJA_PYTHON_JSON_TEXT_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "engine/text/jinja/values/run.h"
#include "engine/text/jinja/values/value.h"

namespace pagoda::jinja {

// Keeps the order of keys; of equal keys the last value counts. Integers beyond 64 bits become
// floats. Errors of `run`: `text` is not JSON (`what` names it), or nests too deeply.
Value FromJson(Run& run, absl::string_view text, absl::string_view what);

// The arguments of Python's json.dumps.
struct JsonStyle {
  bool ascii = false;
  bool sort_keys = false;
  std::optional<std::string> indent;  // One level of it.
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};

// Errors of `run`: a value that JSON does not have.
std::string ToJson(Run& run, const Value& value, const JsonStyle& style);

}  // namespace pagoda::jinja

#endif  // PAGODA_ENGINE_TEXT_JINJA_PYTHON_JSON_TEXT_H_
