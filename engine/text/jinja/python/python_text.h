// Values as Python writes them: str() and repr().
#ifndef PAGODA_ENGINE_TEXT_JINJA_PYTHON_PYTHON_TEXT_H_
#define PAGODA_ENGINE_TEXT_JINJA_PYTHON_PYTHON_TEXT_H_

#include <string>

#include "absl/strings/string_view.h"
#include "engine/text/jinja/values/run.h"
#include "engine/text/jinja/values/value.h"

namespace pagoda::jinja {

// str(value). After an error of `run` (the text would be too long) the result has no meaning.
std::string ToText(Run& run, const Value& value);
// repr(value).
std::string ToRepr(Run& run, const Value& value);

std::string IntegerText(Integer value);
// "1.0", "1e+16", "inf".
std::string FloatText(double value);
// Whether Python's repr writes the character as it is.
bool IsPrintable(char32_t code_point);

}  // namespace pagoda::jinja

#endif  // PAGODA_ENGINE_TEXT_JINJA_PYTHON_PYTHON_TEXT_H_
