// Attention of a ragged batch of sequences over the blocks of their tables: prefill, chunks of a
// prefill and decode in one call. The arguments are the same for every device.
#ifndef PAGODA_KERNELS_PAGED_ATTENTION_H_
#define PAGODA_KERNELS_PAGED_ATTENTION_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/attention_mask.h"
#include "kernels/types.h"

namespace pagoda::kernels {

// S sequences with N query tokens in all. Sequence s has the query tokens query_starts[s] up to
// query_starts[s + 1], which are the last ones of its context_lengths[s] tokens: prefill has as
// many query tokens as context, decode has one, a chunk of a prefill lies between. A sequence
// without query tokens is skipped. K and V of the whole context, the query tokens' own included,
// are in the pool before the call.
//
// Query head h reads KV head h / (num_heads / num_kv_heads). The score of a query q at position i
// and a key k at position j that `mask` lets it see is
//   s = scale * (q . k);  s = soft_cap * tanh(s / soft_cap) if soft_cap > 0;
//   s += alibi_slopes[h] * (j - i) if given;
// its weight is exp(s) / (sum of exp over all of them, and exp(sink_logits[h]) if given); the
// output is the sum of values by weight. A query that sees nothing gets zeros, and -infinity as
// its log-sum-exp (sink_logits[h] where there is a sink).
//
// What lies behind a context's end, or outside the mask, is never used and may be NaN; entries of
// block tables behind a context's end are not read, nor, where there is a window and no sink, those
// of blocks that it has passed for every query of the call: there they may be -1, too.
struct PagedAttentionParams {
  const void* query = nullptr;  // [N][num_heads][head_dim]
  void* output = nullptr;       // [N][num_heads][value_dim]; may be `query` itself.
  ElementType query_type = ElementType::kFloat32;  // fp32, fp16 or bf16; and of the output.
  uint64_t query_token_stride = 0;                 // In elements, at least num_heads * head_dim.
  uint64_t output_token_stride = 0;                // Likewise, of value_dim.
  // If set: [N][num_heads], contiguous, the natural logarithm of the sum of exp of the scores, the
  // sink's included.
  float* lse = nullptr;
  uint32_t num_heads = 0;  // A multiple of kv.num_kv_heads.

  float scale = 1.0f;
  float soft_cap = 0.0f;                // 0: none.
  const float* alibi_slopes = nullptr;  // [num_heads]; null: none.
  const float* sink_logits = nullptr;   // [num_heads]; null: none.
  AttentionMask mask;

  absl::Span<const int32_t> query_starts;     // [S + 1], ascending from 0 to N.
  absl::Span<const int32_t> context_lengths;  // [S]
  absl::Span<const int32_t> block_tables;     // [S][block_table_stride], slot indices, then -1.
  uint64_t block_table_stride = 0;            // In elements.

  KvLayer kv;
};

// InvalidArgument, naming the argument, for types, shapes, strides and masks that do not fit
// together. Looks at no memory behind a pointer or span.
absl::Status CheckShapes(const PagedAttentionParams& params);

// The implementations differ in speed and rounding alone; cpu/attention.h and cuda/attention.h
// declare the fast ones. Errors: those of CheckShapes, and, where arguments are host memory,
// InvalidArgument for query_starts that do not ascend from 0, a context shorter than its queries, a
// table too short for its context, a slot outside the pool.

// fp64, written to be read: what the tests compare with. Synchronous, on the caller's thread.
namespace reference {
absl::Status PagedAttention(const PagedAttentionParams& params);
}  // namespace reference

}  // namespace pagoda::kernels

#endif  // PAGODA_KERNELS_PAGED_ATTENTION_H_
