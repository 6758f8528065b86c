// JSON that is not trusted, and its fields.
#ifndef PAGODA_ENGINE_TEXT_BOUNDED_JSON_H_
#define PAGODA_ENGINE_TEXT_BOUNDED_JSON_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace pagoda {

// At most `max_depth` objects and arrays inside each other, valid UTF-8, and nothing behind it.
// Errors: INVALID_ARGUMENT, without a reason: who asks for the text knows what it is.
absl::StatusOr<nlohmann::json> ParseBoundedJson(absl::string_view text, int max_depth);

// Reads typed fields of an object and keeps the first thing that is wrong, so that a reader asks
// once, behind its last field. A field that is missing or null has the value `otherwise`.
class JsonFields {
 public:
  // `object` outlives it. `path` names it in messages: "model". No object: wrong from the start.
  JsonFields(const nlohmann::json& object, std::string path);

  bool Bool(const char* key, bool otherwise);
  std::string String(const char* key, const std::string& otherwise);
  uint64_t Number(const char* key, uint64_t otherwise);
  // The field itself; null where it is missing or null.
  const nlohmann::json* Find(const char* key) const;
  // The same, and wrong where it is not there.
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

// INVALID_CHECKPOINT: "tokenizer.json: " and what is wrong.
absl::Status BadTokenizer(absl::string_view what);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_TEXT_BOUNDED_JSON_H_
