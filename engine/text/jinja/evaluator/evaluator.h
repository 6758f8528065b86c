// Runs the syntax tree of a template.
#ifndef PAGODA_ENGINE_TEXT_JINJA_EVALUATOR_EVALUATOR_H_
#define PAGODA_ENGINE_TEXT_JINJA_EVALUATOR_EVALUATOR_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/time/civil_time.h"
#include "engine/text/jinja/values/arguments.h"
#include "engine/text/jinja/values/run.h"
#include "engine/text/jinja/values/syntax.h"
#include "engine/text/jinja/values/value.h"

namespace pagoda::jinja {

// The variables of a scope. A macro keeps the scope in which it was defined, and a recursive loop
// the scope around it: both can outlive the statements that made the scope. Its bytes count as
// memory of the run.
struct Frame {
  // Errors of the run: more scopes within each other than its depth.
  Frame(Run& run, std::shared_ptr<Frame> around);

  Value* Find(absl::string_view name);
  void Set(Run& run, absl::string_view name, Value value);

  const std::shared_ptr<Frame> outer;
  // The number of scopes around this one. It is bounded because a frame's destructor runs those of
  // the frames that it alone keeps.
  const int depth;

 private:
  std::vector<std::pair<std::string, Value>> variables_;
  Charge charge_;
};

// Thread-compatible. Errors are those of the run; after one, results have no meaning.
class Evaluator {
 public:
  using Variables = absl::flat_hash_map<std::string, Value>;

  // `variables` are the template's; `now` is the time that it gets.
  Evaluator(Run& run, Variables variables, absl::CivilSecond now);

  std::string Render(const Body& body);

  Run& run() { return run_; }
  absl::CivilSecond now() const { return now_; }
  // For filters that call others by name.
  Value Call(const Value& callee, const Arguments& arguments);
  Value Filter(absl::string_view name, const Value& value, const Arguments& arguments);
  bool Test(absl::string_view name, const Value& value, const Arguments& arguments);

 private:
  enum class Flow : uint8_t { kNext, kBreak, kContinue };
  class Output;
  class Scope;

  // expressions.cc
  Value Evaluate(const Expression& node);
  Value EvaluateDict(const Expression& node);
  Value EvaluateSlice(const Expression& node);
  Value EvaluateCall(const Expression& node);
  Value EvaluateComparison(const Expression& node);
  Value EvaluateConditional(const Expression& node);
  Value EvaluateConcat(const Expression& node);
  Value EvaluateFilter(const Expression& node, const Value& value);
  bool EvaluateTest(const Expression& node);
  std::vector<Value> EvaluateAll(const std::vector<ExpressionPtr>& nodes);
  Arguments EvaluateArguments(const ArgumentSyntax& syntax);

  // statements.cc
  Flow Execute(const Body& body);
  Flow Execute(const Statement& node);
  Flow ExecuteIf(const Statement& node);
  void ExecuteFor(const Statement& node);
  void ExecuteLoop(const Statement& node, const Value& iterable, int depth);
  std::shared_ptr<const List> Chosen(const Statement& node, std::shared_ptr<const List> items);
  void ExecuteCallBlock(const Statement& node);
  void ExecuteWith(const Statement& node);
  void Assign(const Expression& target, Value value);
  Macro* NewMacro(const MacroSyntax& syntax);
  // The text that a body writes.
  Value Capture(const Body& body);
  // `chain` is the last filter of a block, or null.
  Value ApplyFilters(const Expression* chain, Value value);

  // calls.cc
  Value CallMacro(const Macro& macro, const Arguments& arguments);
  void BindMacro(const Macro& macro, const Arguments& arguments);
  Value CallLoop(const Loop& loop, const Arguments& arguments);

  void Write(absl::string_view text);
  Value Lookup(absl::string_view name);

  Run& run_;
  const absl::CivilSecond now_;
  Variables variables_;
  std::shared_ptr<Frame> frame_;
  Output* output_ = nullptr;
  int depth_ = 0;
};

}  // namespace pagoda::jinja

#endif  // PAGODA_ENGINE_TEXT_JINJA_EVALUATOR_EVALUATOR_H_
