#include "engine/text/jinja/evaluator/filters.h"

#include <algorithm>

namespace pagoda::jinja {

FilterCall FindFilter(absl::string_view name) {
  for (const FilterTable table :
       {TextFilters(), NumberFilters(), SequenceFilters(), OrderFilters(), ChoiceFilters()}) {
    const auto found = std::find_if(table.begin(), table.end(),
                                    [&](const auto& entry) { return entry.first == name; });
    if (found != table.end()) return found->second;
  }
  return nullptr;
}

}  // namespace pagoda::jinja
