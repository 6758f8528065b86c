// FormatBraces.
#include <algorithm>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/text/encoding/utf8.h"
#include "engine/text/jinja/python/attributes.h"
#include "engine/text/jinja/python/format.h"
#include "engine/text/jinja/python/operators.h"
#include "engine/text/jinja/python/python_text.h"
#include "engine/text/jinja/python/text_edit.h"
#include "engine/text/jinja/values/compare.h"

namespace pagoda::jinja {
namespace {

class BraceFormatter {
 public:
  BraceFormatter(Run& run, const Value& format, const Arguments& values)
      : run_(run), markup_(format.text().markup), values_(values) {}

  std::string Format(absl::string_view format, int level) {
    std::string out;
    if (level > 1) run_.Fail("format(): fields nest too deeply");
    while (!format.empty() && run_.Work() && run_.Holds(out.size())) {
      const size_t at = format.find_first_of("{}");
      absl::StrAppend(&out, format.substr(0, at));
      if (at == absl::string_view::npos) break;
      const char brace = format[at];
      format.remove_prefix(at + 1);
      if (absl::StartsWith(format, std::string(1, brace))) {
        out += brace;
        format.remove_prefix(1);
        continue;
      }
      if (brace == '}') {
        run_.Fail("format(): a single '}'");
        break;
      }
      const size_t end = FieldEnd(format);
      if (end == absl::string_view::npos) {
        run_.Fail("format(): a '{' without '}'");
        break;
      }
      out += Field(format.substr(0, end), level);
      format.remove_prefix(end + 1);
    }
    return out;
  }

 private:
  // The place of the brace that ends a field.
  static size_t FieldEnd(absl::string_view format) {
    int open = 0;
    for (size_t i = 0; i < format.size(); ++i) {
      if (format[i] == '{') ++open;
      if (format[i] == '}' && open-- == 0) return i;
    }
    return absl::string_view::npos;
  }

  // name[!conversion][:spec]
  std::string Field(absl::string_view field, int level) {
    size_t at = 0;
    for (bool in_brackets = false; at < field.size(); ++at) {
      if (field[at] == '[') in_brackets = true;
      if (field[at] == ']') in_brackets = false;
      if (!in_brackets && (field[at] == '!' || field[at] == ':')) break;
    }
    Value value = Find(field.substr(0, at));
    absl::string_view rest = field.substr(at);
    if (absl::StartsWith(rest, "!")) {
      const absl::string_view conversion = rest.substr(1, 1);
      rest.remove_prefix(std::min<size_t>(rest.size(), 2));
      if (conversion == "r" || conversion == "a") {
        value = run_.NewText(ToRepr(run_, value));
      } else if (conversion == "s") {
        value = run_.NewText(ToText(run_, value));
      } else {
        run_.Fail("format(): an unknown conversion");
      }
    }
    std::string spec;
    if (absl::StartsWith(rest, ":")) {
      spec = Format(rest.substr(1), level + 1);
    } else if (!rest.empty()) {
      run_.Fail("format(): expected ':' behind the conversion");
    }
    return run_.failed() ? "" : Write(value, spec);
  }

  // first.name[key]...
  Value Find(absl::string_view path) {
    const size_t end = std::min(path.find_first_of(".["), path.size());
    Value value = First(path.substr(0, end));
    path.remove_prefix(end);
    while (!path.empty() && !run_.failed()) {
      if (path[0] == '[') {
        const size_t close = path.find(']');
        const absl::string_view key =
            path.substr(1, close == absl::string_view::npos ? 0 : close - 1);
        if (key.empty()) run_.Fail("format(): an empty key");
        int64_t number = 0;
        const bool is_number = std::all_of(key.begin(), key.end(), absl::ascii_isdigit) &&
                               absl::SimpleAtoi(key, &number);
        value = GetItem(run_, value,
                        is_number ? Value::OfInteger(number) : run_.NewText(std::string(key)));
        path.remove_prefix(close == absl::string_view::npos ? path.size() : close + 1);
      } else {
        path.remove_prefix(1);
        const size_t size = std::min(path.find_first_of(".["), path.size());
        // Not an item: Python's format reads attributes only.
        const bool is_item = value.IsDict() && !HasMethod(value, path.substr(0, size));
        value = is_item ? run_.NewUndefined("'dict object' has no such attribute")
                        : GetAttribute(run_, value, path.substr(0, size));
        path.remove_prefix(size);
      }
      if (value.IsUndefined()) run_.Fail(absl::StrCat("format(): ", value.reason()));
    }
    return value;
  }

