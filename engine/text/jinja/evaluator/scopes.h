// Parts of Evaluator that its files share.
#ifndef PAGODA_ENGINE_TEXT_JINJA_EVALUATOR_SCOPES_H_
#define PAGODA_ENGINE_TEXT_JINJA_EVALUATOR_SCOPES_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/text/jinja/evaluator/evaluator.h"

namespace pagoda::jinja {

// A scope within `outer`, while it lives.
class Evaluator::Scope {
 public:
  Scope(Evaluator& evaluator, std::shared_ptr<Frame> outer)
      : evaluator_(evaluator), before_(evaluator.frame_) {
    evaluator_.frame_ = std::make_shared<Frame>(evaluator_.run_, std::move(outer));
  }
  explicit Scope(Evaluator& evaluator) : Scope(evaluator, evaluator.frame_) {}
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
  ~Scope() { evaluator_.frame_ = std::move(before_); }

 private:
  Evaluator& evaluator_;
  std::shared_ptr<Frame> before_;
};

// Receives what statements write, while it lives. Its bytes count as memory of the run.
class Evaluator::Output {
 public:
  explicit Output(Evaluator& evaluator)
      : evaluator_(evaluator),
        before_(std::exchange(evaluator.output_, this)),
        charge_(&evaluator.run_.memory(), 0) {}
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;
  ~Output() { evaluator_.output_ = before_; }

  void Add(absl::string_view text) {
    Run& run = evaluator_.run_;
    if (!run.WorkOnBytes(text.size()) || !run.Holds(text.size())) return;
    if (text_.size() + text.size() > run.limits().output_bytes) {
      return run.Fail("the prompt becomes too long");
    }
    charge_.Add(text.size());
    absl::StrAppend(&text_, text);
  }
  std::string Take() { return std::move(text_); }

 private:
  Evaluator& evaluator_;
  Output* const before_;
  Charge charge_;
  std::string text_;
};

}  // namespace pagoda::jinja

#endif  // PAGODA_ENGINE_TEXT_JINJA_EVALUATOR_SCOPES_H_
