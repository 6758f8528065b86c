// FormatPercent.
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/text/jinja/python/format.h"
#include "engine/text/jinja/python/operators.h"
#include "engine/text/jinja/python/python_text.h"
#include "engine/text/jinja/python/text_edit.h"
#include "engine/text/jinja/values/compare.h"

namespace pagoda::jinja {
namespace {

class PercentFormatter {
 public:
  PercentFormatter(Run& run, const Value& format, const Value& values)
      : run_(run), markup_(format.text().markup), rest_(format.bytes()), values_(values) {}

  Value Format() {
    std::string out;
    while (!rest_.empty() && run_.Work() && run_.Holds(out.size())) {
      const size_t at = rest_.find('%');
      absl::StrAppend(&out, rest_.substr(0, at));
      if (at == absl::string_view::npos) break;
      rest_.remove_prefix(at + 1);
      out += One();
    }
    const bool uses_all = values_.IsTuple() ? used_ == values_.list().items.size()
                                            : used_ > 0 || values_.IsDict() || values_.IsList();
    if (!uses_all) run_.Fail("%: not all arguments are used");
    return run_.NewText(std::move(out), markup_);
  }

 private:
  char Take() {
    if (rest_.empty()) {
      run_.Fail("%: incomplete format");
      return 0;
    }
    const char c = rest_[0];
    rest_.remove_prefix(1);
    return c;
  }

  Value NextValue() {
    if (values_.IsTuple()) {
      if (used_ < values_.list().items.size()) return values_.list().items[used_++];
    } else if (used_++ == 0) {
      return values_;
    }
    run_.Fail("%: not enough arguments");
    return {};
  }

  int64_t Number() {
    if (!rest_.empty() && rest_[0] == '*') {
      Take();
      const Value value = NextValue();
      if (!value.IsWhole()) run_.Fail("%: * needs an integer");
      return run_.failed() ? 0 : static_cast<int64_t>(value.whole());
    }
    int64_t number = 0;
    while (!rest_.empty() && absl::ascii_isdigit(rest_[0]) && number <= kMaxWidth) {
      number = number * 10 + (Take() - '0');
    }
    return number;
  }

  Value KeyedValue() {
    const size_t end = rest_.find(')');
    if (!values_.IsDict() || end == absl::string_view::npos) {
      run_.Fail("%: a format with a name needs a dict");
      return {};
    }
    const Value* found = values_.dict().Find(rest_.substr(0, end));
    if (found == nullptr) run_.Fail(absl::StrCat("%: no key '", rest_.substr(0, end), "'"));
    rest_.remove_prefix(end + 1);
    return found == nullptr ? Value() : *found;
  }

  // One format, behind its '%'.
  std::string One() {
    if (absl::StartsWith(rest_, "%")) {
      Take();
      return "%";
    }
    const bool has_key = absl::StartsWith(rest_, "(");
    if (has_key) Take();
    const Value keyed = has_key ? KeyedValue() : Value();
    FormatSpec spec;
    bool left = false;
    bool zero = false;
    for (; !rest_.empty() && absl::StrContains("-+ #0", rest_.substr(0, 1)); Take()) {
      left |= rest_[0] == '-';
      zero |= rest_[0] == '0';
      spec.alternate |= rest_[0] == '#';
      if (rest_[0] == '+' || (rest_[0] == ' ' && spec.sign == 0)) spec.sign = rest_[0];
    }
    spec.width = Number();
    if (spec.width < 0) {
      left = true;
      spec.width = -spec.width;
    }
    if (absl::StartsWith(rest_, ".")) {
      Take();
      spec.precision = static_cast<int>(Number());
    }
    while (!rest_.empty() && absl::StrContains("hlL", rest_.substr(0, 1))) Take();
    spec.type = Take();
    if (spec.width > kMaxWidth || spec.precision > kMaxWidth)
      run_.Fail("%: the width is too large");
    const Value value = has_key ? keyed : NextValue();
    if (run_.failed()) return "";
    spec.align = left ? '<' : '>';
    return Write(value, spec, zero && !left);
  }

  std::string Write(const Value& value, FormatSpec spec, bool zero) {
    switch (spec.type) {
      case 's':
      case 'r':
      case 'a': {
        std::string text = spec.type == 's' ? ToText(run_, value) : ToRepr(run_, value);
        if (markup_ && !(value.IsText() && value.text().markup)) text = EscapeHtml(text);
        if (spec.precision >= 0) {
          text = std::string(Characters(text, 0, static_cast<size_t>(spec.precision)));
        }
        return PadText(run_, text, spec);
      }
      case 'c':
        if (value.IsText() && value.text().length == 1) return PadText(run_, value.bytes(), spec);
        break;
      case 'd':
      case 'i':
      case 'u':
        spec.type = 'd';
        if (value.Is(Value::Kind::kFloat)) return Whole(Truncated(value.real()), spec, zero);
        return Whole(value, spec, zero);
      case 'x':
      case 'X':
      case 'o':
        return Whole(value, spec, zero);
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
        break;
      default:
        run_.Fail(absl::StrCat("%: unsupported format '", std::string(1, spec.type), "'"));
        return "";
    }
    if (!value.IsNumber()) {
      run_.Fail(absl::StrCat("%: a number is required, not ", TypeName(value)));
      return "";
    }
    if (zero) {
      spec.fill = "0";
      spec.align = '=';
    }
    return FormatNumber(run_, value, spec);
  }

  Value Truncated(double value) {
    if (!(value > -1.8e19 && value < 1.8e19)) {
      run_.Fail("%: the number is too large for %d");
      return {};
    }
    return Value::OfInteger(Integer(value));
  }

  // An integer; the precision is the least number of digits.
  std::string Whole(const Value& value, FormatSpec spec, bool zero) {
    if (!value.IsWhole()) {
      run_.Fail(absl::StrCat("%: an integer is required, not ", TypeName(value)));
      return "";
    }
    FormatSpec inner = spec;
    inner.width = 0;
    inner.precision = -1;
    if (spec.precision >= 0 || zero) {
      inner.align = '=';
      inner.fill = "0";
      const bool signs = value.whole() < 0 || spec.sign != 0;
      inner.width = spec.precision >= 0 ? spec.precision + (signs ? 1 : 0) : spec.width;
    }
    return PadText(run_, FormatNumber(run_, value, inner), spec);
  }

  Run& run_;
  const bool markup_;
  absl::string_view rest_;
  const Value& values_;
  size_t used_ = 0;
};

}  // namespace

Value FormatPercent(Run& run, const Value& format, const Value& values) {
  return PercentFormatter(run, format, values).Format();
}

}  // namespace pagoda::jinja
