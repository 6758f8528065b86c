#include "engine/text/jinja/values/iterate.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "engine/text/encoding/utf8.h"
#include "engine/text/jinja/values/compare.h"

namespace pagoda::jinja {
namespace {

using Kind = Value::Kind;

std::shared_ptr<const List> ReadSeries(Run& run, Series& series) {
  const std::vector<Value>& all = series.items->items;
  if (series.form != Series::Form::kGenerator || series.next == 0) {
    if (series.form == Series::Form::kGenerator) series.next = all.size();
    return series.items;
  }
  std::vector<Value> rest(all.begin() + static_cast<int64_t>(series.next), all.end());
  series.next = all.size();
  return run.Share(std::move(rest));
}

}  // namespace

bool IsIterable(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kText:
    case Kind::kList:
    case Kind::kDict:
      return true;
    case Kind::kObject:
      return ObjectAs<Series>(value) != nullptr;
    default:
      return false;
  }
}

std::shared_ptr<const List> Iterate(Run& run, const Value& value) {
  std::vector<Value> items;
  switch (value.kind()) {
    case Kind::kList:
      if (run.failed()) break;
      return value.shared_list();
    case Kind::kText:
      if (!run.Holds(value.text().length * sizeof(Text))) break;
      for (absl::string_view rest = value.bytes(); !rest.empty() && !run.failed();) {
        const size_t size = ReadUtf8(rest).size;
        items.push_back(run.NewText(std::string(rest.substr(0, size))));
        rest.remove_prefix(size);
      }
      break;
    case Kind::kDict:
      for (const auto& [key, element] : value.dict().entries) items.push_back(key);
      break;
    case Kind::kUndefined:
      break;
    default:
      if (auto* series = ObjectAs<Series>(value); series != nullptr && !run.failed()) {
        return ReadSeries(run, *series);
      }
      run.Fail(absl::StrCat("'", TypeName(value), "' object is not iterable"));
  }
  return run.Share(std::move(items));
}

}  // namespace pagoda::jinja
