// Reads a JSON object field by field.
#ifndef PAGODA_SERVER_OPENAI_API_FIELDS_H_
#define PAGODA_SERVER_OPENAI_API_FIELDS_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace pagoda::server {

// Keeps the first thing that is wrong, and remembers which fields were asked for, so that the
// others can be refused by name. A field that is null is not there. Thread-compatible.
class ApiFields {
 public:
  // `object`, which is one, outlives it.
  explicit ApiFields(const nlohmann::json& object) : object_(object) {}

  // Null where it is not there.
  const nlohmann::json* Find(const std::string& name);

  // Leave `out` as it is where the field is not there.
  void Read(const std::string& name, bool* out);
  void Read(const std::string& name, float* out);
  void Read(const std::string& name, std::string* out);
  void ReadInteger(const std::string& name, int64_t least, int64_t most, int64_t* out);

  // Changes nothing here.
  void Ignore(const std::string& name) { known_.insert(name); }
  // Refused unless it has the value that asks for nothing.
  void RefuseUnless(const std::string& name, const nlohmann::json& harmless);
  void Complain(const absl::Status& status) { status_.Update(status); }

  // What was wrong, or FIELD_NOT_SERVED for a field that nobody has asked for.
  absl::Status Finish();

 private:
  const nlohmann::json& object_;
  std::set<std::string> known_;
  absl::Status status_;
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_OPENAI_API_FIELDS_H_
