// Evaluator: calls.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/text/jinja/evaluator/scopes.h"
#include "engine/text/jinja/python/methods.h"
#include "engine/text/jinja/python/python_text.h"
#include "engine/text/jinja/values/compare.h"
#include "engine/text/jinja/values/iterate.h"

namespace pagoda::jinja {

Value Evaluator::Call(const Value& callee, const Arguments& arguments) {
  Deeper deeper(run_, depth_);
  if (!run_.Work()) return {};
  if (const auto* macro = ObjectAs<Macro>(callee)) return CallMacro(*macro, arguments);
  if (const auto* function = ObjectAs<Function>(callee)) return function->call(*this, arguments);
  if (const auto* method = ObjectAs<Method>(callee)) {
    return FindMethod(method->self, method->name)(run_, method->self, arguments);
  }
  if (const auto* loop = ObjectAs<Loop>(callee)) return CallLoop(*loop, arguments);
  if (auto* joiner = ObjectAs<Joiner>(callee)) {
    const Parameters in(run_, "joiner", arguments, {});
    return std::exchange(joiner->used, true) ? joiner->separator : run_.NewText("");
  }
  run_.Fail(callee.IsUndefined() ? callee.reason()
                                 : absl::StrCat("'", TypeName(callee), "' object is not callable"));
  return {};
}

void Evaluator::BindMacro(const Macro& macro, const Arguments& arguments) {
  const MacroSyntax& syntax = *macro.syntax;
  const size_t count = syntax.parameters.size();
  const size_t bound = std::min(count, arguments.positional.size());
  for (size_t i = 0; i < bound; ++i)
    frame_->Set(run_, syntax.parameters[i], arguments.positional[i]);
  auto more = std::make_shared<Dict>();
  bool has_caller = false;
  for (const auto& [name, value] : arguments.named) {
    const auto found = std::find(syntax.parameters.begin(), syntax.parameters.end(), name);
    if (found != syntax.parameters.end()) {
      if (static_cast<size_t>(found - syntax.parameters.begin()) < bound) {
        run_.Fail(absl::StrCat("macro '", syntax.name, "' gets '", name, "' twice"));
      }
      frame_->Set(run_, name, value);
    } else if (name == "caller" && syntax.uses_caller) {
      has_caller = true;
      frame_->Set(run_, name, value);
    } else if (syntax.uses_kwargs) {
      more->Set(run_, run_.NewText(name), value);
    } else {
      run_.Fail(absl::StrCat("macro '", syntax.name, "' takes no argument '", name, "'"));
    }
  }
  if (arguments.positional.size() > count && !syntax.uses_varargs) {
    run_.Fail(absl::StrCat("macro '", syntax.name, "' takes at most ", count, " arguments"));
  }
  if (syntax.uses_caller && !has_caller) {
    frame_->Set(run_, "caller", run_.NewUndefined("no caller is defined"));
  }
  if (syntax.uses_kwargs) frame_->Set(run_, "kwargs", run_.NewDict(std::move(more)));
  if (syntax.uses_varargs) {
    frame_->Set(run_, "varargs",
                run_.NewList({arguments.positional.begin() + static_cast<int64_t>(bound),
                              arguments.positional.end()},
                             List::Form::kTuple));
  }
  const size_t without_default = count - syntax.defaults.size();
  for (size_t i = 0; i < count && !run_.failed(); ++i) {
    if (frame_->Find(syntax.parameters[i]) != nullptr) continue;
    Value value = i < without_default
                      ? run_.NewUndefined(
                            absl::StrCat("parameter '", syntax.parameters[i], "' was not provided"))
                      : Evaluate(*syntax.defaults[i - without_default]);
    frame_->Set(run_, syntax.parameters[i], std::move(value));
  }
}

Value Evaluator::CallMacro(const Macro& macro, const Arguments& arguments) {
  Scope scope(*this, macro.closure);
  BindMacro(macro, arguments);
  Output output(*this);
  if (!run_.failed()) Execute(macro.syntax->body);
  return run_.NewText(output.Take());
}

Value Evaluator::CallLoop(const Loop& loop, const Arguments& arguments) {
  const Parameters in(run_, "loop", arguments, {"iterable"}, 1);
  if (loop.syntax == nullptr) run_.Fail("the loop is not marked as recursive");
  if (run_.failed()) return {};
  // Copies, because the loop that runs changes nothing of this one.
  const Statement& syntax = *loop.syntax;
  const int depth = loop.depth + 1;
  Scope scope(*this, loop.outer);
  Output output(*this);
  ExecuteLoop(syntax, in[0], depth);
  return run_.NewText(output.Take());
}

}  // namespace pagoda::jinja
