#include "engine/text/jinja/python/operators.h"

#include <algorithm>
#include <cmath>
#include <compare>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "engine/text/jinja/python/format.h"
#include "engine/text/jinja/python/python_text.h"
#include "engine/text/jinja/python/text_edit.h"
#include "engine/text/jinja/values/compare.h"

namespace pagoda::jinja {
namespace {

using Kind = Value::Kind;

const char* Sign(Operator op) {
  constexpr const char* kSigns[] = {
      "+", "-", "*", "/", "//", "%", "**", "==", "!=", "<", "<=", ">", ">=", "in", "not in"};
  return kSigns[static_cast<size_t>(op)];
}

Value BadTypes(Run& run, Operator op, const Value& left, const Value& right) {
  for (const Value* side : {&left, &right}) {
    if (side->IsUndefined()) run.Fail(side->reason());
  }
  run.Fail(absl::StrCat("unsupported types for ", Sign(op), ": '", TypeName(left), "' and '",
                        TypeName(right), "'"));
  return {};
}

Value TooLarge(Run& run) {
  run.Fail("an integer is too large");
  return {};
}

// Whether the product of two integers is surely within kMaxInteger.
bool ProductFits(Integer left, Integer right) {
  return std::abs(static_cast<double>(left)) * std::abs(static_cast<double>(right)) <=
         static_cast<double>(kMaxInteger);
}

Value Power(Run& run, const Value& left, const Value& right) {
  if (!left.IsWhole() || !right.IsWhole() || right.whole() < 0) {
    const double base = left.number();
    const double result = std::pow(base, right.number());
    if (base == 0 && right.number() < 0) run.Fail("0 to a negative power");
    if (std::isinf(result) && !std::isinf(base) && !std::isinf(right.number())) {
      run.Fail("the result of ** is too large");
    }
    if (std::isnan(result) && !std::isnan(base)) run.Fail("complex numbers are not supported");
    return Value::Of(result);
  }
  const Integer base = left.whole();
  Integer result = 1;
  if (base == 0 || base == 1 || base == -1) {
    const bool even = right.whole() % 2 == 0;
    return Value::OfInteger(right.whole() == 0   ? Integer(1)
                            : base == -1 && even ? Integer(1)
                                                 : base);
  }
  for (Integer i = 0; i < right.whole(); ++i) {
    if (!ProductFits(result, base)) return TooLarge(run);
    result *= base;
  }
  return CheckedInteger(run, result);
}

// Rounds down, as Python does.
Value DivideWhole(Run& run, Operator op, Integer left, Integer right) {
  Integer quotient = left / right;
  Integer rest = left % right;
  if (rest != 0 && (rest < 0) != (right < 0)) {
    quotient -= 1;
    rest += right;
  }
  return CheckedInteger(run, op == Operator::kModulo ? rest : quotient);
}

Value DivideReal(Operator op, double left, double right) {
  double rest = std::fmod(left, right);
  if (rest != 0 && (rest < 0) != (right < 0)) rest += right;
  if (rest == 0) rest = std::copysign(0.0, right);
  return Value::Of(op == Operator::kModulo ? rest : std::round((left - rest) / right));
}

Value CalculateNumbers(Run& run, Operator op, const Value& left, const Value& right) {
  const bool whole = left.IsWhole() && right.IsWhole();
  const bool divides =
      op == Operator::kDivide || op == Operator::kFloorDivide || op == Operator::kModulo;
  if (divides && right.number() == 0) {
    run.Fail("division by zero");
    return {};
  }
  switch (op) {
    case Operator::kAdd:
      if (!whole) return Value::Of(left.number() + right.number());
      return CheckedInteger(run, left.whole() + right.whole());
    case Operator::kSubtract:
      if (!whole) return Value::Of(left.number() - right.number());
      return CheckedInteger(run, left.whole() - right.whole());
    case Operator::kMultiply:
      if (!whole) return Value::Of(left.number() * right.number());
      if (!ProductFits(left.whole(), right.whole())) return TooLarge(run);
      return CheckedInteger(run, left.whole() * right.whole());
    case Operator::kDivide:
      return Value::Of(left.number() / right.number());
    case Operator::kFloorDivide:
    case Operator::kModulo:
      return whole ? DivideWhole(run, op, left.whole(), right.whole())
                   : DivideReal(op, left.number(), right.number());
    default:
      return Power(run, left, right);
  }
}

Value AddTexts(Run& run, const Value& left, const Value& right) {
  const bool markup = left.text().markup || right.text().markup;
  if (!run.Holds(left.bytes().size() + right.bytes().size())) return {};
  return run.NewText(markup ? MarkupText(run, left) + MarkupText(run, right)
                            : absl::StrCat(left.bytes(), right.bytes()),
                     markup);
}

Value AddLists(Run& run, const Value& left, const Value& right) {
  std::vector<Value> items = left.list().items;
  items.insert(items.end(), right.list().items.begin(), right.list().items.end());
  return run.NewList(std::move(items), left.IsTuple() ? List::Form::kTuple : List::Form::kList);
}

Value Repeat(Run& run, const Value& value, Integer times) {
  const auto count = static_cast<uint64_t>(std::clamp<Integer>(times, 0, INT32_MAX));
  if (value.IsText()) {
    if (!run.Holds(count * value.bytes().size())) return {};
    std::string text;
    text.reserve(count * value.bytes().size());
    for (uint64_t i = 0; i < count && !value.bytes().empty(); ++i) text += value.bytes();
    return run.NewText(std::move(text), value.text().markup);
  }
  const std::vector<Value>& once = value.list().items;
  if (!run.Holds(count * once.size() * sizeof(Value)) || !run.Work(count * once.size())) return {};
  std::vector<Value> items;
  for (uint64_t i = 0; i < count && !once.empty(); ++i) {
    items.insert(items.end(), once.begin(), once.end());
  }
  return run.NewList(std::move(items), value.IsTuple() ? List::Form::kTuple : List::Form::kList);
}

bool Contains(Run& run, const Value& container, const Value& item) {
  switch (container.kind()) {
    case Kind::kUndefined:
      return false;
    case Kind::kText:
      if (!item.IsText()) {
        run.Fail(absl::StrCat("'in <string>' requires a string, not ", TypeName(item)));
        return false;
      }
      return run.WorkOnBytes(container.bytes().size()) &&
             FindText(run, container.bytes(), item.bytes()) != std::string::npos;
    case Kind::kDict:
      if (!IsHashable(run, item)) run.Fail(absl::StrCat("unhashable type: '", TypeName(item), "'"));
      return container.dict().Find(run, item) != nullptr;
    case Kind::kList:
      break;
    default:
      if (ObjectAs<Series>(container) == nullptr) {
        run.Fail(absl::StrCat("argument of type '", TypeName(container), "' is not iterable"));
        return false;
      }
  }
  const std::vector<Value>& items =
      container.IsList() ? container.list().items : ObjectAs<Series>(container)->items->items;
  return std::any_of(items.begin(), items.end(),
                     [&](const Value& element) { return Equal(run, element, item); });
}

bool Ordered(Run& run, Operator op, const Value& left, const Value& right) {
  const std::optional<std::partial_ordering> order = Order(run, left, right);
  if (!order.has_value()) {
    BadTypes(run, op, left, right);
    return false;
  }
  switch (op) {
    case Operator::kLess:
      return std::is_lt(*order);
    case Operator::kLessEqual:
      return std::is_lteq(*order);
    case Operator::kGreater:
      return std::is_gt(*order);
    default:
      return std::is_gteq(*order);
  }
}

}  // namespace

Value CheckedInteger(Run& run, Integer value) {
  return value > kMaxInteger || value < -kMaxInteger ? TooLarge(run) : Value::OfInteger(value);
}

Value Calculate(Run& run, Operator op, const Value& left, const Value& right) {
  if (left.IsNumber() && right.IsNumber()) return CalculateNumbers(run, op, left, right);
  if (op == Operator::kModulo && left.IsText() && !right.IsUndefined()) {
    return FormatPercent(run, left, right);
  }
  if (op == Operator::kAdd && left.IsText() && right.IsText()) return AddTexts(run, left, right);
  if (op == Operator::kAdd && left.IsList() && right.IsList() &&
      left.IsTuple() == right.IsTuple()) {
    return AddLists(run, left, right);
  }
  if (op == Operator::kMultiply) {
    if ((left.IsText() || left.IsList()) && right.IsWhole()) {
      return Repeat(run, left, right.whole());
    }
    if ((right.IsText() || right.IsList()) && left.IsWhole()) {
      return Repeat(run, right, left.whole());
    }
  }
  return BadTypes(run, op, left, right);
}

Value Negate(Run& run, const Value& value) {
  if (value.IsWhole()) return Value::OfInteger(-value.whole());
  if (value.IsNumber()) return Value::Of(-value.number());
  run.Fail(value.IsUndefined() ? value.reason()
                               : absl::StrCat("bad operand of unary -: '", TypeName(value), "'"));
  return {};
}

bool Compare(Run& run, Operator op, const Value& left, const Value& right) {
  if (!run.Work()) return false;
  switch (op) {
    case Operator::kEqual:
      return Equal(run, left, right);
    case Operator::kNotEqual:
      return !Equal(run, left, right);
    case Operator::kIn:
      return Contains(run, right, left);
    case Operator::kNotIn:
      return !Contains(run, right, left);
    default:
      return Ordered(run, op, left, right);
  }
}

std::string EscapeHtml(absl::string_view text) {
  return absl::StrReplaceAll(
      text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"'", "&#39;"}, {"\"", "&#34;"}});
}

std::string MarkupText(Run& run, const Value& value) {
  if (value.IsText() && value.text().markup) return value.bytes();
  return EscapeHtml(ToText(run, value));
}

}  // namespace pagoda::jinja
