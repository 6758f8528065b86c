#include "engine/text/jinja/python/attributes.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/text/encoding/utf8.h"
#include "engine/text/jinja/python/methods.h"
#include "engine/text/jinja/python/python_text.h"
#include "engine/text/jinja/values/compare.h"

namespace pagoda::jinja {
namespace {

using Kind = Value::Kind;

constexpr absl::string_view kUnsafeList[] = {"append", "clear",  "extend",  "insert",
                                             "pop",    "remove", "reverse", "sort"};
constexpr absl::string_view kUnsafeDict[] = {"clear", "pop", "popitem", "setdefault", "update"};

bool IsUnsafe(const Value& value, absl::string_view name) {
  if (absl::StartsWith(name, "__")) return true;
  if (value.IsDict()) {
    return std::find(std::begin(kUnsafeDict), std::end(kUnsafeDict), name) != std::end(kUnsafeDict);
  }
  return value.IsList() && !value.IsTuple() &&
         std::find(std::begin(kUnsafeList), std::end(kUnsafeList), name) != std::end(kUnsafeList);
}

std::string OwnerName(const Value& value) {
  return value.IsNone() ? "None" : absl::StrCat(TypeName(value), " object");
}

Value LoopField(Run& run, const Loop& loop, absl::string_view name, bool* found) {
  const std::vector<Value>& items = loop.items->items;
  const auto at = static_cast<int64_t>(loop.index);
  const auto size = static_cast<int64_t>(items.size());
  *found = true;
  if (name == "index") return Value::OfInteger(at + 1);
  if (name == "index0") return Value::OfInteger(at);
  if (name == "revindex") return Value::OfInteger(size - at);
  if (name == "revindex0") return Value::OfInteger(size - at - 1);
  if (name == "first") return Value::Of(at == 0);
  if (name == "last") return Value::Of(at + 1 == size);
  if (name == "length") return Value::OfInteger(size);
  if (name == "depth") return Value::OfInteger(loop.depth);
  if (name == "depth0") return Value::OfInteger(loop.depth - 1);
  if (name == "previtem") {
    return at > 0 ? items[loop.index - 1] : run.NewUndefined("there is no previous item");
  }
  if (name == "nextitem") {
    return at + 1 < size ? items[loop.index + 1] : run.NewUndefined("there is no next item");
  }
  *found = false;
  return {};
}

// A field that is neither a method nor an item.
Value FieldOf(Run& run, const Value& value, absl::string_view name, bool* found) {
  if (const auto* space = ObjectAs<Namespace>(value)) {
    for (const auto& [field, content] : space->fields) {
      if (field == name) {
        *found = true;
        return content;
      }
    }
  }
  if (const auto* loop = ObjectAs<Loop>(value)) return LoopField(run, *loop, name, found);
  if (const auto* cycler = ObjectAs<Cycler>(value); cycler != nullptr && name == "current") {
    *found = true;
    return cycler->items[cycler->next];
  }
  if (const auto* macro = ObjectAs<Macro>(value); macro != nullptr && name == "name") {
    *found = true;
    return run.NewText(macro->syntax->name);
  }
  if (value.IsList() && value.list().form == List::Form::kGroup &&
      (name == "grouper" || name == "list")) {
    *found = true;
    return value.list().items[name == "list" ? 1 : 0];
  }
  return {};
}

Value NewMethod(Run& run, const Value& value, absl::string_view name) {
  auto* method = run.New<Method>();
  method->self = value;
  method->name = std::string(name);
  return Value(method);
}

// The place of an element, counted from the end if negative; the length if there is none.
size_t PlaceOf(const Value& key, size_t length) {
  if (!key.IsWhole()) return length;
  const Integer at = key.whole() < 0 ? key.whole() + Integer(length) : key.whole();
  return at < 0 || at >= Integer(length) ? length : static_cast<size_t>(at);
}

const std::vector<Value>* Elements(const Value& value) {
  if (value.IsList()) return &value.list().items;
  const auto* series = ObjectAs<Series>(value);
  return series != nullptr && series->form == Series::Form::kRange ? &series->items->items
                                                                   : nullptr;
}

// A part of a slice; false if it is no integer.
bool PartOf(const Value& part, bool* has, Integer* out) {
  *has = !part.IsNone();
  if (!*has) return true;
  if (!part.IsWhole()) return false;
  *out = part.whole();
  return true;
}

}  // namespace

absl::string_view CharacterAt(const Text& text, size_t place) {
  absl::string_view bytes = text.bytes;
  if (text.IsAscii()) return bytes.substr(place, 1);
  for (; place > 0; --place) bytes.remove_prefix(ReadUtf8(bytes).size);
  return bytes.substr(0, ReadUtf8(bytes).size);
}

bool LengthOf(const Value& value, size_t* length) {
  const auto* series = ObjectAs<Series>(value);
  *length = 0;
  if (value.IsText()) {
    *length = value.text().length;
  } else if (value.IsList()) {
    *length = value.list().items.size();
  } else if (value.IsDict()) {
    *length = value.dict().entries.size();
  } else if (const auto* loop = ObjectAs<Loop>(value)) {
    *length = loop->items->items.size();
  } else if (series != nullptr && series->form != Series::Form::kGenerator) {
    *length = series->items->items.size();
  } else {
    return value.IsUndefined();
  }
  return true;
}

bool HasMethod(const Value& value, absl::string_view name) {
  return !IsUnsafe(value, name) && FindMethod(value, name) != nullptr;
}

Value GetAttribute(Run& run, const Value& value, absl::string_view name) {
  if (!run.Work()) return {};
  if (value.IsUndefined()) {
    run.Fail(value.reason());
    return {};
  }
  if (IsUnsafe(value, name)) {
    return run.NewUndefined(absl::StrCat("access to attribute '", name, "' of '", TypeName(value),
                                         "' object is unsafe"));
  }
  if (FindMethod(value, name) != nullptr) return NewMethod(run, value, name);
  bool found = false;
  Value field = FieldOf(run, value, name, &found);
  if (found) return field;
  if (value.IsDict()) {
    if (const Value* item = value.dict().Find(name)) return *item;
  }
  return run.NewUndefined(absl::StrCat("'", OwnerName(value), "' has no attribute '", name, "'"));
}

Value GetItem(Run& run, const Value& value, const Value& key) {
  if (!run.Work()) return {};
  if (value.IsUndefined()) {
    run.Fail(value.reason());
    return {};
  }
  if (value.IsDict() && IsHashable(run, key)) {
    if (const Value* item = value.dict().Find(run, key)) return *item;
  }
  if (value.IsText()) {
    const Text& text = value.text();
    const size_t place = PlaceOf(key, text.length);
    if (place < text.length) {
      if (!text.IsAscii() && !run.WorkOnBytes(text.bytes.size())) return {};
      return run.NewText(std::string(CharacterAt(text, place)), text.markup);
    }
  }
  if (const std::vector<Value>* elements = Elements(value)) {
    const size_t place = PlaceOf(key, elements->size());
    if (place < elements->size()) return (*elements)[place];
  }
  if (key.IsText()) {
    // A dict's items have been searched above.
    if (!IsUnsafe(value, key.bytes()) && FindMethod(value, key.bytes()) != nullptr) {
      return NewMethod(run, value, key.bytes());
    }
    bool found = false;
    Value field = FieldOf(run, value, key.bytes(), &found);
    if (found) return field;
    return run.NewUndefined(
        absl::StrCat("'", OwnerName(value), "' has no attribute '", key.bytes(), "'"));
  }
  return run.NewUndefined(
      absl::StrCat(OwnerName(value), " has no element ", run.failed() ? "" : ToRepr(run, key)));
}

Value GetSlice(Run& run, const Value& value, const Value& from, const Value& to,
               const Value& step) {
  if (value.IsUndefined()) {
    run.Fail(value.reason());
    return {};
  }
  const std::vector<Value>* elements = Elements(value);
  bool has_from = false;
  bool has_to = false;
  bool has_step = false;
  Integer begin = 0;
  Integer end = 0;
  Integer stride = 1;
  if ((elements == nullptr && !value.IsText()) || !PartOf(from, &has_from, &begin) ||
      !PartOf(to, &has_to, &end) || !PartOf(step, &has_step, &stride)) {
    return run.NewUndefined(absl::StrCat(OwnerName(value), " has no such slice"));
  }
  if (stride == 0) {
    run.Fail("a slice's step is zero");
    return {};
  }
  const Integer size = elements != nullptr ? elements->size() : value.text().length;
  // The ends that Python takes for this direction.
  const Integer low = stride > 0 ? Integer(0) : Integer(-1);
  const Integer high = stride > 0 ? size : size - 1;
  const auto clamp = [&](Integer at) { return std::clamp(at < 0 ? at + size : at, low, high); };
  begin = has_from ? clamp(begin) : stride > 0 ? low : high;
  end = has_to ? clamp(end) : stride > 0 ? high : low;
  stride = std::clamp<Integer>(stride, -size - 1, size + 1);
  const auto goes_on = [&](Integer at) { return stride > 0 ? at < end : at > end; };
  if (elements != nullptr) {
    std::vector<Value> items;
    for (Integer at = begin; goes_on(at); at += stride) {
      items.push_back((*elements)[static_cast<size_t>(at)]);
    }
    return run.NewList(std::move(items), value.IsTuple() ? List::Form::kTuple : List::Form::kList);
  }
  const Text& text = value.text();
  if (!run.WorkOnBytes(text.bytes.size())) return {};
  std::vector<absl::string_view> characters;
  if (!text.IsAscii()) {
    if (!run.Holds(text.length * sizeof(absl::string_view))) return {};
    for (absl::string_view rest = text.bytes; !rest.empty();) {
      characters.push_back(rest.substr(0, ReadUtf8(rest).size));
      rest.remove_prefix(characters.back().size());
    }
  }
  std::string out;
  for (Integer at = begin; goes_on(at); at += stride) {
    const auto place = static_cast<size_t>(at);
    absl::StrAppend(
        &out, text.IsAscii() ? absl::string_view(text.bytes).substr(place, 1) : characters[place]);
  }
  return run.NewText(std::move(out), text.markup);
}

}  // namespace pagoda::jinja
