// The fields of a config.json, one by one.
#ifndef PAGODA_ENGINE_CHECKPOINT_FIELD_READER_H_
#define PAGODA_ENGINE_CHECKPOINT_FIELD_READER_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "absl/status/status.h"

namespace pagoda {

// Reads a JSON object's fields and keeps the first complaint, so that the reading itself stays a
// list: after a complaint every reading gives some value that can be computed with. Refers to the
// object. "Missing" is a field that is not there; null is a value of its own unless said otherwise.
class FieldReader {
 public:
  FieldReader(const nlohmann::json& object, std::string path)
      : object_(object), path_(std::move(path)), status_(&own_status_) {}
  FieldReader(const FieldReader&) = delete;
  FieldReader& operator=(const FieldReader&) = delete;

  // The object in a field, whose own fields are then called NAME.KEY, and which complains to this
  // reader. Refuses another value; then every field of it is missing.
  FieldReader Inside(const std::string& name);

  const absl::Status& status() const { return *status_; }
  const nlohmann::json& object() const { return object_; }

  // Null where it is missing.
  const nlohmann::json& Find(const std::string& name) const;
  bool IsMissing(const std::string& name) const { return !object_.contains(name); }
  bool IsNull(const std::string& name) const { return Find(name).is_null(); }  // Missing or null.

  // `wanted` completes "NAME is VALUE; it must be ...".
  void Refuse(const std::string& name, const std::string& wanted);

  // Integers from 1 to max.
  uint32_t Count(const std::string& name, uint32_t max);
  uint32_t CountOr(const std::string& name, uint32_t max, uint32_t where_missing);

  // Finite numbers above 0.
  float Positive(const std::string& name);
  float PositiveOr(const std::string& name, float where_missing);

  bool FlagOr(const std::string& name, bool where_missing);
  std::string TextOr(const std::string& name, const std::string& where_missing);

  // Options that are not run: anything but false; anything at all.
  void RefuseUnlessFalse(const std::string& name);
  void RefuseUnlessNull(const std::string& name, const std::string& why);

 private:
  FieldReader(const nlohmann::json& object, std::string path, std::string prefix,
              absl::Status* status)
      : object_(object), path_(std::move(path)), prefix_(std::move(prefix)), status_(status) {}

  const nlohmann::json& object_;
  const std::string path_;
  const std::string prefix_;
  absl::Status own_status_;
  absl::Status* const status_;  // The outermost reader's.
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_CHECKPOINT_FIELD_READER_H_
