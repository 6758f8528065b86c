#include "engine/text/jinja/values/run.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/error.h"

namespace pagoda::jinja {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kStepsBetweenLooks = 2048;
// The memory of a value in addition to its content.
constexpr size_t kTextBytes = sizeof(Text) + 32;
constexpr size_t kListBytes = sizeof(List) + 32;
constexpr size_t kDictBytes = sizeof(Dict) + 64;
constexpr size_t kEntryBytes = 2 * sizeof(Value) + 48;

}  // namespace

Run::Run(const RenderLimits& limits)
    : limits_(limits),
      deadline_(Clock::now() + absl::ToChronoNanoseconds(limits.time)),
      memory_(limits.memory_bytes),
      charge_(&memory_, 0),
      steps_left_(limits.steps),
      next_look_(limits.steps) {}

bool Run::Work(uint64_t steps) {
  if (failed()) return false;
  steps_left_ -= static_cast<int64_t>(std::min<uint64_t>(steps, INT64_MAX / 4));
  if (steps_left_ < 0) {
    Fail("the template takes too many steps");
    return false;
  }
  if (steps_left_ <= next_look_) {
    next_look_ = steps_left_ - kStepsBetweenLooks;
    if (Clock::now() > deadline_) Fail("the template takes too long");
  }
  return !failed();
}

void Run::Fail(absl::string_view what) {
  if (failed()) return;
  status_ = MakeError(
      Reason::kInvalidPrompt,
      absl::StrCat("the chat template fails on this conversation, in line ", line, ": ", what));
}

void Run::FailTemplate(absl::string_view what) {
  if (failed()) return;
  status_ = MakeError(Reason::kInvalidCheckpoint,
                      absl::StrCat("the chat template is not usable, in line ", line, ": ", what));
}

void Run::Refuse(absl::string_view what) {
  if (failed()) return;
  status_ = MakeError(Reason::kInvalidPrompt, std::string(what));
}

void Run::Raise(absl::string_view message) {
  if (failed()) return;
  status_ = MakeError(
      Reason::kInvalidPrompt,
      absl::StrCat("the chat template refuses this conversation, in line ", line, ": ", message));
}

bool Run::Holds(uint64_t bytes) {
  if (failed()) return false;
  if (memory_.Fits(bytes)) return true;
  Fail("the template takes too much memory");
  return false;
}

Value Run::NewText(std::string bytes, bool markup) {
  const size_t size = bytes.size() + kTextBytes;
  if (!WorkOnBytes(bytes.size()) || !Holds(size)) return {};
  auto text = std::make_shared<Text>();
  text->length = CountCharacters(bytes);
  text->bytes = std::move(bytes);
  text->markup = markup;
  text->charge = Charge(&memory_, size);
  return Value(std::shared_ptr<const Text>(std::move(text)));
}

std::shared_ptr<const List> Run::Share(std::vector<Value> items, List::Form form) {
  const size_t size = items.size() * sizeof(Value) + kListBytes;
  auto list = std::make_shared<List>();
  list->form = form;
  if (!Work(1 + items.size() / 4) || !Holds(size)) return list;
  for (const Value& item : items) list->depth = std::max(list->depth, item.depth() + 1);
  if (list->depth > kMaxValueDepth) {
    Fail("lists nest too deeply");
    return std::make_shared<List>();
  }
  list->items = std::move(items);
  list->charge = Charge(&memory_, size);
  return list;
}

Value Run::NewList(std::vector<Value> items, List::Form form) {
  return Value(Share(std::move(items), form));
}

Value Run::NewDict(std::shared_ptr<Dict> dict) {
  const size_t size = dict->entries.size() * kEntryBytes + kDictBytes;
  if (!Work(1 + dict->entries.size() / 4) || !Holds(size)) return {};
  for (const auto& [key, value] : dict->entries) {
    dict->depth = std::max({dict->depth, key.depth() + 1, value.depth() + 1});
  }
  if (dict->depth > kMaxValueDepth) {
    Fail("dicts nest too deeply");
    return {};
  }
  dict->charge = Charge(&memory_, size);
  return Value(std::shared_ptr<const Dict>(std::move(dict)));
}

Value Run::NewUndefined(std::string reason) {
  if (failed()) return {};
  return Value(std::make_shared<const Missing>(Missing{std::move(reason)}));
}

Value Run::NewGenerator(std::vector<Value> items) {
  auto* series = New<Series>();
  series->items = Share(std::move(items));
  return Value(series);
}

}  // namespace pagoda::jinja
