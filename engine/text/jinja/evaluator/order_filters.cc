// Filters that compare the elements of lists and dicts.
#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "engine/text/jinja/evaluator/filters.h"
#include "engine/text/jinja/python/item_key.h"
#include "engine/text/jinja/values/compare.h"
#include "engine/text/jinja/values/iterate.h"

namespace pagoda::jinja {
namespace {

ItemKey::Case CaseOf(const Parameters& in, size_t i) {
  return in.Bool(i, false) ? ItemKey::Case::kAsIs : ItemKey::Case::kIgnored;
}

struct Keyed {
  Value key;
  Value item;
};

// False, with an error, if the two have no order.
bool Below(Run& run, const Value& left, const Value& right) {
  for (const Value* side : {&left, &right}) {
    if (side->IsUndefined()) run.Fail(side->reason());
  }
  const std::optional<std::partial_ordering> order = Order(run, left, right);
  if (!order.has_value()) {
    run.Fail(absl::StrCat("'", TypeName(left), "' and '", TypeName(right), "' have no order"));
  }
  return order == std::partial_ordering::less;
}

// Merges: unlike std::sort, it is safe with an order that is not one (NaN, or after an error).
void Sort(Run& run, std::vector<Keyed>& all, bool reversed) {
  std::vector<Keyed> other(all.size());
  for (size_t width = 1; width < all.size() && run.Work(); width *= 2) {
    for (size_t begin = 0; begin < all.size(); begin += 2 * width) {
      const size_t middle = std::min(begin + width, all.size());
      const size_t end = std::min(begin + 2 * width, all.size());
      size_t left = begin;
      size_t right = middle;
      for (size_t at = begin; at < end; ++at) {
        // Equal elements keep their order, also if it is reversed.
        const bool takes_right =
            left == middle ||
            (right < end && (reversed ? Below(run, all[left].key, all[right].key)
                                      : Below(run, all[right].key, all[left].key)));
        other[at] = std::move(takes_right ? all[right++] : all[left++]);
      }
    }
    all.swap(other);
  }
}

std::vector<Keyed> KeysOf(Run& run, const Value& value, const ItemKey& key) {
  std::vector<Keyed> all;
  const std::shared_ptr<const List> items = Iterate(run, value);
  if (!run.Holds(2 * items->items.size() * sizeof(Keyed))) return all;
  for (const Value& item : items->items) {
    if (run.failed()) return {};
    all.push_back({key.Of(item), item});
  }
  return all;
}

std::vector<Value> ItemsOf(std::vector<Keyed> all) {
  std::vector<Value> items;
  items.reserve(all.size());
  for (Keyed& keyed : all) items.push_back(std::move(keyed.item));
  return items;
}

// "a,b.c": by a, then by c of b.
Value SortBy(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  Run& run = evaluator.run();
  const Parameters in(run, "sort", arguments, {"reverse", "case_sensitive", "attribute"});
  std::vector<ItemKey> keys;
  if (in[2].IsText()) {
    for (const absl::string_view part : absl::StrSplit(in[2].bytes(), ',')) {
      keys.emplace_back(run, run.NewText(std::string(part)), CaseOf(in, 1));
    }
  } else {
    keys.emplace_back(run, in[2], CaseOf(in, 1));
  }
  std::vector<Keyed> all = KeysOf(run, value, ItemKey(run, Value(), ItemKey::Case::kAsIs));
  for (Keyed& keyed : all) {
    std::vector<Value> parts;
    for (const ItemKey& key : keys) parts.push_back(key.Of(keyed.item));
    keyed.key = run.NewList(std::move(parts));
    if (run.failed()) return {};
  }
  Sort(run, all, in.Bool(0, false));
  return run.NewList(ItemsOf(std::move(all)));
}

Value DictSort(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  Run& run = evaluator.run();
  const Parameters in(run, "dictsort", arguments, {"case_sensitive", "by", "reverse"});
  const std::string by = in.Text(1, "key");
  if (by != "key" && by != "value") run.Fail("dictsort: by must be key or value");
  if (!value.IsDict()) {
    run.Fail(value.IsUndefined() ? value.reason() : "dictsort: the value is not a dict");
    return {};
  }
  std::vector<Value> items;
  for (const auto& [key, element] : value.dict().entries) {
    if (run.failed()) return {};
    items.push_back(run.NewList({key, element}, List::Form::kTuple));
  }
  const ItemKey part(run, Value::OfInteger(by == "key" ? 0 : 1), CaseOf(in, 0));
  std::vector<Keyed> all = KeysOf(run, run.NewList(std::move(items)), part);
  Sort(run, all, in.Bool(2, false));
  return run.NewList(ItemsOf(std::move(all)));
}

Value Unique(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  Run& run = evaluator.run();
  const Parameters in(run, "unique", arguments, {"case_sensitive", "attribute"});
  Dict seen;
  std::vector<Value> items;
  for (Keyed& keyed : KeysOf(run, value, ItemKey(run, in[1], CaseOf(in, 0)))) {
    if (!IsHashable(run, keyed.key)) {
      run.Fail(absl::StrCat("unhashable type: '", TypeName(keyed.key), "'"));
    }
    if (run.failed()) return {};
    if (seen.Find(run, keyed.key) != nullptr) continue;
    seen.Set(run, std::move(keyed.key), Value::None());
    items.push_back(std::move(keyed.item));
  }
  return run.NewGenerator(std::move(items));
}

enum class End : uint8_t { kLeast, kGreatest };

template <End kEnd>
Value Extreme(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  Run& run = evaluator.run();
  const Parameters in(run, kEnd == End::kLeast ? "min" : "max", arguments,
                      {"case_sensitive", "attribute"});
  const std::vector<Keyed> all = KeysOf(run, value, ItemKey(run, in[1], CaseOf(in, 0)));
  if (all.empty()) return run.NewUndefined("No aggregated item, sequence was empty.");
  const Keyed* best = all.data();
  for (const Keyed& keyed : all) {
    if (&keyed == all.data()) continue;
    const bool better =
        kEnd == End::kLeast ? Below(run, keyed.key, best->key) : Below(run, best->key, keyed.key);
    if (better) best = &keyed;
  }
  return best->item;
}

Value GroupBy(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  Run& run = evaluator.run();
  const Parameters in(run, "groupby", arguments, {"attribute", "default", "case_sensitive"}, 1);
  ItemKey key(run, in[0], CaseOf(in, 2));
  ItemKey shown(run, in[0], ItemKey::Case::kAsIs);
  key.SetDefault(in[1]);
  shown.SetDefault(in[1]);
  std::vector<Keyed> all = KeysOf(run, value, key);
  Sort(run, all, /*reversed=*/false);
  std::vector<Value> groups;
  for (size_t begin = 0; begin < all.size() && run.Work();) {
    std::vector<Value> group;
    size_t end = begin;
    for (; end < all.size() && Equal(run, all[end].key, all[begin].key); ++end) {
      group.push_back(all[end].item);
    }
    if (end == begin) break;  // After an error, or NaN.
    groups.push_back(run.NewList({shown.Of(all[begin].item), run.NewList(std::move(group))},
                                 List::Form::kGroup));
    begin = end;
  }
  return run.NewList(std::move(groups));
}

}  // namespace

FilterTable OrderFilters() {
  static constexpr std::pair<absl::string_view, FilterCall> kFilters[] = {
      {"dictsort", DictSort},        {"groupby", GroupBy}, {"max", Extreme<End::kGreatest>},
      {"min", Extreme<End::kLeast>}, {"sort", SortBy},     {"unique", Unique}};
  return kFilters;
}

}  // namespace pagoda::jinja
