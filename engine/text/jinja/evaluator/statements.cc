// Evaluator: statements.
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/text/jinja/evaluator/scopes.h"
#include "engine/text/jinja/python/python_text.h"
#include "engine/text/jinja/values/compare.h"
#include "engine/text/jinja/values/iterate.h"

namespace pagoda::jinja {

namespace {

using StatementKind = Statement::Kind;

// What a scope and a variable take.
constexpr size_t kFrameBytes = sizeof(Frame) + 32;
constexpr size_t kVariableBytes = sizeof(std::pair<std::string, Value>);

}  // namespace

Frame::Frame(Run& run, std::shared_ptr<Frame> around)
    : outer(std::move(around)),
      depth(outer == nullptr ? 0 : outer->depth + 1),
      charge_(&run.memory(), run.Holds(kFrameBytes) ? kFrameBytes : 0) {
  if (depth > run.limits().depth) run.Fail("the template nests too deeply");
}

Value* Frame::Find(absl::string_view name) {
  for (auto& [variable, value] : variables_) {
    if (variable == name) return &value;
  }
  return nullptr;
}

void Frame::Set(Run& run, absl::string_view name, Value value) {
  if (Value* found = Find(name)) {
    *found = std::move(value);
  } else if (run.Holds(kVariableBytes)) {
    charge_.Add(kVariableBytes);
    variables_.emplace_back(name, std::move(value));
  }
}

Evaluator::Evaluator(Run& run, Variables variables, absl::CivilSecond now)
    : run_(run),
      now_(now),
      variables_(std::move(variables)),
      frame_(std::make_shared<Frame>(run, nullptr)) {}

std::string Evaluator::Render(const Body& body) {
  Output output(*this);
  Execute(body);
  return output.Take();
}

void Evaluator::Write(absl::string_view text) { output_->Add(text); }

Evaluator::Flow Evaluator::Execute(const Body& body) {
  for (const auto& node : body) {
    if (run_.failed()) break;
    if (const Flow flow = Execute(*node); flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Evaluator::Flow Evaluator::Execute(const Statement& node) {
  Deeper deeper(run_, depth_);
  if (!run_.Work()) return Flow::kNext;
  run_.line = node.line;
  switch (node.kind) {
    case StatementKind::kText:
      Write(node.text);
      break;
    case StatementKind::kPrint: {
      const Value value = Evaluate(*node.expression);
      if (!run_.failed()) value.IsText() ? Write(value.bytes()) : Write(ToText(run_, value));
      break;
    }
    case StatementKind::kIf:
      return ExecuteIf(node);
    case StatementKind::kFor:
      ExecuteFor(node);
      break;
    case StatementKind::kSet:
      Assign(*node.target, Evaluate(*node.expression));
      break;
    case StatementKind::kSetBlock:
      Assign(*node.target, ApplyFilters(node.expression.get(), Capture(node.body)));
      break;
    case StatementKind::kMacro:
      frame_->Set(run_, node.macro.name, Value(NewMacro(node.macro)));
      break;
    case StatementKind::kCall:
      ExecuteCallBlock(node);
      break;
    case StatementKind::kFilter:
      Write(ToText(run_, ApplyFilters(node.expression.get(), Capture(node.body))));
      break;
    case StatementKind::kWith:
      ExecuteWith(node);
      break;
    case StatementKind::kScope: {
      Scope scope(*this);
      Execute(node.body);
      break;
    }
    case StatementKind::kBreak:
      return Flow::kBreak;
    case StatementKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

Evaluator::Flow Evaluator::ExecuteIf(const Statement& node) {
  for (const Statement::Branch& branch : node.branches) {
    if (branch.condition == nullptr || IsTrue(Evaluate(*branch.condition))) {
      return run_.failed() ? Flow::kNext : Execute(branch.body);
    }
  }
  return Flow::kNext;
}

void Evaluator::ExecuteFor(const Statement& node) {
  const Value iterable = Evaluate(*node.expression);
  if (!run_.failed()) ExecuteLoop(node, iterable, 1);
}

std::shared_ptr<const List> Evaluator::Chosen(const Statement& node,
                                              std::shared_ptr<const List> items) {
  if (node.condition == nullptr) return items;
  std::vector<Value> chosen;
  for (const Value& item : items->items) {
    if (!run_.Work()) break;
    Scope scope(*this);
    Assign(*node.target, item);
    if (IsTrue(Evaluate(*node.condition))) chosen.push_back(item);
  }
  return run_.Share(std::move(chosen));
}

void Evaluator::ExecuteLoop(const Statement& node, const Value& iterable, int depth) {
  const std::shared_ptr<const List> items = Chosen(node, Iterate(run_, iterable));
  if (run_.failed()) return;
  auto* loop = run_.New<Loop>();
  loop->syntax = node.recursive ? &node : nullptr;
  loop->outer = frame_;
  loop->items = items;
  loop->depth = depth;
  for (size_t i = 0; i < items->items.size() && run_.Work(); ++i) {
    Scope scope(*this);
    loop->index = i;
    frame_->Set(run_, "loop", Value(loop));
    Assign(*node.target, items->items[i]);
    if (Execute(node.body) == Flow::kBreak) break;
  }
  if (items->items.empty()) {
    Scope scope(*this);
    Execute(node.otherwise);
  }
}

void Evaluator::Assign(const Expression& target, Value value) {
  if (run_.failed()) return;
  run_.line = target.line;
  if (target.kind == Expression::Kind::kName)
    return frame_->Set(run_, target.name, std::move(value));
  if (target.kind == Expression::Kind::kNamespaceField) {
    const Value space_value = Lookup(target.name);
    auto* space = ObjectAs<Namespace>(space_value);
    if (space == nullptr) return run_.Fail("cannot assign an attribute of a non-namespace object");
    if (absl::StartsWith(target.field, "_")) {
      return run_.Fail(absl::StrCat("cannot store the attribute '", target.field, "'"));
    }
    for (auto& [name, field] : space->fields) {
      if (name == target.field) {
        field = std::move(value);
        return;
      }
    }
    space->fields.emplace_back(target.field, std::move(value));
    return;
  }
  const std::shared_ptr<const List> items = Iterate(run_, value);
  if (items->items.size() != target.children.size()) {
    return run_.Fail(absl::StrCat("cannot unpack ", items->items.size(), " values into ",
                                  target.children.size()));
  }
  for (size_t i = 0; i < items->items.size(); ++i) Assign(*target.children[i], items->items[i]);
}

Value Evaluator::Capture(const Body& body) {
  Scope scope(*this);
  Output output(*this);
  Execute(body);
  return run_.NewText(output.Take());
}

Value Evaluator::ApplyFilters(const Expression* chain, Value value) {
  std::vector<const Expression*> filters;  // The last one first.
  for (; chain != nullptr; chain = chain->children[0].get()) filters.push_back(chain);
  for (auto filter = filters.rbegin(); filter != filters.rend() && !run_.failed(); ++filter) {
    value = EvaluateFilter(**filter, value);
  }
  return value;
}

Macro* Evaluator::NewMacro(const MacroSyntax& syntax) {
  auto* macro = run_.New<Macro>();
  macro->syntax = &syntax;
  macro->closure = frame_;
  return macro;
}

void Evaluator::ExecuteCallBlock(const Statement& node) {
  const Expression& call = *node.expression;
  const Value callee = Evaluate(*call.children[0]);
  Arguments arguments = EvaluateArguments(call.arguments);
  arguments.named.emplace_back("caller", Value(NewMacro(node.macro)));
  const Value result = Call(callee, arguments);
  if (!run_.failed()) Write(ToText(run_, result));
}

void Evaluator::ExecuteWith(const Statement& node) {
  std::vector<Value> values;
  for (const auto& [target, expression] : node.with) values.push_back(Evaluate(*expression));
  Scope scope(*this);
  for (size_t i = 0; i < values.size() && !run_.failed(); ++i) {
    Assign(*node.with[i].first, std::move(values[i]));
  }
  Execute(node.body);
}

}  // namespace pagoda::jinja
