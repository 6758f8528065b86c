#include "engine/checkpoint/config/field_reader.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/error.h"

namespace pagoda {

using nlohmann::json;

FieldReader FieldReader::Inside(const std::string& name) {
  static const json kEmpty = json::object();
  const json& value = Find(name);
  if (!value.is_object()) Refuse(name, "an object");
  return FieldReader(value.is_object() ? value : kEmpty, path_, absl::StrCat(prefix_, name, "."),
                     status_);
}

const json& FieldReader::Find(const std::string& name) const {
  static const json kNull;
  const auto it = object_.find(name);
  return it == object_.end() ? kNull : *it;
}

void FieldReader::Refuse(const std::string& name, const std::string& wanted) {
  if (!status_->ok()) return;
  const json& value = Find(name);
  std::string what = " is not a plain value";
  if (IsMissing(name)) what = " is missing";
  if (value.is_primitive() && !IsMissing(name)) {
    // Names and texts can have any bytes.
    what = absl::StrCat(" is ",
                        value.dump(-1, ' ', false, json::error_handler_t::replace).substr(0, 80));
  }
  *status_ = MakeError(Reason::kInvalidCheckpoint,
                       absl::StrCat(path_, ": ", prefix_, name, what, "; it must be ", wanted));
}

uint32_t FieldReader::Count(const std::string& name, uint32_t max) {
  const json& value = Find(name);
  if (value.is_number_unsigned() && value.get<uint64_t>() >= 1 && value.get<uint64_t>() <= max) {
    return value.get<uint32_t>();
  }
  Refuse(name, absl::StrCat("an integer from 1 to ", max));
  return 1;
}

uint32_t FieldReader::CountOr(const std::string& name, uint32_t max, uint32_t where_missing) {
  return IsMissing(name) ? where_missing : Count(name, max);
}

float FieldReader::Positive(const std::string& name) {
  const json& value = Find(name);
  const float number = value.is_number() ? value.get<float>() : 0.0f;
  if (number > 0 && std::isfinite(number)) return number;
  Refuse(name, "a positive number");
  return 1.0f;
}

float FieldReader::PositiveOr(const std::string& name, float where_missing) {
  return IsMissing(name) ? where_missing : Positive(name);
}

float FieldReader::AtLeastOne(const std::string& name) {
  const json& value = Find(name);
  const float number = value.is_number() ? value.get<float>() : 0.0f;
  if (number >= 1 && std::isfinite(number)) return number;
  Refuse(name, "a number from 1 on");
  return 1.0f;
}

bool FieldReader::FlagOr(const std::string& name, bool where_missing) {
  if (IsMissing(name)) return where_missing;
  const json& value = Find(name);
  if (!value.is_boolean()) Refuse(name, "true or false");
  return value.is_boolean() && value.get<bool>();
}

std::string FieldReader::TextOr(const std::string& name, const std::string& where_missing) {
  if (IsMissing(name)) return where_missing;
  const json& value = Find(name);
  if (!value.is_string()) Refuse(name, "a text");
  return value.is_string() ? value.get<std::string>() : "";
}

void FieldReader::RefuseUnlessFalse(const std::string& name) {
  if (!IsNull(name) && Find(name) != false) Refuse(name, "false; other values are not supported");
}

void FieldReader::RefuseUnlessNull(const std::string& name, const std::string& why) {
  if (!IsNull(name)) Refuse(name, absl::StrCat("absent: ", why));
}

}  // namespace pagoda
