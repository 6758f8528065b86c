// Attention of a ragged batch of sequences over the blocks of their tables.
#ifndef PAGODA_KERNELS_PAGED_ATTENTION_H_
#define PAGODA_KERNELS_PAGED_ATTENTION_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/types.h"

namespace pagoda::kernels {

// S sequences with N query tokens in all. Sequence s has the query tokens query_starts[s] up to
// query_starts[s + 1], which are the last ones of its context_lengths[s] tokens: prefill has as
// many query tokens as context, decode has one, a chunk of a prefill lies between. A sequence
// without query tokens is skipped. K and V of the whole context, the query tokens' own included,
// are in the pool before the call.
//
// Attention is causal: a query token at position p sees the tokens 0 to p. Query head h reads KV
// head h / (num_heads / num_kv_heads). What lies behind a context's end, in a block or in a slot,
// is never used and may be NaN.
struct PagedAttentionParams {
  const float* query = nullptr;     // [N][num_heads][head_dim]
  float* output = nullptr;          // [N][num_heads][head_dim]; may be `query` itself.
  uint64_t query_token_stride = 0;  // In elements, at least num_heads * head_dim.
  uint64_t output_token_stride = 0;
  uint32_t num_heads = 0;  // A multiple of kv.num_kv_heads.
  float scale = 1.0f;      // Multiplies q . k before the softmax.

  absl::Span<const int32_t> query_starts;     // [S + 1], ascending from 0 to N.
  absl::Span<const int32_t> context_lengths;  // [S]
  absl::Span<const int32_t> block_tables;     // [S][block_table_stride], slot indices, then -1.
  uint64_t block_table_stride = 0;            // In elements.

  KvLayer kv;
};

// InvalidArgument, naming the argument, for shapes and strides that do not fit together. Looks at
// no memory behind a pointer or span.
absl::Status CheckShapes(const PagedAttentionParams& params);

// The implementations differ in speed and rounding alone. Both are synchronous, use the caller's
// thread, and are safe to call from several threads on different outputs. Errors: those of
// CheckShapes, and InvalidArgument for query_starts that do not ascend from 0, a context shorter
// than its queries, a table too short for its context, a slot outside the pool.

// fp32 with an online softmax; the same bits for a token whatever else is in the batch, however the
// prompt was cut in chunks, wherever its blocks lie.
namespace cpu {
absl::Status PagedAttention(const PagedAttentionParams& params);
}  // namespace cpu

// fp64, written to be read: what the tests compare with.
namespace reference {
absl::Status PagedAttention(const PagedAttentionParams& params);
}  // namespace reference

}  // namespace pagoda::kernels

#endif  // PAGODA_KERNELS_PAGED_ATTENTION_H_
