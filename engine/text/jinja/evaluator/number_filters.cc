// Filters of numbers, and `default`.
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "engine/text/jinja/evaluator/filters.h"
#include "engine/text/jinja/python/operators.h"
#include "engine/text/jinja/python/python_space.h"
#include "engine/text/jinja/values/compare.h"

namespace pagoda::jinja {
namespace {

// False, with an error, for an undefined value.
bool RequireDefined(Run& run, const Value& value) {
  if (value.IsUndefined()) run.Fail(value.reason());
  return !value.IsUndefined();
}

// Python's int(text, base); nothing if it raises an error.
std::optional<Integer> ParseInteger(absl::string_view text, int64_t base) {
  text = StripLeft(StripRight(text));
  const bool negative = absl::StartsWith(text, "-");
  if (negative || absl::StartsWith(text, "+")) text.remove_prefix(1);
  struct Prefix {
    absl::string_view text;
    int64_t base;
  };
  int64_t found = base == 0 ? 10 : base;
  for (const Prefix prefix : {Prefix{"0x", 16}, Prefix{"0o", 8}, Prefix{"0b", 2}}) {
    if ((base == 0 || base == prefix.base) && absl::StartsWithIgnoreCase(text, prefix.text)) {
      text.remove_prefix(2);
      absl::ConsumePrefix(&text, "_");
      found = prefix.base;
    }
  }
  if (found < 2 || found > 36 || absl::StartsWith(text, "_") || absl::EndsWith(text, "_") ||
      absl::StrContains(text, "__")) {
    return std::nullopt;
  }
  const std::string digits = absl::StrReplaceAll(text, {{"_", ""}});
  uint64_t value = 0;
  const char* const end = digits.data() + digits.size();
  const auto read = std::from_chars(digits.data(), end, value, static_cast<int>(found));
  if (digits.empty() || read.ec != std::errc() || read.ptr != end) return std::nullopt;
  return negative ? -Integer(value) : Integer(value);
}

// Python's float(text).
std::optional<double> ParseFloat(absl::string_view text) {
  text = StripLeft(StripRight(text));
  double value = 0;
  // SimpleAtod also takes hexadecimal and "nan(...)".
  if (absl::StrContains(text, "(") || absl::StrContains(text, "x") ||
      absl::StrContains(text, "X") ||
      !absl::SimpleAtod(absl::StrReplaceAll(text, {{"_", ""}}), &value)) {
    return std::nullopt;
  }
  return value;
}

// Python's int(float); nothing for infinity, NaN and numbers beyond kMaxInteger.
std::optional<Integer> Whole(double value) {
  if (!(std::abs(value) < 18446744073709551616.0)) return std::nullopt;
  return Integer(std::trunc(value));
}

std::optional<Integer> ToInteger(const Value& value, int64_t base) {
  if (value.IsWhole()) return value.whole();
  if (value.IsNumber()) return Whole(value.number());
  if (!value.IsText()) return std::nullopt;
  if (const std::optional<Integer> whole = ParseInteger(value.bytes(), base)) return whole;
  const std::optional<double> real = ParseFloat(value.bytes());
  return real.has_value() ? Whole(*real) : std::nullopt;
}

Value Int(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  Run& run = evaluator.run();
  const Parameters in(run, "int", arguments, {"default", "base"});
  const int64_t base = in.Integer(1, 10);
  if (!RequireDefined(run, value)) return {};
  const std::optional<Integer> whole = ToInteger(value, base);
  if (whole.has_value()) return CheckedInteger(run, *whole);
  return in.Has(0) ? in[0] : Value::OfInteger(0);
}

Value Float(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  Run& run = evaluator.run();
  const Parameters in(run, "float", arguments, {"default"});
  if (!RequireDefined(run, value)) return {};
  if (value.IsNumber()) return Value::Of(value.number());
  const std::optional<double> real =
      value.IsText() ? ParseFloat(value.bytes()) : std::optional<double>();
  if (real.has_value()) return Value::Of(*real);
  return in.Has(0) ? in[0] : Value::Of(0.0);
}

Value Abs(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  Run& run = evaluator.run();
  const Parameters in(run, "abs", arguments, {});
  if (value.IsWhole()) return Value::OfInteger(value.whole() < 0 ? -value.whole() : value.whole());
  if (value.IsNumber()) return Value::Of(std::abs(value.number()));
  if (RequireDefined(run, value))
    run.Fail(absl::StrCat("bad operand of abs: '", TypeName(value), "'"));
  return {};
}

// Python's round(value, digits): halves go to the even neighbour.
double RoundCommon(double value, int digits) {
  if (digits < 0) {
    const double unit = std::pow(10.0, -digits);
    return std::nearbyint(value / unit) * unit;
  }
  // The decimal text of a double is exact, and printf rounds it correctly.
  return std::strtod(absl::StrFormat("%.*f", digits, value).c_str(), nullptr);
}

Value Round(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  Run& run = evaluator.run();
  const Parameters in(run, "round", arguments, {"precision", "method"});
  const int64_t digits = in.Integer(0, 0);
  const std::string method = in.Text(1, "common");
  if (method != "common" && method != "ceil" && method != "floor") {
    run.Fail("round: the method must be common, ceil or floor");
  }
  if (!RequireDefined(run, value)) return {};
  if (!value.IsNumber()) run.Fail(absl::StrCat("round: '", TypeName(value), "' is not a number"));
  if (digits < -300 || digits > 300) run.Fail("round: the precision is too large");
  if (run.failed()) return {};
  if (method == "common" && value.IsWhole() && digits >= 0) {
    return Value::OfInteger(value.whole());
  }
  const double number = value.number();
  const double unit = std::pow(10.0, static_cast<double>(digits));
  const double result = method == "ceil"    ? std::ceil(number * unit) / unit
                        : method == "floor" ? std::floor(number * unit) / unit
                                            : RoundCommon(number, static_cast<int>(digits));
  const std::optional<Integer> whole = Whole(result);
  if (method == "common" && value.IsWhole() && whole.has_value()) {
    return CheckedInteger(run, *whole);
  }
  return Value::Of(result);
}

Value Default(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  Run& run = evaluator.run();
  const Parameters in(run, "default", arguments, {"default_value", "boolean"});
  const bool replaces = value.IsUndefined() || (in.Bool(1, false) && !IsTrue(value));
  if (!replaces) return value;
  return in.Has(0) ? in[0] : run.NewText("");
}

}  // namespace

FilterTable NumberFilters() {
  static constexpr std::pair<absl::string_view, FilterCall> kFilters[] = {
      {"abs", Abs},     {"d", Default}, {"default", Default},
      {"float", Float}, {"int", Int},   {"round", Round}};
  return kFilters;
}

}  // namespace pagoda::jinja