  Value First(absl::string_view name) {
    size_t number = 0;
    if (name.empty()) {
      number = next_++;
    } else if (!absl::ascii_isdigit(name[0]) || !absl::SimpleAtoi(name, &number)) {
      for (const auto& [key, value] : values_.named) {
        if (key == name) return value;
      }
      run_.Fail(absl::StrCat("format(): no argument '", name, "'"));
      return {};
    }
    if (number < values_.positional.size()) return values_.positional[number];
    run_.Fail(absl::StrCat("format(): no argument ", number));
    return {};
  }

  std::optional<FormatSpec> Read(absl::string_view text) {
    FormatSpec spec;
    const auto take = [&](absl::string_view set) {
      if (text.empty() || !absl::StrContains(set, text.substr(0, 1))) return char{0};
      const char c = text[0];
      text.remove_prefix(1);
      return c;
    };
    const size_t first = text.empty() ? 0 : ReadUtf8(text).size;
    if (first < text.size() && absl::StrContains("<>=^", text.substr(first, 1))) {
      spec.fill = std::string(text.substr(0, first));
      text.remove_prefix(first);
    }
    spec.align = take("<>=^");
    spec.sign = take("+- ");
    if (spec.sign == '-') spec.sign = 0;
    take("z");
    spec.alternate = take("#") != 0;
    if (take("0") != 0 && spec.align == 0) {
      spec.fill = "0";
      spec.align = '=';
    }
    while (!text.empty() && absl::ascii_isdigit(text[0]) && spec.width <= kMaxWidth) {
      spec.width = spec.width * 10 + (take("0123456789") - '0');
    }
    spec.group = take(",_");
    if (take(".") != 0) {
      spec.precision = 0;
      while (!text.empty() && absl::ascii_isdigit(text[0]) && spec.precision <= kMaxWidth) {
        spec.precision = spec.precision * 10 + (take("0123456789") - '0');
      }
    }
    if (!text.empty()) {
      spec.type = text[0];
      text.remove_prefix(1);
    }
    if (!text.empty() || spec.width > kMaxWidth) return std::nullopt;
    return spec;
  }

  std::string Write(const Value& value, const std::string& text) {
    std::string written;
    if (text.empty()) {
      written = ToText(run_, value);
    } else {
      const std::optional<FormatSpec> spec = Read(text);
      // A boolean with a format is an integer.
      const bool is_text = value.IsText();
      if (!spec.has_value() || (!is_text && !value.IsNumber()) ||
          (is_text && ((spec->type != 's' && spec->type != 0) || spec->align == '=' ||
                       spec->sign != 0 || spec->group != 0 || spec->alternate))) {
        run_.Fail(absl::StrCat("format(): bad format '", text, "' for a ", TypeName(value)));
        return "";
      }
      if (is_text) {
        const std::string all = ToText(run_, value);
        const absl::string_view part =
            spec->precision < 0 ? absl::string_view(all)
                                : Characters(all, 0, static_cast<size_t>(spec->precision));
        written = PadText(run_, part, *spec);
      } else {
        written = FormatNumber(run_, value, *spec);
      }
    }
    const bool safe = !markup_ || (value.IsText() && value.text().markup);
    return safe ? written : EscapeHtml(written);
  }

  Run& run_;
  const bool markup_;
  const Arguments& values_;
  size_t next_ = 0;
};

}  // namespace

Value FormatBraces(Run& run, const Value& format, const Arguments& values) {
  BraceFormatter formatter(run, format, values);
  std::string out = formatter.Format(format.bytes(), 0);
  return run.NewText(std::move(out), format.text().markup);
}

}  // namespace pagoda::jinja
