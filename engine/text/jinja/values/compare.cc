#include "engine/text/jinja/values/compare.h"

#include <algorithm>

#include "engine/text/jinja/values/object.h"

namespace pagoda::jinja {
namespace {

using Kind = Value::Kind;

// A series with a length; null for any other value.
const Series* Sized(const Value& value) {
  const auto* series = ObjectAs<Series>(value);
  return series != nullptr && series->form != Series::Form::kGenerator ? series : nullptr;
}

bool EqualLists(Run& run, const std::vector<Value>& left, const std::vector<Value>& right) {
  return std::equal(left.begin(), left.end(), right.begin(), right.end(),
                    [&](const Value& a, const Value& b) { return Equal(run, a, b); });
}

bool EqualDicts(Run& run, const Dict& left, const Dict& right) {
  if (left.entries.size() != right.entries.size()) return false;
  return std::all_of(left.entries.begin(), left.entries.end(), [&](const auto& entry) {
    const Value* other = right.Find(run, entry.first);
    return other != nullptr && Equal(run, entry.second, *other);
  });
}

}  // namespace

bool IsTrue(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBoolean:
    case Kind::kInteger:
    case Kind::kFloat:
      return value.number() != 0;
    case Kind::kText:
      return !value.bytes().empty();
    case Kind::kList:
      return !value.list().items.empty();
    case Kind::kDict:
      return !value.dict().entries.empty();
    case Kind::kObject: {
      const Series* series = Sized(value);
      return series == nullptr || !series->items->items.empty();
    }
  }
  return false;
}

bool Equal(Run& run, const Value& left, const Value& right) {
  if (!run.Work()) return false;
  if (left.IsNumber() && right.IsNumber()) {
    if (left.IsWhole() && right.IsWhole()) return left.whole() == right.whole();
    return left.number() == right.number();
  }
  if (left.kind() != right.kind()) return false;
  switch (left.kind()) {
    case Kind::kText:
      return left.bytes().size() == right.bytes().size() && run.WorkOnBytes(left.bytes().size()) &&
             left.bytes() == right.bytes();
    case Kind::kList:
      return left.IsTuple() == right.IsTuple() &&
             EqualLists(run, left.list().items, right.list().items);
    case Kind::kDict:
      return EqualDicts(run, left.dict(), right.dict());
    case Kind::kObject: {
      const Series* a = Sized(left);
      const Series* b = Sized(right);
      if (a == nullptr || b == nullptr || a->form != b->form) {
        return left.object() == right.object();
      }
      return EqualLists(run, a->items->items, b->items->items);
    }
    default:
      return true;
  }
}

std::optional<std::partial_ordering> Order(Run& run, const Value& left, const Value& right) {
  if (!run.Work()) return std::nullopt;
  if (left.IsNumber() && right.IsNumber()) {
    if (left.IsWhole() && right.IsWhole()) {
      return left.whole() < right.whole()   ? std::partial_ordering::less
             : left.whole() > right.whole() ? std::partial_ordering::greater
                                            : std::partial_ordering::equivalent;
    }
    return left.number() <=> right.number();
  }
  // The order of UTF-8's bytes is the order of the characters.
  if (left.IsText() && right.IsText()) {
    run.WorkOnBytes(std::min(left.bytes().size(), right.bytes().size()));
    return left.bytes() <=> right.bytes();
  }
  if (left.IsList() && right.IsList() && left.IsTuple() == right.IsTuple()) {
    const std::vector<Value>& a = left.list().items;
    const std::vector<Value>& b = right.list().items;
    for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
      if (!Equal(run, a[i], b[i])) return Order(run, a[i], b[i]);
    }
    return a.size() <=> b.size();
  }
  return std::nullopt;
}

bool IsHashable(Run& run, const Value& value) {
  if (!run.Work()) return false;
  if (value.IsTuple()) {
    return std::all_of(value.list().items.begin(), value.list().items.end(),
                       [&](const Value& item) { return IsHashable(run, item); });
  }
  return !value.IsList() && !value.IsDict();
}

std::string TypeName(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBoolean:
      return "bool";
    case Kind::kInteger:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kText:
      return "str";
    case Kind::kList:
      return value.IsTuple() ? "tuple" : "list";
    case Kind::kDict:
      return "dict";
    case Kind::kObject:
      break;
  }
  switch (value.object()->type()) {
    case Object::Type::kNamespace:
      return "Namespace";
    case Object::Type::kMacro:
      return "Macro";
    case Object::Type::kLoop:
      return "LoopContext";
    case Object::Type::kSeries:
      return "iterator";
    case Object::Type::kCycler:
      return "Cycler";
    case Object::Type::kJoiner:
      return "Joiner";
    case Object::Type::kMethod:
    case Object::Type::kFunction:
      break;
  }
  return "function";
}

}  // namespace pagoda::jinja
