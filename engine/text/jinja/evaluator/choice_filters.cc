// Filters that apply other filters or tests to each element.
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/text/jinja/evaluator/filters.h"
#include "engine/text/jinja/python/item_key.h"
#include "engine/text/jinja/values/compare.h"
#include "engine/text/jinja/values/iterate.h"

namespace pagoda::jinja {
namespace {

enum class Keep : uint8_t { kPassing, kFailing };
enum class Of : uint8_t { kItem, kAttribute };

// The name of a filter or test among the arguments; the ones behind it are its own.
std::string NameAt(Run& run, const Arguments& arguments, size_t at, Arguments& own) {
  if (!arguments.positional[at].IsText()) {
    run.Fail(absl::StrCat("a filter or test has no name, but is a ",
                          TypeName(arguments.positional[at])));
    return "";
  }
  own.positional.assign(arguments.positional.begin() + static_cast<int64_t>(at) + 1,
                        arguments.positional.end());
  own.named = arguments.named;
  return arguments.positional[at].bytes();
}

template <Keep kKeep, Of kOf>
Value Choose(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  Run& run = evaluator.run();
  const size_t at = kOf == Of::kAttribute ? 1 : 0;  // The index of the test's name.
  if (!IsTrue(value)) return run.NewGenerator({});
  if (arguments.positional.size() < at) {
    run.Fail("the name of the attribute is missing");
    return {};
  }
  const ItemKey key(run, at == 1 ? arguments.positional[0] : Value(), ItemKey::Case::kAsIs);
  Arguments own;
  const bool has_test = arguments.positional.size() > at;
  const std::string test = has_test ? NameAt(run, arguments, at, own) : "";
  std::vector<Value> items;
  const std::shared_ptr<const List> all = Iterate(run, value);
  for (const Value& item : all->items) {
    if (!run.Work()) return {};
    const Value part = key.Of(item);
    const bool passes = has_test ? evaluator.Test(test, part, own) : IsTrue(part);
    if (passes == (kKeep == Keep::kPassing)) items.push_back(item);
  }
  return run.NewGenerator(std::move(items));
}

Value MapAttribute(Run& run, const Value& value, const Arguments& arguments) {
  const Parameters in(run, "map", arguments, {"attribute", "default"});
  ItemKey key(run, in[0], ItemKey::Case::kAsIs);
  key.SetDefault(in[1]);
  std::vector<Value> items;
  const std::shared_ptr<const List> all = Iterate(run, value);
  for (const Value& item : all->items) {
    if (!run.Work()) return {};
    items.push_back(key.Of(item));
  }
  return run.NewGenerator(std::move(items));
}

Value Map(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  Run& run = evaluator.run();
  if (!IsTrue(value)) return run.NewGenerator({});
  if (arguments.positional.empty()) {
    for (const auto& [name, argument] : arguments.named) {
      if (name == "attribute") return MapAttribute(run, value, arguments);
    }
    run.Fail("map requires a filter argument");
    return {};
  }
  Arguments own;
  const std::string filter = NameAt(run, arguments, 0, own);
  std::vector<Value> items;
  const std::shared_ptr<const List> all = Iterate(run, value);
  for (const Value& item : all->items) {
    if (!run.Work()) return {};
    items.push_back(evaluator.Filter(filter, item, own));
  }
  return run.NewGenerator(std::move(items));
}

}  // namespace

FilterTable ChoiceFilters() {
  static constexpr std::pair<absl::string_view, FilterCall> kFilters[] = {
      {"map", Map},
      {"reject", Choose<Keep::kFailing, Of::kItem>},
      {"rejectattr", Choose<Keep::kFailing, Of::kAttribute>},
      {"select", Choose<Keep::kPassing, Of::kItem>},
      {"selectattr", Choose<Keep::kPassing, Of::kAttribute>}};
  return kFilters;
}

}  // namespace pagoda::jinja
