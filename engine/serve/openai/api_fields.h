// Reads a JSON object field by field.
#ifndef PAGODA_ENGINE_SERVE_OPENAI_API_FIELDS_H_
#define PAGODA_ENGINE_SERVE_OPENAI_API_FIELDS_H_

#include <cstdint>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "engine/serve/openai/api_reader.h"

namespace pagoda::server {

// Reads fields and keeps the first error. It remembers which fields were read, so that Finish can
// refuse the others by name. A field that is null counts as absent. Thread-compatible.
class ApiFields {
 public:
  // `object` must be a JSON object and outlive this one.
  explicit ApiFields(const ApiJson& object) : object_(object) {}

  // Null if the field is absent.
  const ApiJson* Find(const std::string& name);

  // These leave `out` unchanged if the field is absent.
  void Read(const std::string& name, bool* out);
  void Read(const std::string& name, float* out);
  void Read(const std::string& name, std::string* out);
  void ReadInteger(const std::string& name, int64_t least, int64_t most, int64_t* out);

  // Accepts the field without effect.
  void Ignore(const std::string& name) { known_.insert(name); }
  // Refuses the field unless it has the value `harmless`, which asks for nothing.
  void RefuseUnless(const std::string& name, const ApiJson& harmless);
  void Complain(const absl::Status& status) { status_.Update(status); }

  // The first error; FIELD_NOT_SERVED for a field that was not read.
  absl::Status Finish();

 private:
  const ApiJson& object_;
  std::set<std::string> known_;
  absl::Status status_;
};

}  // namespace pagoda::server

#endif  // PAGODA_ENGINE_SERVE_OPENAI_API_FIELDS_H_
