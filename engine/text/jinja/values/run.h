// The state of one rendering that every part of the evaluator needs: its limits, its first error,
// and the values that it makes.
#ifndef PAGODA_ENGINE_TEXT_JINJA_VALUES_RUN_H_
#define PAGODA_ENGINE_TEXT_JINJA_VALUES_RUN_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "engine/text/jinja/values/memory.h"
#include "engine/text/jinja/values/object.h"
#include "engine/text/jinja/values/render_limits.h"
#include "engine/text/jinja/values/value.h"

namespace pagoda::jinja {

// How deep lists and dicts can be within each other.
inline constexpr int kMaxValueDepth = 100;

// Invariants:
//  1. The first error is kept. After it, Work is false, and every loop ends; values that are
//     computed in the meantime have no meaning.
//  2. The memory of all values that this makes is within the limit.
// Thread-compatible. It outlives its values.
class Run {
 public:
  explicit Run(const RenderLimits& limits);
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  // Counts steps. False if the rendering has failed or has used up its steps or its time.
  bool Work(uint64_t steps = 1);
  // Counts the reading or writing of this number of bytes.
  bool WorkOnBytes(size_t bytes) { return Work(1 + bytes / 16); }
  bool failed() const { return !status_.ok(); }
  const absl::Status& status() const { return status_; }

  // INVALID_PROMPT, with the line.
  void Fail(absl::string_view what);
  // INVALID_CHECKPOINT: the template uses something that is not there.
  void FailTemplate(absl::string_view what);
  // INVALID_PROMPT: the template's input cannot be read.
  void Refuse(absl::string_view what);
  // INVALID_PROMPT with the template's own words.
  void Raise(absl::string_view message);

  // Whether a value of this size can be made. Fails if not.
  bool Holds(uint64_t bytes);
  Value NewText(std::string bytes, bool markup = false);
  Value NewList(std::vector<Value> items, List::Form form = List::Form::kList);
  Value NewDict(std::shared_ptr<Dict> dict);
  Value NewUndefined(std::string reason);
  std::shared_ptr<const List> Share(std::vector<Value> items, List::Form form = List::Form::kList);

  // An object that lives as long as this.
  template <typename T>
  T* New() {
    charge_.Add(Holds(kObjectBytes) ? kObjectBytes : 0);
    auto object = std::make_unique<T>();
    T* raw = object.get();
    objects_.push_back(std::move(object));
    return raw;
  }
  Value NewGenerator(std::vector<Value> items);

  const RenderLimits& limits() const { return limits_; }
  Memory& memory() { return memory_; }
  int line = 1;  // The line of the statement or expression that runs.

 private:
  static constexpr size_t kObjectBytes = 256;

  const RenderLimits limits_;
  const std::chrono::steady_clock::time_point deadline_;
  Memory memory_;
  Charge charge_;
  int64_t steps_left_;
  int64_t next_look_;  // At the clock.
  absl::Status status_;
  std::vector<std::unique_ptr<Object>> objects_;
};

// One level deeper, while it lives. Deeper than the limit is an error.
class Deeper {
 public:
  Deeper(Run& run, int& depth) : depth_(depth) {
    if (++depth_ > run.limits().depth) run.Fail("the template nests too deeply");
  }
  Deeper(const Deeper&) = delete;
  Deeper& operator=(const Deeper&) = delete;
  ~Deeper() { --depth_; }

 private:
  int& depth_;
};

}  // namespace pagoda::jinja

#endif  // PAGODA_ENGINE_TEXT_JINJA_VALUES_RUN_H_
