// Filters that make texts.
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/text/encoding/utf8.h"
#include "engine/text/jinja/evaluator/filters.h"
#include "engine/text/jinja/python/format.h"
#include "engine/text/jinja/python/json_text.h"
#include "engine/text/jinja/python/methods.h"
#include "engine/text/jinja/python/operators.h"
#include "engine/text/jinja/python/python_text.h"
#include "engine/text/jinja/python/text_edit.h"
#include "engine/text/jinja/values/compare.h"
#include "engine/text/jinja/values/iterate.h"

namespace pagoda::jinja {
namespace {

// A text stays as it is; another value becomes its text.
Value Soft(Run& run, const Value& value) {
  return value.IsText() ? value : run.NewText(ToText(run, value));
}

// A filter that is a method of texts.
template <const char* kName>
Value ByMethod(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  const Value text = Soft(evaluator.run(), value);
  if (evaluator.run().failed()) return {};
  return FindMethod(text, kName)(evaluator.run(), text, arguments);
}

constexpr char kUpper[] = "upper";
constexpr char kLower[] = "lower";
constexpr char kCapitalize[] = "capitalize";

Value Trim(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  Run& run = evaluator.run();
  const Parameters in(run, "trim", arguments, {"chars"});
  const Value text = Soft(run, value);
  if (run.failed()) return {};
  return FindMethod(text, "strip")(run, text, {.positional = {in.Has(0) ? in[0] : Value::None()}});
}

Value Center(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  Run& run = evaluator.run();
  const Parameters in(run, "center", arguments, {"width"});
  const Value text = Soft(run, value);
  if (run.failed()) return {};
  return FindMethod(text, "center")(run, text,
                                    {.positional = {in.Has(0) ? in[0] : Value::OfInteger(80)}});
}

Value Replace(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  Run& run = evaluator.run();
  const Parameters in(run, "replace", arguments, {"old", "new", "count"}, 2);
  const int64_t most = in.Has(2) && in[2].IsNone() ? -1 : in.Integer(2, -1);
  if (run.failed()) return {};
  return run.NewText(
      ReplaceIn(run, ToText(run, value), ToText(run, in[0]), ToText(run, in[1]), most));
}

bool IsTitleSpace(char c) { return absl::StrContains("- \t\n\r\f\v({[<", std::string(1, c)); }

// Words begin behind spaces, hyphens and brackets; str.title has other rules.
Value Title(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  Run& run = evaluator.run();
  const Parameters in(run, "title", arguments, {});
  const Value text = Soft(run, value);
  if (run.failed() || !run.WorkOnBytes(4 * text.bytes().size())) return {};
  std::string out;
  absl::string_view rest = text.bytes();
  while (!rest.empty()) {
    size_t size = 0;
    while (size < rest.size() && !IsTitleSpace(rest[size])) ++size;
    if (size == 0) {
      out += rest[0];
      rest.remove_prefix(1);
      continue;
    }
    const size_t first = ReadUtf8(rest).size;
    absl::StrAppend(&out, UpperCase(rest.substr(0, first)),
                    LowerCase(rest.substr(first, size - first)));
    rest.remove_prefix(size);
  }
  return run.NewText(std::move(out), text.text().markup);
}

Value String(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  const Parameters in(evaluator.run(), "string", arguments, {});
  return Soft(evaluator.run(), value);
}

Value Safe(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  Run& run = evaluator.run();
  const Parameters in(run, "safe", arguments, {});
  return run.NewText(ToText(run, value), /*markup=*/true);
}

Value Escape(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  Run& run = evaluator.run();
  const Parameters in(run, "escape", arguments, {});
  return run.NewText(MarkupText(run, value), /*markup=*/true);
}

Value ForceEscape(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  Run& run = evaluator.run();
  const Parameters in(run, "forceescape", arguments, {});
  return run.NewText(EscapeHtml(ToText(run, value)), /*markup=*/true);
}

Value Format(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  Run& run = evaluator.run();
  if (!arguments.positional.empty() && !arguments.named.empty()) {
    run.Fail("format: either positional or named arguments");
    return {};
  }
  const Value text = Soft(run, value);
  if (run.failed()) return {};
  if (arguments.named.empty()) {
    const Value values = run.NewList(arguments.positional, List::Form::kTuple);
    return run.failed() ? Value() : FormatPercent(run, text, values);
  }
  auto dict = std::make_shared<Dict>();
  for (const auto& [name, argument] : arguments.named) {
    dict->Set(run, run.NewText(name), argument);
  }
  const Value values = run.NewDict(std::move(dict));
  return run.failed() ? Value() : FormatPercent(run, text, values);
}

Value Indent(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  Run& run = evaluator.run();
  const Parameters in(run, "indent", arguments, {"width", "first", "blank"});
  if (!value.IsText()) {
    run.Fail(value.IsUndefined() ? value.reason() : "indent: the value is not a string");
    return {};
  }
  const std::string indention = in[0].IsText() ? in[0].bytes() : Copies(run, " ", in.Integer(0, 4));
  // An ended last line stays one: the line behind it is empty.
  const std::string text = absl::StrCat(value.bytes(), "\n");
  const std::vector<Line> lines = LinesOf(text);
  if (!run.WorkOnBytes(text.size()) ||
      !run.Holds(text.size() + lines.size() * (indention.size() + sizeof(Line)))) {
    return {};
  }
  std::string out;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out += '\n';
    const bool indents = i == 0 ? in.Bool(1, false) : in.Bool(2, false) || !lines[i].text.empty();
    absl::StrAppend(&out, indents ? indention : "", lines[i].text);
  }
  return run.NewText(std::move(out), value.text().markup);
}

Value Truncate(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  Run& run = evaluator.run();
  const Parameters in(run, "truncate", arguments, {"length", "killwords", "end", "leeway"});
  const int64_t length = in.Integer(0, 255);
  const std::string end = in.Text(2, "...");
  const int64_t leeway = in.Has(3) && !in[3].IsNone() ? in.Integer(3, 5) : 5;
  const auto end_length = static_cast<int64_t>(CountCharacters(end));
  if (!value.IsText()) run.Fail("truncate: the value is not a string");
  if (length < end_length || leeway < 0) run.Fail("truncate: the length or leeway is too small");
  if (run.failed() || !run.WorkOnBytes(value.bytes().size())) return {};
  const auto size = static_cast<int64_t>(value.text().length);
  if (size - leeway <= length) return value;
  absl::string_view kept = Characters(value.bytes(), 0, static_cast<size_t>(length - end_length));
  if (!in.Bool(1, false)) kept = kept.substr(0, kept.rfind(' '));
  return run.NewText(absl::StrCat(kept, end), value.text().markup);
}

void AppendQuoted(absl::string_view text, bool in_query, std::string& out) {
  for (const char c : text) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                       absl::StrContains("_.-~", std::string(1, c));
    if (plain || (c == '/' && !in_query)) {
      out += c;
    } else if (c == ' ' && in_query) {
      out += '+';
    } else {
      absl::StrAppendFormat(&out, "%%%02X", static_cast<uint8_t>(c));
    }
  }
}

