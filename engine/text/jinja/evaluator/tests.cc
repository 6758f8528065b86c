#include "engine/text/jinja/evaluator/tests.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "engine/text/jinja/evaluator/filters.h"
#include "engine/text/jinja/python/methods.h"
#include "engine/text/jinja/python/operators.h"
#include "engine/text/jinja/python/python_text.h"
#include "engine/text/jinja/values/compare.h"
#include "engine/text/jinja/values/iterate.h"

namespace pagoda::jinja {
namespace {

using Kind = Value::Kind;

// A test without arguments.
template <bool (*kMatches)(const Value&)>
bool Plain(Run& run, const Value& value, const Arguments& arguments) {
  const Parameters in(run, "a test", arguments, {});
  return kMatches(value);
}

bool IsDefined(const Value& value) { return !value.IsUndefined(); }
bool IsUndefined(const Value& value) { return value.IsUndefined(); }
bool IsNone(const Value& value) { return value.IsNone(); }
bool IsBoolean(const Value& value) { return value.Is(Kind::kBoolean); }
bool IsTrueItself(const Value& value) { return value.Is(Kind::kBoolean) && value.boolean(); }
bool IsFalseItself(const Value& value) { return value.Is(Kind::kBoolean) && !value.boolean(); }
bool IsInteger(const Value& value) { return value.Is(Kind::kInteger); }
bool IsFloat(const Value& value) { return value.Is(Kind::kFloat); }
bool IsNumber(const Value& value) { return value.IsNumber(); }
bool IsString(const Value& value) { return value.IsText(); }
bool IsMapping(const Value& value) { return value.IsDict(); }
bool IsEscaped(const Value& value) { return value.IsText() && value.text().markup; }
bool IsAnyIterable(const Value& value) {
  return IsIterable(value) || ObjectAs<Loop>(value) != nullptr;
}

// It has a length and elements by number or key. An undefined value is an empty sequence.
bool IsSequence(const Value& value) {
  const auto* series = ObjectAs<Series>(value);
  return value.IsText() || value.IsList() || value.IsDict() || value.IsUndefined() ||
         (series != nullptr && series->form == Series::Form::kRange);
}

bool IsCallable(const Value& value) {
  if (value.IsUndefined()) return true;
  if (!value.Is(Kind::kObject)) return false;
  switch (value.object()->type()) {
    case Object::Type::kMacro:
    case Object::Type::kMethod:
    case Object::Type::kFunction:
    case Object::Type::kLoop:
    case Object::Type::kJoiner:
      return true;
    default:
      return false;
  }
}

// A test of the whole text of a value, by a method of texts.
template <const char* kMethod>
bool TextHasCase(Run& run, const Value& value, const Arguments& arguments) {
  const Value text = run.NewText(ToText(run, value));
  if (run.failed()) return false;
  return IsTrue(FindMethod(text, kMethod)(run, text, arguments));
}

constexpr char kIsLower[] = "islower";
constexpr char kIsUpper[] = "isupper";

// value % 2 == kRest.
template <int kRest>
bool HasRest(Run& run, const Value& value, const Arguments& arguments) {
  const Parameters in(run, "a test", arguments, {});
  const Value rest = Calculate(run, Operator::kModulo, value, Value::OfInteger(2));
  return !run.failed() && Equal(run, rest, Value::OfInteger(kRest));
}

bool IsDivisible(Run& run, const Value& value, const Arguments& arguments) {
  const Parameters in(run, "divisibleby", arguments, {"num"}, 1);
  const Value rest = Calculate(run, Operator::kModulo, value, in[0]);
  return !run.failed() && Equal(run, rest, Value::OfInteger(0));
}

template <Operator kOperator>
bool Compares(Run& run, const Value& value, const Arguments& arguments) {
  const Parameters in(run, "a comparison", arguments, {"other"}, 1);
  return !run.failed() && Compare(run, kOperator, value, in[0]);
}

// Python's `is`. Equal texts and numbers are the same here.
bool IsSame(Run& run, const Value& value, const Arguments& arguments) {
  const Parameters in(run, "sameas", arguments, {"other"}, 1);
  if (run.failed() || value.kind() != in[0].kind()) return false;
  if (value.IsList()) return &value.list() == &in[0].list();
  if (value.IsDict()) return &value.dict() == &in[0].dict();
  if (value.Is(Kind::kObject)) return value.object() == in[0].object();
  return Equal(run, value, in[0]);
}

bool IsFilter(Run& run, const Value& value, const Arguments& arguments) {
  const Parameters in(run, "filter", arguments, {});
  return value.IsText() && FindFilter(value.bytes()) != nullptr;
}

bool IsTest(Run& run, const Value& value, const Arguments& arguments) {
  const Parameters in(run, "test", arguments, {});
  return value.IsText() && FindTest(value.bytes()) != nullptr;
}

constexpr std::pair<absl::string_view, TestCall> kTests[] = {
    {"!=", Compares<Operator::kNotEqual>},
    {"<", Compares<Operator::kLess>},
    {"<=", Compares<Operator::kLessEqual>},
    {"==", Compares<Operator::kEqual>},
    {">", Compares<Operator::kGreater>},
    {">=", Compares<Operator::kGreaterEqual>},
    {"boolean", Plain<IsBoolean>},
    {"callable", Plain<IsCallable>},
    {"defined", Plain<IsDefined>},
    {"divisibleby", IsDivisible},
    {"eq", Compares<Operator::kEqual>},
    {"equalto", Compares<Operator::kEqual>},
    {"escaped", Plain<IsEscaped>},
    {"even", HasRest<0>},
    {"false", Plain<IsFalseItself>},
    {"filter", IsFilter},
    {"float", Plain<IsFloat>},
    {"ge", Compares<Operator::kGreaterEqual>},
    {"greaterthan", Compares<Operator::kGreater>},
    {"gt", Compares<Operator::kGreater>},
    {"in", Compares<Operator::kIn>},
    {"integer", Plain<IsInteger>},
    {"iterable", Plain<IsAnyIterable>},
    {"le", Compares<Operator::kLessEqual>},
    {"lessthan", Compares<Operator::kLess>},
    {"lower", TextHasCase<kIsLower>},
    {"lt", Compares<Operator::kLess>},
    {"mapping", Plain<IsMapping>},
    {"ne", Compares<Operator::kNotEqual>},
    {"none", Plain<IsNone>},
    {"number", Plain<IsNumber>},
    {"odd", HasRest<1>},
    {"sameas", IsSame},
    {"sequence", Plain<IsSequence>},
    {"string", Plain<IsString>},
    {"test", IsTest},
    {"true", Plain<IsTrueItself>},
    {"undefined", Plain<IsUndefined>},
    {"upper", TextHasCase<kIsUpper>}};

}  // namespace

TestCall FindTest(absl::string_view name) {
  const auto* found = std::find_if(std::begin(kTests), std::end(kTests),
                                   [&](const auto& entry) { return entry.first == name; });
  return found == std::end(kTests) ? nullptr : found->second;
}

}  // namespace pagoda::jinja
