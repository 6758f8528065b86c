// The tensors of a checkpoint, from any format.
#ifndef PAGODA_ENGINE_CHECKPOINT_TENSOR_H_
#define PAGODA_ENGINE_CHECKPOINT_TENSOR_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace pagoda {

// The form of a tensor's elements in the file, little-endian.
enum class TensorType : uint8_t {
  kFloat32,
  kFloat16,
  kBFloat16,
  // Blocks of 32 elements of a row: an fp16 scale and 32 int8 that it multiplies, 34 bytes.
  kQ8_0,
};

inline constexpr uint64_t kQ8_0BlockElements = 32;
inline constexpr uint64_t kQ8_0BlockBytes = 34;

// The names of safetensors and GGUF: "F32", "F16", "BF16", "Q8_0".
absl::string_view TensorTypeName(TensorType type);
// Nothing for another name.
std::optional<TensorType> TensorTypeOf(absl::string_view name);

// A tensor's type, shape and bytes. Invariant: the number of bytes is the shape's.
struct TensorInfo {
  TensorType type = TensorType::kFloat32;
  std::vector<uint64_t> shape;        // Outermost first; the elements are contiguous.
  absl::Span<const std::byte> bytes;  // Not aligned to the elements.
};

using TensorMap = std::map<std::string, TensorInfo>;

// Nothing if 64 bits cannot count them, or if a row is not whole blocks.
std::optional<uint64_t> TensorBytes(TensorType type, absl::Span<const uint64_t> shape);

// In row-major order.
std::vector<float> ToFloats(const TensorInfo& tensor);

// The name of a tensor that shares bytes with another one; nothing if there is none. Tensors
// without bytes share none.
std::optional<std::string> FindOverlap(const TensorMap& tensors);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_CHECKPOINT_TENSOR_H_
