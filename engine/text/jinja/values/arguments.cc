#include "engine/text/jinja/values/arguments.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/text/jinja/values/compare.h"

namespace pagoda::jinja {

Parameters::Parameters(Run& run, absl::string_view function, const Arguments& arguments,
                       std::initializer_list<const char*> names, size_t required)
    : run_(run), function_(function), names_(names), values_(names.size(), nullptr) {
  if (arguments.positional.size() > names_.size()) {
    run_.Fail(absl::StrCat(function_, "() takes at most ", names_.size(), " arguments"));
  }
  for (size_t i = 0; i < std::min(names_.size(), arguments.positional.size()); ++i) {
    values_[i] = &arguments.positional[i];
  }
  for (const auto& [name, value] : arguments.named) {
    const auto found = std::find(names_.begin(), names_.end(), name);
    if (found == names_.end()) {
      run_.Fail(absl::StrCat(function_, "() has no parameter '", name, "'"));
      continue;
    }
    const Value*& place = values_[static_cast<size_t>(found - names_.begin())];
    if (place != nullptr) run_.Fail(absl::StrCat(function_, "() gets '", name, "' twice"));
    place = &value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (!Has(i)) run_.Fail(absl::StrCat(function_, "() needs '", names_[i], "'"));
  }
}

bool Parameters::Bool(size_t i, bool otherwise) const {
  return Has(i) ? IsTrue(*values_[i]) : otherwise;
}

int64_t Parameters::Integer(size_t i, int64_t otherwise) const {
  if (!Has(i)) return otherwise;
  if (values_[i]->IsWhole()) {
    const pagoda::jinja::Integer value = values_[i]->whole();
    return static_cast<int64_t>(std::clamp<pagoda::jinja::Integer>(value, INT64_MIN, INT64_MAX));
  }
  run_.Fail(absl::StrCat(function_, "(): '", names_[i], "' is a ", TypeName(*values_[i]),
                         " and not an integer"));
  return otherwise;
}

std::string Parameters::Text(size_t i, absl::string_view otherwise) const {
  if (!Has(i)) return std::string(otherwise);
  if (values_[i]->IsText()) return values_[i]->bytes();
  run_.Fail(absl::StrCat(function_, "(): '", names_[i], "' is a ", TypeName(*values_[i]),
                         " and not a string"));
  return std::string(otherwise);
}

}  // namespace pagoda::jinja
