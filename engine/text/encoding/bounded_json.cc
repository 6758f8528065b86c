#include "engine/text/encoding/bounded_json.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "engine/json/json_builder.h"

namespace pagoda {

absl::StatusOr<nlohmann::json> ParseBoundedJson(absl::string_view text, int max_depth) {
  absl::StatusOr<nlohmann::json> root =
      JsonBuilder<nlohmann::json>(static_cast<size_t>(max_depth)).Read(text);
  if (!root.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("JSON ", root.status().message()));
  }
  if (root->is_discarded()) return absl::InvalidArgumentError("not valid JSON");
  return root;
}

absl::Status BadTokenizer(absl::string_view what) {
  return MakeError(Reason::kInvalidCheckpoint, absl::StrCat("tokenizer.json: ", what));
}

JsonFields::JsonFields(const nlohmann::json& object, std::string path)
    : object_(object), path_(std::move(path)) {
  if (!object.is_object()) status_ = BadTokenizer(absl::StrCat(path_, " is not an object"));
}

std::string JsonFields::PathOf(const char* key) const {
  return path_.empty() ? key : absl::StrCat(path_, ".", key);
}

void JsonFields::Complain(const char* key, absl::string_view wanted) {
  status_.Update(BadTokenizer(absl::StrCat(PathOf(key), " is not a ", wanted)));
}

const nlohmann::json* JsonFields::Find(const char* key) const {
  if (!object_.is_object()) return nullptr;
  const auto field = object_.find(key);
  return field == object_.end() || field->is_null() ? nullptr : &*field;
}

const nlohmann::json* JsonFields::Require(const char* key) {
  const nlohmann::json* field = Find(key);
  if (field == nullptr) {
    status_.Update(BadTokenizer(absl::StrCat(PathOf(key), " is missing")));
  }
  return field;
}

bool JsonFields::Bool(const char* key, bool otherwise) {
  const nlohmann::json* field = Find(key);
  if (field == nullptr) return otherwise;
  if (field->is_boolean()) return field->get<bool>();
  Complain(key, "boolean");
  return otherwise;
}

std::string JsonFields::String(const char* key, const std::string& otherwise) {
  const nlohmann::json* field = Find(key);
  if (field == nullptr) return otherwise;
  if (field->is_string()) return field->get<std::string>();
  Complain(key, "string");
  return otherwise;
}

uint64_t JsonFields::Number(const char* key, uint64_t otherwise) {
  const nlohmann::json* field = Find(key);
  if (field == nullptr) return otherwise;
  if (field->is_number_unsigned()) return field->get<uint64_t>();
  Complain(key, "non-negative integer");
  return otherwise;
}

}  // namespace pagoda
