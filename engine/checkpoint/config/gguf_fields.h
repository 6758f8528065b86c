// Reads the metadata of a GGUF file, key by key.
#ifndef PAGODA_ENGINE_CHECKPOINT_CONFIG_GGUF_FIELDS_H_
#define PAGODA_ENGINE_CHECKPOINT_CONFIG_GGUF_FIELDS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "engine/checkpoint/gguf/gguf.h"

namespace pagoda {

// Reads an architecture's metadata (for example "llama.block_count") by keys without the
// architecture. Keeps the first complaint, as FieldReader does. Refers to the file.
class GgufFields {
 public:
  GgufFields(const GgufFile& file, absl::string_view architecture);

  const absl::Status& status() const { return status_; }

  // Null if it is missing.
  const GgufValue* Find(const std::string& key) const;

  // `wanted` completes "KEY is VALUE; it must be ...".
  void Refuse(const std::string& key, absl::string_view wanted);
  // A complaint that is not about a key.
  void Complain(absl::string_view what);

  // An integer from 1 to max. If it is missing: where_missing, or a complaint without one.
  uint32_t Count(const std::string& key, uint32_t max, std::optional<uint32_t> where_missing = {});
  // A finite number above 0, or from 1 on. A missing key is treated as in Count.
  float Positive(const std::string& key, std::optional<float> where_missing = {});
  float AtLeastOne(const std::string& key, std::optional<float> where_missing = {});

 private:
  const GgufFile& file_;
  const std::string prefix_;
  absl::Status status_;
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_CHECKPOINT_CONFIG_GGUF_FIELDS_H_
