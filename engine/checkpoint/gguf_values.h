// The metadata of a GGUF file: keys and values.
#ifndef PAGODA_ENGINE_CHECKPOINT_GGUF_VALUES_H_
#define PAGODA_ENGINE_CHECKPOINT_GGUF_VALUES_H_

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/checkpoint/gguf_cursor.h"

namespace pagoda {

// A skipped value: an array of texts, of floating-point numbers or of more than 4,096 integers, or
// a text of more than 64 KiB. Tokenizers have such values.
struct GgufSkipped {
  friend bool operator==(GgufSkipped, GgufSkipped) = default;
};

// Integers and booleans of every width are int64_t (GGUF's u64 above its range is refused).
using GgufValue = std::variant<int64_t, double, std::string, std::vector<int64_t>, GgufSkipped>;
using GgufMetadata = std::map<std::string, GgufValue>;

// Reads `count` keys with their values. Errors: INVALID_CHECKPOINT with the key, without the file.
absl::StatusOr<GgufMetadata> ReadGgufMetadata(GgufCursor& cursor, uint64_t count);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_CHECKPOINT_GGUF_VALUES_H_
