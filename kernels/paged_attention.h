// Attention of a ragged batch of sequences over the blocks of their tables: prefill, chunks of a
// prefill and decode in one call. All devices take the same arguments.
#ifndef PAGODA_KERNELS_PAGED_ATTENTION_H_
#define PAGODA_KERNELS_PAGED_ATTENTION_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/attention_mask.h"
#include "kernels/types.h"

namespace pagoda::kernels {

// S sequences with N query tokens in total. Sequence s has the query tokens query_starts[s] to
// query_starts[s + 1] - 1. They are the last tokens of its context of context_lengths[s] tokens:
// all of it in a prefill, one token in decode, and some tokens in a chunk of a prefill. A sequence
// without query tokens is skipped. K and V of the whole context, including the query tokens, are in
// the pool before the call.
//
// Query head h reads KV head h / (num_heads / num_kv_heads). The score of a query q at position i
// and a key k at position j that `mask` lets it see is
//   s = scale * (q . k);  s = soft_cap * tanh(s / soft_cap) if soft_cap > 0;
//   s += alibi_slopes[h] * (j - i) if given.
// The weight of the key is exp(s) / (the sum of exp over all these scores, plus exp(sink_logits[h])
// if given). The output is the weighted sum of the values. A query that sees no key gets zeros, and
// -infinity as its log-sum-exp (or sink_logits[h] if given).
//
// Bytes behind a context's end or outside the mask are never used, and can be NaN. Block table
// entries behind a context's end are not read. With a window and no sink, entries of blocks that
// the window has passed for every query of the call are not read either; they can be -1.
struct PagedAttentionParams {
  const void* query = nullptr;  // [N][num_heads][head_dim]
  void* output = nullptr;       // [N][num_heads][value_dim]; can be `query` itself.
  ElementType query_type = ElementType::kFloat32;  // fp32, fp16 or bf16, for query and output.
  uint64_t query_token_stride = 0;                 // In elements, at least num_heads * head_dim.
  uint64_t output_token_stride = 0;                // In elements, at least num_heads * value_dim.
  // If set: [N][num_heads], contiguous. The natural logarithm of the sum of exp of the scores,
  // including the sink.
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

// Errors: InvalidArgument, naming the argument, for types, shapes, strides and masks that do not
// fit together. Reads no memory behind a pointer or span.
absl::Status CheckShapes(const PagedAttentionParams& params);

// The implementations differ only in speed and rounding. cpu/attention/attention.h and
// cuda/attention.h declare the fast ones. Errors: those of CheckShapes. If the arguments are in
// host memory, also InvalidArgument for query_starts that do not ascend from 0, a context shorter
// than its queries, a table too short for its context, or a slot outside the pool.

// In fp64, written for readability; the tests compare with it. Synchronous, on the caller's thread.
namespace reference {
absl::Status PagedAttention(const PagedAttentionParams& params);
}  // namespace reference

}  // namespace pagoda::kernels

#endif  // PAGODA_KERNELS_PAGED_ATTENTION_H_
