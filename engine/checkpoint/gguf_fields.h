// The metadata of a GGUF file, one by one.
#ifndef PAGODA_ENGINE_CHECKPOINT_GGUF_FIELDS_H_
#define PAGODA_ENGINE_CHECKPOINT_GGUF_FIELDS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "engine/checkpoint/gguf.h"

namespace pagoda {

// Reads an architecture's metadata, "llama.block_count", by the keys without the architecture, and
// keeps the first complaint, as FieldReader does. Refers to the file.
class GgufFields {
 public:
  GgufFields(const GgufFile& file, absl::string_view architecture);

  const absl::Status& status() const { return status_; }

  // Null where it is missing.
  const GgufValue* Find(const std::string& key) const;

  // `wanted` completes "KEY is VALUE; it must be ...".
  void Refuse(const std::string& key, absl::string_view wanted);
  // About something else than a key.
  void Complain(absl::string_view what);

  // An integer from 1 to max; where it is missing, the other or else a complaint.
  uint32_t Count(const std::string& key, uint32_t max, std::optional<uint32_t> where_missing = {});
  // A finite number above 0, likewise.
  float Positive(const std::string& key, std::optional<float> where_missing = {});

 private:
  const GgufFile& file_;
  const std::string prefix_;
  absl::Status status_;
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_CHECKPOINT_GGUF_FIELDS_H_
