// The metadata of a GGUF file: keys and values.
#ifndef PAGODA_ENGINE_CHECKPOINT_GGUF_GGUF_VALUES_H_
#define PAGODA_ENGINE_CHECKPOINT_GGUF_GGUF_VALUES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/checkpoint/gguf/gguf_cursor.h"

namespace pagoda {

// The types of values, numbered by the format.
enum class GgufType : uint32_t {
  kUint8,
  kInt8,
  kUint16,
  kInt16,
  kUint32,
  kInt32,
  kFloat32,
  kBool,
  kString,
  kArray,
  kUint64,
  kInt64,
  kFloat64,
};

// A value that is not copied: an array of texts, of floating-point numbers or of more than 4,096
// integers, or a text of more than 64 KiB. Tokenizers have such values. The bytes were checked, and
// are valid as long as those that the cursor reads. Two of these count as equal.
struct GgufSkipped {
  bool is_array = true;
  GgufType type = GgufType::kString;  // The type of each element, or of the value.
  uint64_t count = 0;                 // The number of elements; 1 for a text.
  absl::Span<const std::byte> bytes;

  friend bool operator==(const GgufSkipped&, const GgufSkipped&) { return true; }
};

// Integers and booleans of every width are int64_t (GGUF's u64 above its range is refused).
using GgufValue = std::variant<int64_t, double, std::string, std::vector<int64_t>, GgufSkipped>;
using GgufMetadata = std::map<std::string, GgufValue>;

// Reads `count` keys with their values. Errors: INVALID_CHECKPOINT with the key, without the file.
absl::StatusOr<GgufMetadata> ReadGgufMetadata(GgufCursor& cursor, uint64_t count);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_CHECKPOINT_GGUF_GGUF_VALUES_H_
