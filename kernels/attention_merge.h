// Merges attention over parts of the keys. Example: a cascade computes a shared prefix once for
// many sequences, and merges it with each sequence's remaining keys.
#ifndef PAGODA_KERNELS_ATTENTION_MERGE_H_
#define PAGODA_KERNELS_ATTENTION_MERGE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/types.h"

namespace pagoda::kernels {

// The result of PagedAttention for the same queries over other keys.
struct AttentionPart {
  const void* output = nullptr;  // [N][num_heads][value_dim], contiguous.
  const float* lse = nullptr;    // [N][num_heads], contiguous, natural logarithms.
};

inline constexpr size_t kMaxMergedParts = 8;

// Adds the parts' outputs in the parts' order, each multiplied by its share exp(lse) of the whole.
// A part without keys (lse -infinity) adds nothing, whatever its output is. If no part has a key,
// the output is zeros and the log-sum-exp is -infinity. A sink belongs to one part only.
struct AttentionMergeParams {
  absl::Span<const AttentionPart> parts;  // 1 to kMaxMergedParts; in host memory on every device.
  ElementType type = ElementType::kFloat32;  // fp32, fp16 or bf16, for parts and output.
  void* output = nullptr;                    // [N][num_heads][value_dim]; can be a part's output.
  uint64_t output_token_stride = 0;          // In elements, at least num_heads * value_dim.
  float* lse = nullptr;                      // [N][num_heads], or null; can be a part's lse.
  uint32_t num_tokens = 0;                   // N
  uint32_t num_heads = 0;
  uint32_t value_dim = 0;
};

// InvalidArgument, naming the argument. Reads no memory behind a pointer except `parts`.
absl::Status CheckShapes(const AttentionMergeParams& params);

// In fp64. Synchronous.
namespace reference {
absl::Status MergeAttention(const AttentionMergeParams& params);
}  // namespace reference

}  // namespace pagoda::kernels

#endif  // PAGODA_KERNELS_ATTENTION_MERGE_H_
