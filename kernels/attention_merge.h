// Puts attention over parts of the keys together: a shared prefix computed once for many sequences,
// and what each has of its own (cascade).
#ifndef PAGODA_KERNELS_ATTENTION_MERGE_H_
#define PAGODA_KERNELS_ATTENTION_MERGE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/types.h"

namespace pagoda::kernels {

// What PagedAttention gave for the same queries over other keys.
struct AttentionPart {
  const void* output = nullptr;  // [N][num_heads][value_dim], contiguous.
  const float* lse = nullptr;    // [N][num_heads], contiguous, natural logarithms.
};

inline constexpr size_t kMaxMergedParts = 8;

// The sum of the parts' outputs, each by its share exp(lse) of the whole, added in the parts'
// order. A part of no keys (lse -infinity) has none, whatever its output is; without any key the
// output is zeros and the log-sum-exp -infinity. A sink belongs to one part alone.
struct AttentionMergeParams {
  absl::Span<const AttentionPart> parts;     // 1 to kMaxMergedParts; host memory on every device.
  ElementType type = ElementType::kFloat32;  // fp32, fp16 or bf16; of parts and output.
  void* output = nullptr;                    // [N][num_heads][value_dim]; may be a part's.
  uint64_t output_token_stride = 0;          // In elements, at least num_heads * value_dim.
  float* lse = nullptr;                      // [N][num_heads], or null; may be a part's.
  uint32_t num_tokens = 0;                   // N
  uint32_t num_heads = 0;
  uint32_t value_dim = 0;
};

// InvalidArgument, naming the argument. Looks at no memory behind a pointer but `parts`.
absl::Status CheckShapes(const AttentionMergeParams& params);

// fp64. Synchronous.
namespace reference {
absl::Status MergeAttention(const AttentionMergeParams& params);
}  // namespace reference

}  // namespace pagoda::kernels

#endif  // PAGODA_KERNELS_ATTENTION_MERGE_H_
