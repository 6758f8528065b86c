#include "engine/text/jinja/evaluator/globals.h"

#include <algorithm>
#include <ctime>
#include <iterator>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/text/encoding/utf8.h"
#include "engine/text/jinja/evaluator/evaluator.h"
#include "engine/text/jinja/python/python_text.h"
#include "engine/text/jinja/values/compare.h"
#include "engine/text/jinja/values/iterate.h"

namespace pagoda::jinja {
namespace {

// The sandbox's bound for range().
constexpr int64_t kMaxRange = 100'000;
constexpr size_t kMaxDateBytes = 4096;

Value Range(Evaluator& evaluator, const Arguments& arguments) {
  Run& run = evaluator.run();
  const Parameters in(run, "range", arguments, {"start", "stop", "step"}, 1);
  if (!arguments.named.empty()) run.Fail("range() takes no keyword arguments");
  const int64_t begin = in.Has(1) ? in.Integer(0, 0) : 0;
  const int64_t end = in.Has(1) ? in.Integer(1, 0) : in.Integer(0, 0);
  const int64_t step = in.Integer(2, 1);
  if (step == 0) run.Fail("range(): the step is zero");
  if (run.failed()) return {};
  // In 128 bits, because the parts can be as large as they like.
  const Integer distance = step > 0 ? Integer(end) - begin : Integer(begin) - end;
  const Integer stride = step > 0 ? Integer(step) : -Integer(step);
  const Integer count = distance <= 0 ? Integer(0) : (distance + stride - 1) / stride;
  if (count > kMaxRange) run.Fail(absl::StrCat("range(): more than ", kMaxRange, " elements"));
  if (run.failed() || !run.Holds(static_cast<uint64_t>(count) * sizeof(Value))) return {};
  std::vector<Value> items;
  for (Integer i = 0; i < count; ++i) items.push_back(Value::OfInteger(begin + i * step));
  auto* series = run.New<Series>();
  series->form = Series::Form::kRange;
  series->items = run.Share(std::move(items));
  series->name = step == 1 ? absl::StrCat("range(", begin, ", ", end, ")")
                           : absl::StrCat("range(", begin, ", ", end, ", ", step, ")");
  return Value(series);
}

// The entries that Python's dict(x) takes from x.
void AddEntries(Run& run, const Value& from, Dict& dict) {
  if (from.IsDict()) {
    for (const auto& [key, value] : from.dict().entries) dict.Set(run, key, value);
    return;
  }
  const std::shared_ptr<const List> pairs = Iterate(run, from);
  for (const Value& pair : pairs->items) {
    const std::shared_ptr<const List> parts = Iterate(run, pair);
    if (parts->items.size() != 2) run.Fail("dict(): an element is not a pair");
    if (!run.failed() && !IsHashable(run, parts->items[0])) {
      run.Fail(absl::StrCat("unhashable type: '", TypeName(parts->items[0]), "'"));
    }
    if (run.failed()) return;
    dict.Set(run, parts->items[0], parts->items[1]);
  }
}

std::shared_ptr<Dict> DictFrom(Run& run, const Arguments& arguments) {
  auto dict = std::make_shared<Dict>();
  if (arguments.positional.size() > 1) run.Fail("dict() takes at most 1 positional argument");
  for (const Value& from : arguments.positional) AddEntries(run, from, *dict);
  for (const auto& [name, value] : arguments.named) {
    if (run.failed()) break;
    dict->Set(run, run.NewText(name), value);
  }
  return dict;
}

Value MakeDict(Evaluator& evaluator, const Arguments& arguments) {
  return evaluator.run().NewDict(DictFrom(evaluator.run(), arguments));
}

Value MakeNamespace(Evaluator& evaluator, const Arguments& arguments) {
  Run& run = evaluator.run();
  const std::shared_ptr<Dict> dict = DictFrom(run, arguments);
  auto* space = run.New<Namespace>();
  for (const auto& [key, value] : dict->entries) {
    const std::string name = run.failed() ? "" : ToText(run, key);
    if (absl::StartsWith(name, "_"))
      run.Fail(absl::StrCat("cannot store the attribute '", name, "'"));
    space->fields.emplace_back(name, value);
  }
  return Value(space);
}

Value MakeCycler(Evaluator& evaluator, const Arguments& arguments) {
  Run& run = evaluator.run();
  if (!arguments.named.empty()) run.Fail("cycler() takes no keyword arguments");
  if (arguments.positional.empty()) run.Fail("at least one item has to be provided");
  if (run.failed()) return {};
  auto* cycler = run.New<Cycler>();
  cycler->items = arguments.positional;
  return Value(cycler);
}

Value MakeJoiner(Evaluator& evaluator, const Arguments& arguments) {
  Run& run = evaluator.run();
  const Parameters in(run, "joiner", arguments, {"sep"});
  auto* joiner = run.New<Joiner>();
  joiner->separator = in.Has(0) ? in[0] : run.NewText(", ");
  return Value(joiner);
}

Value RaiseException(Evaluator& evaluator, const Arguments& arguments) {
  Run& run = evaluator.run();
  const Parameters in(run, "raise_exception", arguments, {"message"}, 1);
  if (!run.failed()) run.Raise(ToText(run, in[0]));
  return {};
}

// Python's datetime.strftime of a time without a zone.
Value StrftimeNow(Evaluator& evaluator, const Arguments& arguments) {
  Run& run = evaluator.run();
  const Parameters in(run, "strftime_now", arguments, {"format"}, 1);
  // A marker, because strftime returns 0 for an empty text, too.
  std::string format = in.Text(0) + "|";
  if (absl::StrContains(format, '\0') || format.size() > kMaxDateBytes) {
    run.Fail("strftime_now(): bad format");
  }
  if (run.failed()) return {};
  std::string spaced;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] == '%' && i + 1 < format.size()) {
      const char letter = format[++i];
      if (letter == 'f') {
        spaced += "000000";
      } else if (letter != 'z' && letter != 'Z') {  // Those are empty without a zone.
        spaced += {'%', letter};
      }
    } else {
      spaced += format[i];
    }
  }
  const absl::CivilSecond now = evaluator.now();
  std::tm time = {};
  time.tm_year = static_cast<int>(now.year() - 1900);
  time.tm_mon = now.month() - 1;
  time.tm_mday = now.day();
  time.tm_hour = now.hour();
  time.tm_min = now.minute();
  time.tm_sec = now.second();
  time.tm_isdst = -1;
  const absl::CivilDay day(now);
  time.tm_yday = absl::GetYearDay(day) - 1;
  time.tm_wday = (static_cast<int>(absl::GetWeekday(day)) + 1) % 7;
  std::string text(kMaxDateBytes, '\0');
  const size_t size = std::strftime(text.data(), text.size(), spaced.c_str(), &time);
  text.resize(size);
  if (size == 0 || !IsUtf8(text)) run.Fail("strftime_now(): the text is too long");
  if (size > 0) text.pop_back();
  return run.NewText(std::move(text));
}

constexpr std::pair<absl::string_view, Function::Call> kGlobals[] = {
    {"cycler", MakeCycler},
    {"dict", MakeDict},
    {"joiner", MakeJoiner},
    {"namespace", MakeNamespace},
    {"raise_exception", RaiseException},
    {"range", Range},
    {"strftime_now", StrftimeNow}};

}  // namespace

Function::Call FindGlobal(absl::string_view name) {
  const auto* found = std::find_if(std::begin(kGlobals), std::end(kGlobals),
                                   [&](const auto& entry) { return entry.first == name; });
  return found == std::end(kGlobals) ? nullptr : found->second;
}

}  // namespace pagoda::jinja
