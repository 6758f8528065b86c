// Reads the fields of a config.json, one by one.
#ifndef PAGODA_ENGINE_CHECKPOINT_CONFIG_FIELD_READER_H_
#define PAGODA_ENGINE_CHECKPOINT_CONFIG_FIELD_READER_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/status.h"

namespace pagoda {

// Reads a JSON object's fields and keeps the first complaint, so that the reading itself is a plain
// list. After a complaint, every field gets a value that can be computed with. Refers to the
// object. "Missing" means that the field is absent. null is not missing, unless a comment says so.
class FieldReader {
 public:
  FieldReader(const nlohmann::json& object, std::string path)
      : object_(object), path_(std::move(path)), status_(&own_status_) {}
  FieldReader(const FieldReader&) = delete;
  FieldReader& operator=(const FieldReader&) = delete;

  // The object in a field. It calls its fields NAME.KEY and complains to this reader. Refuses a
  // value that is no object; all its fields are then missing.
  FieldReader Inside(const std::string& name);

  const absl::Status& status() const { return *status_; }
  const nlohmann::json& object() const { return object_; }

  // Null if it is missing.
  const nlohmann::json& Find(const std::string& name) const;
  bool IsMissing(const std::string& name) const { return !object_.contains(name); }
  bool IsNull(const std::string& name) const { return Find(name).is_null(); }  // Missing or null.

  // `wanted` completes "NAME is VALUE; it must be ...".
  void Refuse(const std::string& name, const std::string& wanted);

  // Integers from 1 to max.
  uint32_t Count(const std::string& name, uint32_t max);
  uint32_t CountOr(const std::string& name, uint32_t max, uint32_t where_missing);

  // Finite numbers above 0, and from 1 on.
  float Positive(const std::string& name);
  float PositiveOr(const std::string& name, float where_missing);
  float AtLeastOne(const std::string& name);

  bool FlagOr(const std::string& name, bool where_missing);
  std::string TextOr(const std::string& name, const std::string& where_missing);

  // Unsupported options: refuses anything except false; refuses anything except null.
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

#endif  // PAGODA_ENGINE_CHECKPOINT_CONFIG_FIELD_READER_H_
