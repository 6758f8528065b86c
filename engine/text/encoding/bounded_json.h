// Untrusted JSON and its fields.
#ifndef PAGODA_ENGINE_TEXT_ENCODING_BOUNDED_JSON_H_
#define PAGODA_ENGINE_TEXT_ENCODING_BOUNDED_JSON_H_

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace pagoda {

// How deep the objects and arrays of a model's text files may be nested. The deepest valid
// structure is a template in a sequence of post-processors, at depth eight.
inline constexpr int kMaxJsonDepth = 16;

// Accepts at most `max_depth` nested objects and arrays, valid UTF-8, and nothing behind the value.
// Errors: INVALID_ARGUMENT, without a reason, because only the caller knows what the text is.
absl::StatusOr<nlohmann::json> ParseBoundedJson(absl::string_view text, int max_depth);

// Reads typed fields of an object and keeps the first error, so that a caller checks once, after
// its last field. A missing or null field has the value `otherwise`.
class JsonFields {
 public:
  // `object` outlives this. `path` names it in messages, for example "model". If it is not an
  // object, status() is an error from the start.
  JsonFields(const nlohmann::json& object, std::string path);

  bool Bool(const char* key, bool otherwise);
  std::string String(const char* key, const std::string& otherwise);
  uint64_t Number(const char* key, uint64_t otherwise);
  // The field itself; null if it is missing or null.
  const nlohmann::json* Find(const char* key) const;
  // The same, but a missing field is an error.
  const nlohmann::json* Require(const char* key);

  // Errors: INVALID_CHECKPOINT with the field's path.
  const absl::Status& status() const { return status_; }
  std::string PathOf(const char* key) const;

 private:
  void Complain(const char* key, absl::string_view wanted);

  const nlohmann::json& object_;
  const std::string path_;
  absl::Status status_;
};

// INVALID_CHECKPOINT with "tokenizer.json: " before `what`.
absl::Status BadTokenizer(absl::string_view what);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_TEXT_ENCODING_BOUNDED_JSON_H_
