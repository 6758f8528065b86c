// The methods of lists, dicts, numbers and of Jinja's own objects.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "engine/text/jinja/python/methods.h"
#include "engine/text/jinja/python/python_text.h"
#include "engine/text/jinja/values/compare.h"

namespace pagoda::jinja {
namespace {

Value CountItems(Run& run, const Value& self, const Arguments& arguments) {
  const Parameters in(run, "count", arguments, {"value"}, 1);
  const std::vector<Value>& items = self.list().items;
  return Value::OfInteger(std::count_if(
      items.begin(), items.end(), [&](const Value& item) { return Equal(run, item, in[0]); }));
}

Value IndexOfItem(Run& run, const Value& self, const Arguments& arguments) {
  const Parameters in(run, "index", arguments, {"value"}, 1);
  const std::vector<Value>& items = self.list().items;
  const auto found = std::find_if(items.begin(), items.end(),
                                  [&](const Value& item) { return Equal(run, item, in[0]); });
  if (found == items.end()) run.Fail("index(): the value is not in the list");
  return Value::OfInteger(found - items.begin());
}

Value CopyOf(Run& run, const Value& self, const Arguments& arguments) {
  const Parameters in(run, "copy", arguments, {});
  return self;
}

Value Get(Run& run, const Value& self, const Arguments& arguments) {
  if (!arguments.named.empty()) run.Fail("get() takes no keyword arguments");
  const Parameters in(run, "get", arguments, {"key", "default"}, 1);
  if (run.failed()) return {};
  if (!IsHashable(run, in[0])) run.Fail(absl::StrCat("unhashable type: '", TypeName(in[0]), "'"));
  if (const Value* found = self.dict().Find(run, in[0])) return *found;
  return in.Has(1) ? in[1] : Value::None();
}

Value View(Run& run, Series::Form form, std::vector<Value> items) {
  auto* series = run.New<Series>();
  series->form = form;
  series->items = run.Share(std::move(items));
  return Value(series);
}

Value Keys(Run& run, const Value& self, const Arguments& arguments) {
  const Parameters in(run, "keys", arguments, {});
  std::vector<Value> items;
  for (const auto& [key, value] : self.dict().entries) items.push_back(key);
  return View(run, Series::Form::kKeys, std::move(items));
}

Value Values(Run& run, const Value& self, const Arguments& arguments) {
  const Parameters in(run, "values", arguments, {});
  std::vector<Value> items;
  for (const auto& [key, value] : self.dict().entries) items.push_back(value);
  return View(run, Series::Form::kValues, std::move(items));
}

Value DictItems(Run& run, const Value& self, const Arguments& arguments) {
  const Parameters in(run, "items", arguments, {});
  std::vector<Value> items;
  for (const auto& [key, value] : self.dict().entries) {
    if (run.failed()) break;
    items.push_back(run.NewList({key, value}, List::Form::kTuple));
  }
  return View(run, Series::Form::kItems, std::move(items));
}

Value IsIntegral(Run& run, const Value& self, const Arguments& arguments) {
  const Parameters in(run, "is_integer", arguments, {});
  return Value::Of(self.IsWhole() || std::floor(self.real()) == self.real());
}

Value BitLength(Run& run, const Value& self, const Arguments& arguments) {
  const Parameters in(run, "bit_length", arguments, {});
  if (!self.IsWhole()) run.Fail("a float has no bit_length()");
  int bits = 0;
  for (Integer rest = self.IsWhole() ? self.whole() : 0; rest != 0; rest /= 2) ++bits;
  return Value::OfInteger(bits);
}

Value Cycle(Run& run, const Value& self, const Arguments& arguments) {
  if (arguments.positional.empty()) run.Fail("no items for cycling given");
  if (run.failed()) return {};
  return arguments.positional[ObjectAs<Loop>(self)->index % arguments.positional.size()];
}

Value Changed(Run& run, const Value& self, const Arguments& arguments) {
  auto* loop = ObjectAs<Loop>(self);
  Value now = run.NewList(arguments.positional, List::Form::kTuple);
  const bool changed = !loop->has_changed_once || !Equal(run, loop->last_changed, now);
  loop->has_changed_once = true;
  loop->last_changed = std::move(now);
  return Value::Of(changed);
}

Value NextItem(Run& run, const Value& self, const Arguments& arguments) {
  const Parameters in(run, "next", arguments, {});
  auto* cycler = ObjectAs<Cycler>(self);
  const Value item = cycler->items[cycler->next];
  cycler->next = (cycler->next + 1) % cycler->items.size();
  return item;
}

Value Reset(Run& run, const Value& self, const Arguments& arguments) {
  const Parameters in(run, "reset", arguments, {});
  ObjectAs<Cycler>(self)->next = 0;
  return Value::None();
}

}  // namespace

MethodTable ListMethods() {
  static constexpr std::pair<absl::string_view, MethodCall> kMethods[] = {
      {"copy", CopyOf}, {"count", CountItems}, {"index", IndexOfItem}};
  return kMethods;
}

MethodTable DictMethods() {
  static constexpr std::pair<absl::string_view, MethodCall> kMethods[] = {
      {"copy", CopyOf}, {"get", Get}, {"items", DictItems}, {"keys", Keys}, {"values", Values}};
  return kMethods;
}

MethodTable NumberMethods() {
  static constexpr std::pair<absl::string_view, MethodCall> kMethods[] = {
      {"bit_length", BitLength}, {"is_integer", IsIntegral}};
  return kMethods;
}

MethodTable LoopMethods() {
  static constexpr std::pair<absl::string_view, MethodCall> kMethods[] = {{"changed", Changed},
                                                                          {"cycle", Cycle}};
  return kMethods;
}

MethodTable CyclerMethods() {
  static constexpr std::pair<absl::string_view, MethodCall> kMethods[] = {{"next", NextItem},
                                                                          {"reset", Reset}};
  return kMethods;
}

MethodCall FindMethod(const Value& value, absl::string_view name) {
  const auto find = [&](MethodTable table) -> MethodCall {
    const auto found = std::find_if(table.begin(), table.end(),
                                    [&](const auto& entry) { return entry.first == name; });
    return found == table.end() ? nullptr : found->second;
  };
  if (value.IsText()) {
    MethodCall call = find(TextMethods());
    return call != nullptr ? call : find(TextCaseMethods());
  }
  if (value.IsTuple()) return name == "copy" ? nullptr : find(ListMethods());
  if (value.IsList()) return find(ListMethods());
  if (value.IsDict()) return find(DictMethods());
  if (value.IsNumber()) return find(NumberMethods());
  if (ObjectAs<Loop>(value) != nullptr) return find(LoopMethods());
  if (ObjectAs<Cycler>(value) != nullptr) return find(CyclerMethods());
  return nullptr;
}

}  // namespace pagoda::jinja
