#include "engine/checkpoint/config/gguf_fields.h"

#include <cmath>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/error.h"

namespace pagoda {
namespace {

// Completes "KEY ...".
std::string Describe(const GgufValue* value) {
  if (value == nullptr) return " is missing";
  if (const auto* integer = std::get_if<int64_t>(value)) return absl::StrCat(" is ", *integer);
  if (const auto* number = std::get_if<double>(value)) return absl::StrCat(" is ", *number);
  if (const auto* text = std::get_if<std::string>(value)) {
    return absl::StrCat(" is ", text->substr(0, 80));
  }
  return " is an array";
}

}  // namespace

GgufFields::GgufFields(const GgufFile& file, absl::string_view architecture)
    : file_(file), prefix_(absl::StrCat(architecture, ".")) {}

const GgufValue* GgufFields::Find(const std::string& key) const {
  const auto it = file_.metadata().find(prefix_ + key);
  return it == file_.metadata().end() ? nullptr : &it->second;
}

void GgufFields::Refuse(const std::string& key, absl::string_view wanted) {
  Complain(absl::StrCat(prefix_, key, Describe(Find(key)), "; it must be ", wanted));
}

void GgufFields::Complain(absl::string_view what) {
  if (!status_.ok()) return;
  status_ = MakeError(Reason::kInvalidCheckpoint, absl::StrCat(file_.path(), ": ", what));
}

uint32_t GgufFields::Count(const std::string& key, uint32_t max,
                           std::optional<uint32_t> where_missing) {
  const GgufValue* const value = Find(key);
  if (value == nullptr && where_missing.has_value()) return *where_missing;
  const int64_t* const integer = value == nullptr ? nullptr : std::get_if<int64_t>(value);
  if (integer != nullptr && *integer >= 1 && *integer <= int64_t{max}) {
    return static_cast<uint32_t>(*integer);
  }
  Refuse(key, absl::StrCat("an integer from 1 to ", max));
  return 1;
}

float GgufFields::Positive(const std::string& key, std::optional<float> where_missing) {
  const GgufValue* const value = Find(key);
  if (value == nullptr && where_missing.has_value()) return *where_missing;
  const double* const number = value == nullptr ? nullptr : std::get_if<double>(value);
  const float narrow = number == nullptr ? 0.0f : static_cast<float>(*number);
  if (narrow > 0 && std::isfinite(narrow)) return narrow;
  Refuse(key, "a positive number");
  return 1.0f;
}

float GgufFields::AtLeastOne(const std::string& key, std::optional<float> where_missing) {
  const float number = Positive(key, where_missing);
  if (number >= 1) return number;
  Refuse(key, "a number from 1 on");
  return 1.0f;
}

}  // namespace pagoda