Value UrlEncode(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  Run& run = evaluator.run();
  const Parameters in(run, "urlencode", arguments, {});
  std::string out;
  if (value.IsText() || !IsIterable(value)) {
    const std::string text = ToText(run, value);
    if (!run.WorkOnBytes(text.size()) || !run.Holds(3 * text.size())) return {};
    AppendQuoted(text, /*in_query=*/false, out);
    return run.NewText(std::move(out));
  }
  const auto add = [&](const Value& key, const Value& item) {
    const std::string left = ToText(run, key);
    const std::string right = ToText(run, item);
    if (!run.WorkOnBytes(left.size() + right.size()) ||
        !run.Holds(out.size() + 3 * (left.size() + right.size()))) {
      return;
    }
    if (!out.empty()) out += '&';
    AppendQuoted(left, /*in_query=*/true, out);
    out += '=';
    AppendQuoted(right, /*in_query=*/true, out);
  };
  if (value.IsDict()) {
    for (const auto& [key, item] : value.dict().entries) add(key, item);
    return run.NewText(std::move(out));
  }
  const std::shared_ptr<const List> pairs = Iterate(run, value);
  for (const Value& pair : pairs->items) {
    const std::shared_ptr<const List> parts = Iterate(run, pair);
    if (parts->items.size() != 2) run.Fail("urlencode: an element is not a pair");
    if (run.failed()) return {};
    add(parts->items[0], parts->items[1]);
  }
  return run.NewText(std::move(out));
}

Value WordCount(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  Run& run = evaluator.run();
  const Parameters in(run, "wordcount", arguments, {});
  const std::string text = ToText(run, value);
  if (!run.WorkOnBytes(4 * text.size())) return {};
  int64_t count = 0;
  bool in_word = false;
  for (absl::string_view rest = text; !rest.empty();) {
    const Utf8Prefix prefix = ReadUtf8(rest);
    const bool is_word = IsWordCharacter(prefix.code_point);
    if (is_word && !in_word) ++count;
    in_word = is_word;
    rest.remove_prefix(prefix.size);
  }
  return Value::OfInteger(count);
}

Value ToJsonText(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  Run& run = evaluator.run();
  const Parameters in(run, "tojson", arguments,
                      {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ascii = in.Bool(0, false);
  style.sort_keys = in.Bool(3, false);
  if (in.Has(1) && !in[1].IsNone()) {
    style.indent = in[1].IsText() ? in[1].bytes() : Copies(run, " ", in.Integer(1, 0));
    style.item_separator.assign(1, ',');
  }
  if (in.Has(2) && !in[2].IsNone()) {
    const std::shared_ptr<const List> parts = Iterate(run, in[2]);
    if (parts->items.size() != 2 || !parts->items[0].IsText() || !parts->items[1].IsText()) {
      run.Fail("tojson: separators must be two strings");
      return {};
    }
    style.item_separator = parts->items[0].bytes();
    style.key_separator = parts->items[1].bytes();
  }
  return run.failed() ? Value() : run.NewText(ToJson(run, value, style));
}

}  // namespace

FilterTable TextFilters() {
  static constexpr std::pair<absl::string_view, FilterCall> kFilters[] = {
      {"capitalize", ByMethod<kCapitalize>},
      {"center", Center},
      {"e", Escape},
      {"escape", Escape},
      {"forceescape", ForceEscape},
      {"format", Format},
      {"indent", Indent},
      {"lower", ByMethod<kLower>},
      {"replace", Replace},
      {"safe", Safe},
      {"string", String},
      {"title", Title},
      {"tojson", ToJsonText},
      {"trim", Trim},
      {"truncate", Truncate},
      {"upper", ByMethod<kUpper>},
      {"urlencode", UrlEncode},
      {"wordcount", WordCount}};
  return kFilters;
}

}  // namespace pagoda::jinja
