#include "engine/text/jinja/python/json_text.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/text/encoding/utf8.h"
#include "engine/text/jinja/python/python_text.h"
#include "engine/text/jinja/values/compare.h"

namespace pagoda::jinja {
namespace {

using Kind = Value::Kind;

std::string FloatJson(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
  return FloatText(value);
}

void AppendUnit(uint32_t unit, std::string& out) { absl::StrAppendFormat(&out, "\\u%04x", unit); }

std::string QuotedJson(absl::string_view bytes, bool ascii) {
  std::string out = "\"";
  while (!bytes.empty()) {
    const Utf8Prefix prefix = ReadUtf8(bytes);
    const auto c = static_cast<uint32_t>(prefix.code_point);
    if (c == '"' || c == '\\') {
      out += {'\\', static_cast<char>(c)};
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c == '\f') {
      out += "\\f";
    } else if (c == '\b') {
      out += "\\b";
    } else if (c < 0x20 || (ascii && c >= 0x7F && c < 0x10000)) {
      AppendUnit(c, out);
    } else if (ascii && c >= 0x10000) {
      AppendUnit(0xD800 + ((c - 0x10000) >> 10), out);
      AppendUnit(0xDC00 + ((c - 0x10000) & 0x3FF), out);
    } else {
      absl::StrAppend(&out, bytes.substr(0, prefix.size));
    }
    bytes.remove_prefix(prefix.size);
  }
  return out + "\"";
}

class JsonWriter {
 public:
  JsonWriter(Run& run, const JsonStyle& style) : run_(run), style_(style) {}

  void Write(const Value& value) {
    if (!run_.Work() || !run_.Holds(out_.size())) return;
    switch (value.kind()) {
      case Kind::kNone:
        return Add("null");
      case Kind::kBoolean:
        return Add(value.boolean() ? "true" : "false");
      case Kind::kInteger:
        return Add(IntegerText(value.whole()));
      case Kind::kFloat:
        return Add(FloatJson(value.real()));
      case Kind::kText:
        return Add(QuotedJson(value.bytes(), style_.ascii));
      case Kind::kList:
        return WriteList(value.list());
      case Kind::kDict:
        return WriteDict(value.dict());
      case Kind::kUndefined:
      case Kind::kObject:
        return run_.Fail(absl::StrCat("tojson: ", TypeName(value), " is not a value of JSON",
                                      value.IsUndefined() ? " (" + value.reason() + ")" : ""));
    }
  }

  std::string Take() { return std::move(out_); }

 private:
  void Add(absl::string_view text) { absl::StrAppend(&out_, text); }

  void NewLine() {
    if (!style_.indent.has_value() || !run_.Holds(out_.size() + level_ * style_.indent->size())) {
      return;
    }
    Add("\n");
    for (size_t i = 0; i < level_; ++i) Add(*style_.indent);
  }

  // The text before element `i`.
  void Separate(size_t i) {
    if (i > 0) Add(style_.item_separator);
    NewLine();
  }

  void WriteList(const List& list) {
    if (list.items.empty()) return Add("[]");
    Add("[");
    ++level_;
    for (size_t i = 0; i < list.items.size() && !run_.failed(); ++i) {
      Separate(i);
      Write(list.items[i]);
    }
    --level_;
    NewLine();
    Add("]");
  }

  std::string KeyText(const Value& key) {
    if (key.IsText()) return key.bytes();
    if (key.IsNone()) return "null";
    if (key.Is(Kind::kBoolean)) return key.boolean() ? "true" : "false";
    if (key.Is(Kind::kInteger)) return IntegerText(key.whole());
    if (key.Is(Kind::kFloat)) return FloatJson(key.real());
    run_.Fail(absl::StrCat("tojson: a key cannot be a ", TypeName(key)));
    return "";
  }

  void WriteDict(const Dict& dict) {
    if (dict.entries.empty()) return Add("{}");
    std::vector<const std::pair<Value, Value>*> entries;
    for (const auto& entry : dict.entries) entries.push_back(&entry);
    if (style_.sort_keys) SortByKey(entries);
    Add("{");
    ++level_;
    for (size_t i = 0; i < entries.size() && !run_.failed(); ++i) {
      Separate(i);
      Add(QuotedJson(KeyText(entries[i]->first), style_.ascii));
      Add(style_.key_separator);
      Write(entries[i]->second);
    }
    --level_;
    NewLine();
    Add("}");
  }

  void SortByKey(std::vector<const std::pair<Value, Value>*>& entries) {
    for (size_t i = 1; i < entries.size(); ++i) {
      if (!Order(run_, entries[i - 1]->first, entries[i]->first).has_value()) {
        return run_.Fail("tojson: the keys have no order");
      }
    }
    std::stable_sort(entries.begin(), entries.end(), [this](const auto* a, const auto* b) {
      return Order(run_, a->first, b->first) == std::partial_ordering::less;
    });
  }

  Run& run_;
  const JsonStyle& style_;
  size_t level_ = 0;
  std::string out_;
};

}  // namespace

std::string ToJson(Run& run, const Value& value, const JsonStyle& style) {
  JsonWriter writer(run, style);
  writer.Write(value);
  return writer.Take();
}

}  // namespace pagoda::jinja
