// Filters of lists and dicts that keep the order of the elements.
#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/text/jinja/evaluator/filters.h"
#include "engine/text/jinja/python/attributes.h"
#include "engine/text/jinja/python/item_key.h"
#include "engine/text/jinja/python/operators.h"
#include "engine/text/jinja/python/python_text.h"
#include "engine/text/jinja/values/compare.h"
#include "engine/text/jinja/values/iterate.h"

namespace pagoda::jinja {
namespace {

Value Length(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  Run& run = evaluator.run();
  const Parameters in(run, "length", arguments, {});
  size_t length = 0;
  if (!LengthOf(value, &length)) {
    run.Fail(absl::StrCat("object of type '", TypeName(value), "' has no length"));
  }
  return Value::OfInteger(length);
}

Value ListOf(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  Run& run = evaluator.run();
  const Parameters in(run, "list", arguments, {});
  return run.NewList(Iterate(run, value)->items);
}

// The first element of a generator is read, the others are not.
Value FirstItem(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  Run& run = evaluator.run();
  const Parameters in(run, "first", arguments, {});
  auto* series = ObjectAs<Series>(value);
  if (series != nullptr && series->form == Series::Form::kGenerator) {
    const std::vector<Value>& items = series->items->items;
    if (series->next < items.size()) return items[series->next++];
  } else if (value.IsText() && !value.bytes().empty()) {
    return run.NewText(std::string(CharacterAt(value.text(), 0)));
  } else if (const auto items = Iterate(run, value); !items->items.empty()) {
    return items->items.front();
  }
  return run.NewUndefined("No first item, sequence was empty.");
}

bool IsReversible(const Value& value) {
  const auto* series = ObjectAs<Series>(value);
  return IsIterable(value) && (series == nullptr || series->form != Series::Form::kGenerator);
}

Value LastItem(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  Run& run = evaluator.run();
  const Parameters in(run, "last", arguments, {});
  if (!IsReversible(value)) {
    run.Fail(absl::StrCat("last: '", TypeName(value), "' object is not reversible"));
    return {};
  }
  const std::shared_ptr<const List> items = Iterate(run, value);
  if (!items->items.empty()) return items->items.back();
  return run.NewUndefined("No last item, sequence was empty.");
}

Value Reverse(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  Run& run = evaluator.run();
  const Parameters in(run, "reverse", arguments, {});
  if (value.IsText()) {
    return GetSlice(run, value, Value::None(), Value::None(), Value::OfInteger(-1));
  }
  std::vector<Value> items = Iterate(run, value)->items;
  std::reverse(items.begin(), items.end());
  return IsReversible(value) ? run.NewGenerator(std::move(items)) : run.NewList(std::move(items));
}

Value Join(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  Run& run = evaluator.run();
  const Parameters in(run, "join", arguments, {"d", "attribute"});
  const std::string between = in.Has(0) ? ToText(run, in[0]) : "";
  const ItemKey key(run, in[1], ItemKey::Case::kAsIs);
  const std::shared_ptr<const List> items = Iterate(run, value);
  std::string out;
  for (size_t i = 0; i < items->items.size() && run.Work(); ++i) {
    const std::string text = ToText(run, key.Of(items->items[i]));
    if (!run.Holds(out.size() + between.size() + text.size())) break;
    absl::StrAppend(&out, i > 0 ? between : "", text);
  }
  return run.NewText(std::move(out));
}

Value Items(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  Run& run = evaluator.run();
  const Parameters in(run, "items", arguments, {});
  std::vector<Value> items;
  if (value.IsDict()) {
    for (const auto& [key, element] : value.dict().entries) {
      if (run.failed()) break;
      items.push_back(run.NewList({key, element}, List::Form::kTuple));
    }
  } else if (!value.IsUndefined()) {
    run.Fail("items: can only get item pairs from a mapping");
  }
  return run.NewGenerator(std::move(items));
}

Value Attr(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  Run& run = evaluator.run();
  const Parameters in(run, "attr", arguments, {"name"}, 1);
  const std::string name = ToText(run, in[0]);
  // Unlike value.name, this does not find items.
  if (value.IsDict() && !HasMethod(value, name)) {
    return run.NewUndefined(absl::StrCat("'dict object' has no attribute '", name, "'"));
  }
  return GetAttribute(run, value, name);
}

// A positive number of columns or lines.
size_t CountOf(Run& run, const Parameters& in, const char* filter) {
  const int64_t count = in.Integer(0, 0);
  if (count <= 0 || count > 100'000)
    run.Fail(absl::StrCat(filter, ": the number is too small or large"));
  return static_cast<size_t>(std::clamp<int64_t>(count, 1, 100'000));
}

Value Batch(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  Run& run = evaluator.run();
  const Parameters in(run, "batch", arguments, {"linecount", "fill_with"}, 1);
  const size_t count = CountOf(run, in, "batch");
  const std::shared_ptr<const List> items = Iterate(run, value);
  const std::vector<Value>& all = items->items;
  std::vector<Value> lines;
  for (size_t at = 0; at < all.size() && run.Work(); at += count) {
    const size_t end = std::min(at + count, all.size());
    std::vector<Value> line(all.begin() + static_cast<int64_t>(at),
                            all.begin() + static_cast<int64_t>(end));
    if (in.Has(1) && !in[1].IsNone()) line.resize(count, in[1]);
    lines.push_back(run.NewList(std::move(line)));
  }
  return run.NewGenerator(std::move(lines));
}

Value Slice(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  Run& run = evaluator.run();
  const Parameters in(run, "slice", arguments, {"slices", "fill_with"}, 1);
  const size_t count = CountOf(run, in, "slice");
  const std::shared_ptr<const List> all = Iterate(run, value);
  const size_t per = all->items.size() / count;
  const size_t with_extra = all->items.size() % count;
  std::vector<Value> columns;
  auto begin = all->items.begin();
  for (size_t i = 0; i < count && run.Work(); ++i) {
    const auto end = begin + static_cast<int64_t>(per + (i < with_extra ? 1 : 0));
    std::vector<Value> column(begin, end);
    if (in.Has(1) && !in[1].IsNone() && i >= with_extra) column.push_back(in[1]);
    columns.push_back(run.NewList(std::move(column)));
    begin = end;
  }
  return run.NewGenerator(std::move(columns));
}

Value Sum(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  Run& run = evaluator.run();
  const Parameters in(run, "sum", arguments, {"attribute", "start"});
  const ItemKey key(run, in[0], ItemKey::Case::kAsIs);
  Value sum = in.Has(1) ? in[1] : Value::OfInteger(0);
  if (sum.IsText()) run.Fail("sum: cannot sum strings");
  const std::shared_ptr<const List> items = Iterate(run, value);
  for (const Value& item : items->items) {
    const Value part = key.Of(item);
    if (run.failed()) return {};
    sum = Calculate(run, Operator::kAdd, sum, part);
  }
  return sum;
}

}  // namespace

FilterTable SequenceFilters() {
  static constexpr std::pair<absl::string_view, FilterCall> kFilters[] = {
      {"attr", Attr},   {"batch", Batch},     {"count", Length},  {"first", FirstItem},
      {"items", Items}, {"join", Join},       {"last", LastItem}, {"length", Length},
      {"list", ListOf}, {"reverse", Reverse}, {"slice", Slice},   {"sum", Sum}};
  return kFilters;
}

}  // namespace pagoda::jinja
