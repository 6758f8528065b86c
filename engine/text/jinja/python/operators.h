// Python's operators.
#ifndef PAGODA_ENGINE_TEXT_JINJA_PYTHON_OPERATORS_H_
#define PAGODA_ENGINE_TEXT_JINJA_PYTHON_OPERATORS_H_

#include <string>

#include "absl/strings/string_view.h"
#include "engine/text/jinja/values/run.h"
#include "engine/text/jinja/values/syntax.h"
#include "engine/text/jinja/values/value.h"

namespace pagoda::jinja {

// kAdd to kPower. Errors of the run: the types do not fit, division by zero, an integer beyond
// kMaxInteger.
Value Calculate(Run& run, Operator op, const Value& left, const Value& right);
Value Negate(Run& run, const Value& value);

// kEqual to kNotIn. Errors of the run: the types do not fit.
bool Compare(Run& run, Operator op, const Value& left, const Value& right);

// An integer result. Errors of the run: beyond kMaxInteger.
Value CheckedInteger(Run& run, Integer value);

// HTML's escapes for & < > ' ".
std::string EscapeHtml(absl::string_view text);
// The text of a value for a Markup: escaped unless it is one.
std::string MarkupText(Run& run, const Value& value);

}  // namespace pagoda::jinja

#endif  // PAGODA_ENGINE_TEXT_JINJA_PYTHON_OPERATORS_H_
