#include "engine/serve/openai/api_fields.h"

#include "absl/strings/str_cat.h"
#include "engine/serve/openai/api_error.h"

namespace pagoda::server {

const ApiJson* ApiFields::Find(const std::string& name) {
  known_.insert(name);
  const auto field = object_.find(name);
  return field == object_.end() || field->is_null() ? nullptr : &*field;
}

void ApiFields::Read(const std::string& name, bool* out) {
  const ApiJson* field = Find(name);
  if (field == nullptr) return;
  if (!field->is_boolean()) return Complain(BadField(name, "is not true or false"));
  *out = field->get<bool>();
}

void ApiFields::Read(const std::string& name, float* out) {
  const ApiJson* field = Find(name);
  if (field == nullptr) return;
  if (!field->is_number()) return Complain(BadField(name, "is not a number"));
  *out = field->get<float>();
}

void ApiFields::Read(const std::string& name, std::string* out) {
  const ApiJson* field = Find(name);
  if (field == nullptr) return;
  if (!field->is_string()) return Complain(BadField(name, "is not a string"));
  *out = field->get<std::string>();
}

void ApiFields::ReadInteger(const std::string& name, int64_t least, int64_t most, int64_t* out) {
  const ApiJson* field = Find(name);
  if (field == nullptr) return;
  // A number above the range of int64_t is unsigned, or not an integer.
  const bool fits = field->is_number_integer() &&
                    (!field->is_number_unsigned() || field->get<uint64_t>() <= uint64_t{INT64_MAX});
  if (!fits || field->get<int64_t>() < least || field->get<int64_t>() > most) {
    return Complain(
        BadField(name, absl::StrCat("is not a whole number from ", least, " to ", most)));
  }
  *out = field->get<int64_t>();
}

void ApiFields::RefuseUnless(const std::string& name, const ApiJson& harmless) {
  const ApiJson* field = Find(name);
  if (field != nullptr && *field != harmless) Complain(FieldNotServed(name));
}

absl::Status ApiFields::Finish() {
  for (const auto& [name, value] : object_.items()) {
    if (!known_.contains(name)) Complain(FieldNotServed(name.substr(0, 80), "is not supported"));
  }
  return status_;
}

}  // namespace pagoda::server
