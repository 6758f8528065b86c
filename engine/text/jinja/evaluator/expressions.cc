// Evaluator: expressions.
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/text/jinja/evaluator/evaluator.h"
#include "engine/text/jinja/evaluator/filters.h"
#include "engine/text/jinja/evaluator/globals.h"
#include "engine/text/jinja/evaluator/tests.h"
#include "engine/text/jinja/python/attributes.h"
#include "engine/text/jinja/python/methods.h"
#include "engine/text/jinja/python/operators.h"
#include "engine/text/jinja/python/python_text.h"
#include "engine/text/jinja/values/compare.h"
#include "engine/text/jinja/values/iterate.h"

namespace pagoda::jinja {

namespace {

using ExpressionKind = Expression::Kind;

// Python's unary plus. A boolean becomes a number; what is no number is refused as by unary minus.
Value UnaryPlus(Run& run, const Value& value) {
  return value.Is(Value::Kind::kBoolean) ? Value::OfInteger(value.whole())
         : value.IsNumber()              ? value
                                         : Negate(run, value);
}

}  // namespace

Value Evaluator::Lookup(absl::string_view name) {
  for (Frame* frame = frame_.get(); frame != nullptr; frame = frame->outer.get()) {
    if (!run_.Work()) return {};
    if (const Value* found = frame->Find(name)) return *found;
  }
  if (const auto found = variables_.find(name); found != variables_.end()) return found->second;
  if (const Function::Call call = FindGlobal(name)) {
    auto* function = run_.New<Function>();
    function->name = std::string(name);
    function->call = call;
    return Value(function);
  }
  return run_.NewUndefined(absl::StrCat("'", name, "' is undefined"));
}

std::vector<Value> Evaluator::EvaluateAll(const std::vector<ExpressionPtr>& nodes) {
  std::vector<Value> values;
  values.reserve(nodes.size());
  for (const ExpressionPtr& node : nodes) values.push_back(Evaluate(*node));
  return values;
}

Value Evaluator::Evaluate(const Expression& node) {
  Deeper deeper(run_, depth_);
  if (!run_.Work()) return {};
  run_.line = node.line;
  switch (node.kind) {
    case ExpressionKind::kConstant:
      return node.constant;
    case ExpressionKind::kName:
      return Lookup(node.name);
    case ExpressionKind::kList:
      return run_.NewList(EvaluateAll(node.children));
    case ExpressionKind::kTuple:
      return run_.NewList(EvaluateAll(node.children), List::Form::kTuple);
    case ExpressionKind::kDict:
      return EvaluateDict(node);
    case ExpressionKind::kAttribute: {
      const Value value = Evaluate(*node.children[0]);
      run_.line = node.line;
      return GetAttribute(run_, value, node.name);
    }
    case ExpressionKind::kItem: {
      const Value value = Evaluate(*node.children[0]);
      const Value key = Evaluate(*node.children[1]);
      run_.line = node.line;
      return GetItem(run_, value, key);
    }
    case ExpressionKind::kSlice:
      return EvaluateSlice(node);
    case ExpressionKind::kCall:
      return EvaluateCall(node);
    case ExpressionKind::kFilter:
      return EvaluateFilter(node, Evaluate(*node.children[0]));
    case ExpressionKind::kTest:
      return Value::Of(EvaluateTest(node));
    case ExpressionKind::kNot:
      return Value::Of(!IsTrue(Evaluate(*node.children[0])));
    case ExpressionKind::kNegative:
      return Negate(run_, Evaluate(*node.children[0]));
    case ExpressionKind::kPositive:
      return UnaryPlus(run_, Evaluate(*node.children[0]));
    case ExpressionKind::kBinary: {
      const Value left = Evaluate(*node.children[0]);
      const Value right = Evaluate(*node.children[1]);
      run_.line = node.line;
      return run_.failed() ? Value() : Calculate(run_, node.operators[0], left, right);
    }
    case ExpressionKind::kComparison:
      return EvaluateComparison(node);
    case ExpressionKind::kAnd: {
      Value left = Evaluate(*node.children[0]);
      return IsTrue(left) ? Evaluate(*node.children[1]) : left;
    }
    case ExpressionKind::kOr: {
      Value left = Evaluate(*node.children[0]);
      return IsTrue(left) ? left : Evaluate(*node.children[1]);
    }
    case ExpressionKind::kConcat:
      return EvaluateConcat(node);
    case ExpressionKind::kConditional:
      return EvaluateConditional(node);
    case ExpressionKind::kNamespaceField:
      break;
  }
  return {};
}

Value Evaluator::EvaluateDict(const Expression& node) {
  auto dict = std::make_shared<Dict>();
  for (size_t i = 0; i < node.children.size() && !run_.failed(); i += 2) {
    Value key = Evaluate(*node.children[i]);
    Value value = Evaluate(*node.children[i + 1]);
    if (!IsHashable(run_, key)) {
      run_.Fail(absl::StrCat("unhashable type: '", TypeName(key), "'"));
    }
    dict->Set(run_, std::move(key), std::move(value));
  }
  return run_.NewDict(std::move(dict));
}

Value Evaluator::EvaluateSlice(const Expression& node) {
  const Value value = Evaluate(*node.children[0]);
  const auto part = [&](size_t i) {
    return node.children[i] == nullptr ? Value::None() : Evaluate(*node.children[i]);
  };
  const Value from = part(1);
  const Value to = part(2);
  const Value step = part(3);
  return run_.failed() ? Value() : GetSlice(run_, value, from, to, step);
}

Value Evaluator::EvaluateComparison(const Expression& node) {
  Value left = Evaluate(*node.children[0]);
  for (size_t i = 0; i < node.operators.size() && !run_.failed(); ++i) {
    Value right = Evaluate(*node.children[i + 1]);
    run_.line = node.line;
    if (run_.failed() || !Compare(run_, node.operators[i], left, right)) return Value::Of(false);
    left = std::move(right);
  }
  return Value::Of(true);
}

Value Evaluator::EvaluateConditional(const Expression& node) {
  if (IsTrue(Evaluate(*node.children[1]))) return Evaluate(*node.children[0]);
  if (node.children[2] != nullptr) return Evaluate(*node.children[2]);
  return run_.NewUndefined("the inline if-expression has no else and its condition is false");
}

Value Evaluator::EvaluateConcat(const Expression& node) {
  std::string text;
  for (const ExpressionPtr& child : node.children) {
    const std::string part = ToText(run_, Evaluate(*child));
    if (!run_.Holds(text.size() + part.size())) return {};
    text += part;
  }
  return run_.NewText(std::move(text));
}

Arguments Evaluator::EvaluateArguments(const ArgumentSyntax& syntax) {
  Arguments arguments;
  arguments.positional = EvaluateAll(syntax.positional);
  for (const auto& [name, node] : syntax.named) arguments.named.emplace_back(name, Evaluate(*node));
  if (syntax.more_positional != nullptr) {
    const auto more = Iterate(run_, Evaluate(*syntax.more_positional));
    arguments.positional.insert(arguments.positional.end(), more->items.begin(), more->items.end());
  }
  if (syntax.more_named != nullptr) {
    const Value more = Evaluate(*syntax.more_named);
    if (!more.IsDict()) {
      run_.Fail("the argument behind ** is not a dict");
      return arguments;
    }
    for (const auto& [key, value] : more.dict().entries) {
      if (!key.IsText()) run_.Fail("the keys of ** arguments must be strings");
      if (run_.failed()) break;
      arguments.named.emplace_back(key.bytes(), value);
    }
  }
  return arguments;
}

Value Evaluator::EvaluateCall(const Expression& node) {
  const Expression& callee = *node.children[0];
  if (callee.kind == ExpressionKind::kAttribute) {
    // Calls a method without making an object of it.
    const Value self = Evaluate(*callee.children[0]);
    if (run_.failed()) return {};
    if (HasMethod(self, callee.name)) {
      const Arguments arguments = EvaluateArguments(node.arguments);
      run_.line = node.line;
      return run_.failed() ? Value() : FindMethod(self, callee.name)(run_, self, arguments);
    }
    const Value function = GetAttribute(run_, self, callee.name);
    return Call(function, EvaluateArguments(node.arguments));
  }
  const Value function = Evaluate(callee);
  const Arguments arguments = EvaluateArguments(node.arguments);
  run_.line = node.line;
  return Call(function, arguments);
}

Value Evaluator::EvaluateFilter(const Expression& node, const Value& value) {
  const Arguments arguments = EvaluateArguments(node.arguments);
  run_.line = node.line;
  return Filter(node.name, value, arguments);
}

Value Evaluator::Filter(absl::string_view name, const Value& value, const Arguments& arguments) {
  const FilterCall filter = FindFilter(name);
  if (filter == nullptr) run_.FailTemplate(absl::StrCat("no filter is named '", name, "'"));
  return run_.Work() ? filter(*this, value, arguments) : Value();
}

bool Evaluator::EvaluateTest(const Expression& node) {
  const Value value = Evaluate(*node.children[0]);
  const Arguments arguments = EvaluateArguments(node.arguments);
  run_.line = node.line;
  return Test(node.name, value, arguments);
}

bool Evaluator::Test(absl::string_view name, const Value& value, const Arguments& arguments) {
  const TestCall test = FindTest(name);
  if (test == nullptr) run_.FailTemplate(absl::StrCat("no test is named '", name, "'"));
  return run_.Work() && test(run_, value, arguments);
}

}  // namespace pagoda::jinja
