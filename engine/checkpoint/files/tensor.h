// The tensors of a checkpoint, from any format.
#ifndef PAGODA_ENGINE_CHECKPOINT_FILES_TENSOR_H_
#define PAGODA_ENGINE_CHECKPOINT_FILES_TENSOR_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace pagoda {

// The form of a tensor's elements in the file, little-endian. The types from kQ8_0 on are ggml's:
// blocks of elements of a row that share a scale (quantised_blocks.h).
enum class TensorType : uint8_t {
  kFloat32,
  kFloat16,
  kBFloat16,
  kQ8_0,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ2_K,
  kQ3_K,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kIQ4_NL,
  kIQ4_XS,
  kMxfp4,
};

inline constexpr TensorType kTensorTypes[] = {
    TensorType::kFloat32, TensorType::kFloat16, TensorType::kBFloat16, TensorType::kQ8_0,
    TensorType::kQ4_0,    TensorType::kQ4_1,    TensorType::kQ5_0,     TensorType::kQ5_1,
    TensorType::kQ2_K,    TensorType::kQ3_K,    TensorType::kQ4_K,     TensorType::kQ5_K,
    TensorType::kQ6_K,    TensorType::kIQ4_NL,  TensorType::kIQ4_XS,   TensorType::kMxfp4};

// A row is whole blocks of `elements` elements, of `bytes` bytes each. For fp32, fp16 and bf16 a
// block is one element.
struct BlockLayout {
  uint64_t elements = 1;
  uint64_t bytes = 0;
};
BlockLayout LayoutOf(TensorType type);
constexpr bool IsQuantised(TensorType type) { return type >= TensorType::kQ8_0; }

inline constexpr uint64_t kQ8_0BlockElements = 32;
inline constexpr uint64_t kQ8_0BlockBytes = 34;

// The names of safetensors and GGUF: "F32", "F16", "BF16", "Q8_0", "Q4_K", "MXFP4".
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

// In row-major order. For quantised types these are the numbers that ggml defines, to the bit.
std::vector<float> ToFloats(const TensorInfo& tensor);

// Rows first to first + count - 1 of a matrix. REQUIRES: they are the matrix's.
TensorInfo RowsOf(const TensorInfo& matrix, uint64_t first, uint64_t count);
// The tensor at this index of the outermost dimension: of [experts][outputs][inputs], an expert's
// matrix. REQUIRES: at least two dimensions, and an index below the first one.
TensorInfo PartOf(const TensorInfo& tensor, uint64_t index);

// The name of a tensor that shares bytes with another one; nothing if there is none. Tensors
// without bytes share none.
std::optional<std::string> FindOverlap(const TensorMap& tensors);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_CHECKPOINT_FILES_TENSOR_H_
