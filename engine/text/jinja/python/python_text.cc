#include "engine/text/jinja/python/python_text.h"

#include <unicode/uchar.h>

#include <charconv>
#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/text/encoding/utf8.h"
#include "engine/text/jinja/values/compare.h"

namespace pagoda::jinja {
namespace {

using Kind = Value::Kind;

std::string Quoted(absl::string_view bytes) {
  const bool doubled = absl::StrContains(bytes, "'") && !absl::StrContains(bytes, "\"");
  const char quote = doubled ? '"' : '\'';
  std::string out(1, quote);
  while (!bytes.empty()) {
    const Utf8Prefix prefix = ReadUtf8(bytes);
    const char32_t c = prefix.code_point;
    if (c == U'\n') {
      out += "\\n";
    } else if (c == U'\r') {
      out += "\\r";
    } else if (c == U'\t') {
      out += "\\t";
    } else if (c == U'\\' || c == static_cast<char32_t>(quote)) {
      out += {'\\', static_cast<char>(c)};
    } else if (IsPrintable(c)) {
      absl::StrAppend(&out, bytes.substr(0, prefix.size));
    } else if (c < 0x100) {
      absl::StrAppendFormat(&out, "\\x%02x", static_cast<uint32_t>(c));
    } else if (c < 0x10000) {
      absl::StrAppendFormat(&out, "\\u%04x", static_cast<uint32_t>(c));
    } else {
      absl::StrAppendFormat(&out, "\\U%08x", static_cast<uint32_t>(c));
    }
    bytes.remove_prefix(prefix.size);
  }
  return out + quote;
}

class ReprWriter {
 public:
  explicit ReprWriter(Run& run) : run_(run) {}

  void Write(const Value& value) {
    if (!run_.Work() || !run_.Holds(out_.size())) return;
    switch (value.kind()) {
      case Kind::kText:
        return Add(value.text().markup ? absl::StrCat("Markup(", Quoted(value.bytes()), ")")
                                       : Quoted(value.bytes()));
      case Kind::kList:
        return WriteList(value.list());
      case Kind::kDict:
        return WriteDict(value.dict());
      case Kind::kObject:
        return WriteObject(value);
      case Kind::kUndefined:
        return Add("Undefined");
      case Kind::kNone:
        return Add("None");
      case Kind::kBoolean:
        return Add(value.boolean() ? "True" : "False");
      case Kind::kInteger:
        return Add(IntegerText(value.whole()));
      case Kind::kFloat:
        return Add(FloatText(value.real()));
    }
  }

  std::string Take() { return std::move(out_); }

 private:
  void Add(absl::string_view text) { absl::StrAppend(&out_, text); }

  void WriteItems(const std::vector<Value>& items) {
    for (size_t i = 0; i < items.size() && !run_.failed(); ++i) {
      if (i > 0) Add(", ");
      Write(items[i]);
    }
  }

  void WriteList(const List& list) {
    const bool tuple = list.form != List::Form::kList;
    Add(tuple ? "(" : "[");
    WriteItems(list.items);
    if (tuple && list.items.size() == 1) Add(",");
    Add(tuple ? ")" : "]");
  }

  void WriteDict(const Dict& dict) {
    Add("{");
    for (size_t i = 0; i < dict.entries.size() && !run_.failed(); ++i) {
      if (i > 0) Add(", ");
      Write(dict.entries[i].first);
      Add(": ");
      Write(dict.entries[i].second);
    }
    Add("}");
  }

  void WriteObject(const Value& value) {
    const auto* series = ObjectAs<Series>(value);
    if (series != nullptr && series->form == Series::Form::kRange) return Add(series->name);
    if (series == nullptr || series->form == Series::Form::kGenerator) {
      return Add(absl::StrCat("<", TypeName(value), ">"));
    }
    Add(series->form == Series::Form::kKeys     ? "dict_keys(["
        : series->form == Series::Form::kValues ? "dict_values(["
                                                : "dict_items([");
    WriteItems(series->items->items);
    Add("])");
  }

  Run& run_;
  std::string out_;
};

}  // namespace

bool IsPrintable(char32_t code_point) {
  if (code_point == U' ') return true;
  switch (u_charType(static_cast<UChar32>(code_point))) {
    case U_CONTROL_CHAR:
    case U_FORMAT_CHAR:
    case U_SURROGATE:
    case U_PRIVATE_USE_CHAR:
    case U_UNASSIGNED:
    case U_LINE_SEPARATOR:
    case U_PARAGRAPH_SEPARATOR:
    case U_SPACE_SEPARATOR:
      return false;
    default:
      return true;
  }
}

std::string IntegerText(Integer value) {
  if (value < 0) return absl::StrCat("-", IntegerText(-value));
  // Integers are within 64 bits without the sign.
  return absl::StrCat(static_cast<uint64_t>(value));
}

std::string FloatText(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[400];
  const double size = std::abs(value);
  // Python writes an exponent below 1e-4 and from 1e16.
  const auto form = size != 0 && (size < 1e-4 || size >= 1e16) ? std::chars_format::scientific
                                                               : std::chars_format::fixed;
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value, form);
  std::string text(buffer, end.ptr);
  if (form == std::chars_format::fixed && !absl::StrContains(text, ".")) text += ".0";
  return text;
}

std::string ToRepr(Run& run, const Value& value) {
  ReprWriter writer(run);
  writer.Write(value);
  return writer.Take();
}

std::string ToText(Run& run, const Value& value) {
  if (value.IsText()) return value.bytes();
  if (value.IsUndefined()) return "";
  return ToRepr(run, value);
}

}  // namespace pagoda::jinja
