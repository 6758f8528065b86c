// FormatNumber and PadText.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/text/encoding/utf8.h"
#include "engine/text/jinja/python/format.h"
#include "engine/text/jinja/python/python_text.h"
#include "engine/text/jinja/python/text_edit.h"
#include "engine/text/jinja/values/compare.h"

namespace pagoda::jinja {
namespace {

std::string Digits(Integer value, uint64_t base, bool upper) {
  auto rest = static_cast<uint64_t>(value < 0 ? -value : value);
  const char* const digits = upper ? "0123456789ABCDEF" : "0123456789abcdef";
  std::string out;
  do {
    out += digits[rest % base];
    rest /= base;
  } while (rest > 0);
  std::reverse(out.begin(), out.end());
  return out;
}

std::string Printed(const char* form, int precision, double value) {
  char buffer[1024];
  const int size = std::snprintf(buffer, sizeof(buffer), form, precision, value);
  return {buffer, static_cast<size_t>(std::clamp<int>(size, 0, sizeof(buffer) - 1))};
}

// The digits of a float that is not negative.
std::string FloatDigits(double value, const FormatSpec& spec) {
  const int precision = spec.precision < 0 ? 6 : spec.precision;
  if (!std::isfinite(value)) {
    std::string text = std::isnan(value) ? "nan" : "inf";
    return absl::ascii_isupper(spec.type) ? absl::AsciiStrToUpper(text) : text;
  }
  switch (spec.type) {
    case 'e':
      return Printed(spec.alternate ? "%#.*e" : "%.*e", precision, value);
    case 'E':
      return Printed(spec.alternate ? "%#.*E" : "%.*E", precision, value);
    case 'f':
    case 'F':
      return Printed(spec.alternate ? "%#.*f" : "%.*f", precision, value);
    case '%':
      return Printed("%.*f", precision, value * 100) + "%";
    case 'G':
      return Printed(spec.alternate ? "%#.*G" : "%.*G", precision, value);
    case 0: {
      if (spec.precision < 0) return FloatText(value);
      std::string text = Printed("%.*g", std::max(precision, 1), value);
      // Without a type, a float shows that it is one.
      if (text.find_first_of(".e") == std::string::npos) text += ".0";
      return text;
    }
    default:
      return Printed(spec.alternate ? "%#.*g" : "%.*g", precision, value);
  }
}

std::string Grouped(const std::string& digits, char mark, size_t size) {
  const size_t whole = std::min(digits.find_first_not_of("0123456789abcdefABCDEF"), digits.size());
  std::string out;
  for (size_t i = 0; i < whole; ++i) {
    if (i > 0 && (whole - i) % size == 0) out += mark;
    out += digits[i];
  }
  return out + digits.substr(whole);
}

}  // namespace

std::string PadText(Run& run, absl::string_view text, const FormatSpec& spec) {
  const int64_t missing = spec.width - static_cast<int64_t>(CountCharacters(text));
  if (missing <= 0) return std::string(text);
  const int64_t left = spec.align == '>' ? missing : spec.align == '^' ? missing / 2 : 0;
  return absl::StrCat(Copies(run, spec.fill, left), text, Copies(run, spec.fill, missing - left));
}

std::string FormatNumber(Run& run, const Value& value, const FormatSpec& spec) {
  std::string digits;
  std::string prefix;
  bool negative = false;
  const bool is_float = absl::StrContains("eEfFgG%", absl::string_view(&spec.type, 1)) ||
                        (spec.type == 0 && !value.IsWhole());
  if (spec.precision > kMaxPrecision) run.Fail("a format has too many digits");
  if (run.failed()) return "";
  size_t group = 3;
  if (is_float && spec.type != 0) {
    negative = std::signbit(value.number());
    digits = FloatDigits(std::abs(value.number()), spec);
  } else if (!value.IsWhole()) {
    if (spec.type != 0 && spec.type != 'n') {
      run.Fail(absl::StrCat("unknown format code '", std::string(1, spec.type), "' for a float"));
      return "";
    }
    negative = std::signbit(value.number());
    digits = FloatDigits(std::abs(value.number()), spec);
  } else {
    uint64_t base = 10;
    switch (spec.type) {
      case 0:
      case 'd':
      case 'n':
        break;
      case 'x':
      case 'X':
        base = 16;
        break;
      case 'o':
        base = 8;
        break;
      case 'b':
        base = 2;
        break;
      case 'c': {
        if (value.whole() < 0 || value.whole() > 0x10FFFF) run.Fail("%c needs a character");
        if (run.failed()) return "";
        std::string text;
        AppendUtf8(static_cast<char32_t>(static_cast<uint32_t>(value.whole())), text);
        return PadText(run, text, spec);
      }
      default:
        run.Fail(absl::StrCat("unknown format code '", std::string(1, spec.type), "' for an int"));
        return "";
    }
    if (spec.precision >= 0) {
      run.Fail("a precision is not allowed for integers");
      return "";
    }
    negative = value.whole() < 0;
    digits = Digits(value.whole(), base, spec.type == 'X');
    if (spec.alternate && base != 10) prefix = absl::StrCat("0", std::string(1, spec.type));
    if (base != 10) group = 4;
  }
  if (spec.group != 0) digits = Grouped(digits, spec.group, group);
  const std::string sign = negative ? "-" : spec.sign != 0 ? std::string(1, spec.sign) : "";
  const std::string head = sign + prefix;
  if (spec.align == '=') {
    const auto missing = spec.width - static_cast<int64_t>(head.size() + digits.size());
    return absl::StrCat(head, Copies(run, spec.fill, missing), digits);
  }
  FormatSpec pad = spec;
  if (pad.align == 0) pad.align = '>';
  return PadText(run, head + digits, pad);
}

}  // namespace pagoda::jinja
