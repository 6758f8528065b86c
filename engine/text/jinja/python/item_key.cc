#include "engine/text/jinja/python/item_key.h"

#include <algorithm>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "engine/text/jinja/python/attributes.h"
#include "engine/text/jinja/python/text_edit.h"

namespace pagoda::jinja {

ItemKey::ItemKey(Run& run, const Value& attribute, Case letters) : run_(run), case_(letters) {
  if (attribute.IsUndefined() || attribute.IsNone()) return;
  if (!attribute.IsText()) {
    path_.push_back(attribute);
    return;
  }
  for (const absl::string_view part : absl::StrSplit(attribute.bytes(), '.')) {
    int64_t number = 0;
    const bool is_number = std::all_of(part.begin(), part.end(), absl::ascii_isdigit) &&
                           absl::SimpleAtoi(part, &number);
    path_.push_back(is_number ? Value::OfInteger(number) : run.NewText(std::string(part)));
  }
}

Value ItemKey::Of(const Value& item) const {
  Value value = item;
  for (const Value& part : path_) {
    if (run_.failed()) return {};
    value = GetItem(run_, value, part);
    if (value.IsUndefined() && !default_.IsUndefined() && !default_.IsNone()) value = default_;
  }
  if (case_ == Case::kAsIs || !value.IsText()) return value;
  run_.WorkOnBytes(value.bytes().size());
  return run_.NewText(LowerCase(value.bytes()));
}

}  // namespace pagoda::jinja
