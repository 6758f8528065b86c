// Python's two ways to format: "%s" % value, and "{}".format(value).
#ifndef PAGODA_ENGINE_TEXT_JINJA_PYTHON_FORMAT_H_
#define PAGODA_ENGINE_TEXT_JINJA_PYTHON_FORMAT_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "engine/text/jinja/values/arguments.h"
#include "engine/text/jinja/values/run.h"
#include "engine/text/jinja/values/value.h"

namespace pagoda::jinja {

// `values` is a tuple, a dict or one value. Errors of the run: values that do not fit.
Value FormatPercent(Run& run, const Value& format, const Value& values);
Value FormatBraces(Run& run, const Value& format, const Arguments& values);

// How a value is written.
struct FormatSpec {
  std::string fill = " ";
  char align = 0;  // < > ^ or =; 0: what is usual for the type.
  char sign = 0;   // + or a space for positive numbers; 0: none.
  bool alternate = false;
  int64_t width = 0;
  char group = 0;  // , or _
  int precision = -1;
  char type = 0;
};

// The most of a width or a precision.
inline constexpr int64_t kMaxWidth = 100'000;
inline constexpr int kMaxPrecision = 300;

// Pads a text of one line.
std::string PadText(Run& run, absl::string_view text, const FormatSpec& spec);
// An integer, or a float with the types e f g % and 0. Errors of the run: another type.
std::string FormatNumber(Run& run, const Value& value, const FormatSpec& spec);

}  // namespace pagoda::jinja

#endif  // PAGODA_ENGINE_TEXT_JINJA_PYTHON_FORMAT_H_
