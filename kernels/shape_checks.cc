#include "kernels/shape_checks.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/counted.h"
#include "kernels/attention_merge.h"
#include "kernels/block_copy.h"
#include "kernels/cache_gather.h"
#include "kernels/cache_write.h"
#include "kernels/paged_attention.h"

namespace pagoda::kernels {
namespace {

// Checks that the pointer is set and aligned to elements.
absl::Status CheckPointer(const char* name, const std::byte* pointer, uint64_t element_bytes) {
  if (pointer == nullptr) return InvalidArgument(name, " is null");
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  if (address % element_bytes == 0) return absl::OkStatus();
  return InvalidArgument(name, " is at 0x", absl::Hex(address), ", not aligned to elements of ",
                         element_bytes, " bytes");
}

// Checks rows of queries, outputs, or new keys and values.
absl::Status CheckRows(const char* name, const void* pointer, ElementType type) {
  if (IsFloat8(type)) return InvalidArgument(name, " has elements of 8 bits; only pools have them");
  return CheckPointer(name, static_cast<const std::byte*>(pointer), ElementBytes(type));
}

// Checks for one table per sequence. Uses no product, because it could wrap around.
absl::Status CheckTablesSize(uint64_t size, uint64_t num_sequences, uint64_t stride) {
  const bool fits = stride == 0 ? size == 0 : size % stride == 0 && size / stride == num_sequences;
  if (fits) return absl::OkStatus();
  return InvalidArgument("block_tables has ", Counted(size, "entry"), ", not ",
                         Counted(num_sequences, "sequence"), " * block_table_stride ", stride);
}

// Whether `count` rows of `token_bytes`, `stride_bytes` apart, fit into `available_bytes`. Both
// sizes are at least `token_bytes`. Uses no product, because it could wrap around.
bool Covers(uint64_t available_bytes, uint32_t count, uint64_t stride_bytes, uint64_t token_bytes) {
  return (available_bytes - token_bytes) / stride_bytes >= count - 1;
}

}  // namespace

absl::Status CheckKvLayer(const KvLayer& kv) {
  const uint64_t element_bytes = ElementBytes(kv.type);
  absl::Status keys = CheckPointer("kv.keys", kv.keys, element_bytes);
  if (!keys.ok()) return keys;
  if (kv.values != nullptr) {
    absl::Status values = CheckPointer("kv.values", kv.values, element_bytes);
    if (!values.ok()) return values;
  }
  if (kv.num_kv_heads == 0) return InvalidArgument("kv.num_kv_heads is 0");
  if (kv.tokens_per_block == 0) return InvalidArgument("kv.tokens_per_block is 0");
  if (kv.head_dim == 0) return InvalidArgument("kv.head_dim is 0");
  if (kv.value_dim > kv.head_dim) {
    return InvalidArgument("kv.value_dim is ", kv.value_dim, ", above kv.head_dim ", kv.head_dim);
  }
  if (!IsFloat8(kv.type) && (kv.scales.keys != nullptr || kv.scales.values != nullptr)) {
    return InvalidArgument("kv.scales are set; only pools of 8-bit elements have any");
  }

  const uint32_t slot_scales = kv.scales.per_head ? kv.num_kv_heads : 1;
  if (kv.scales.per_slot() && kv.scales.slot_stride < slot_scales) {
    return InvalidArgument("kv.scales.slot_stride is ", kv.scales.slot_stride, "; a slot has ",
                           slot_scales, " scales");
  }

  const uint64_t token_bytes = kv.head_dim * element_bytes;
  if (kv.token_stride_bytes < token_bytes || kv.token_stride_bytes % element_bytes != 0) {
    return InvalidArgument("kv.token_stride_bytes is ", kv.token_stride_bytes, "; a token has ",
                           token_bytes, " bytes of ", element_bytes, " each");
  }
  if (kv.head_stride_bytes < token_bytes || kv.head_stride_bytes % element_bytes != 0) {
    return InvalidArgument("kv.head_stride_bytes is ", kv.head_stride_bytes, "; a token has ",
                           token_bytes, " bytes of ", element_bytes, " each");
  }
  if (!Covers(kv.head_stride_bytes, kv.tokens_per_block, kv.token_stride_bytes, token_bytes) &&
      !Covers(kv.token_stride_bytes, kv.num_kv_heads, kv.head_stride_bytes, token_bytes)) {
    return InvalidArgument("kv.head_stride_bytes is ", kv.head_stride_bytes,
                           " and kv.token_stride_bytes is ", kv.token_stride_bytes,
                           "; neither covers all tokens of a head or all heads of a token");
  }
  const uint64_t block_bytes =
      kv.offset_bytes(0, kv.num_kv_heads - 1, kv.tokens_per_block - 1) + token_bytes;
  if (kv.slot_stride_bytes < block_bytes || kv.slot_stride_bytes % element_bytes != 0) {
    return InvalidArgument("kv.slot_stride_bytes is ", kv.slot_stride_bytes,
                           "; the heads and tokens of a block need ", block_bytes);
  }
  return absl::OkStatus();
}

absl::Status CheckMask(const AttentionMask& mask) {
  const BlockSparsity& sparsity = mask.sparsity;
  if (!mask.causal && (mask.window_tokens != 0 || sparsity.block_tokens != 0)) {
    return InvalidArgument("mask.causal is false, with a window of ",
                           Counted(mask.window_tokens, "token"), " and sparse blocks of ",
                           sparsity.block_tokens, "; both need causal attention");
  }
  if (mask.sink_tokens != 0 && mask.window_tokens == 0) {
    return InvalidArgument("mask.sink_tokens is ", mask.sink_tokens, ", without a window");
  }
  if (sparsity.block_tokens == 0) return absl::OkStatus();
  if (sparsity.local_blocks == 0) return InvalidArgument("mask.sparsity.local_blocks is 0");
  return absl::OkStatus();
}

absl::Status CheckShapes(const PagedAttentionParams& params) {
  if (absl::Status status = CheckKvLayer(params.kv); !status.ok()) return status;
  if (params.kv.values == nullptr) return InvalidArgument("kv.values is null");
  if (absl::Status status = CheckMask(params.mask); !status.ok()) return status;
  if (absl::Status status = CheckRows("query", params.query, params.query_type); !status.ok()) {
    return status;
  }
  if (absl::Status status = CheckRows("output", params.output, params.query_type); !status.ok()) {
    return status;
  }
  if (params.num_heads == 0 || params.num_heads % params.kv.num_kv_heads != 0) {
    return InvalidArgument("num_heads is ", params.num_heads,
                           ", not a positive multiple of kv.num_kv_heads ", params.kv.num_kv_heads);
  }
  if (!std::isfinite(params.scale)) return InvalidArgument("scale is ", params.scale);
  if (!std::isfinite(params.soft_cap) || params.soft_cap < 0) {
    return InvalidArgument("soft_cap is ", params.soft_cap);
  }
  if (!params.mask.causal && params.alibi_slopes != nullptr) {
    return InvalidArgument(
        "alibi_slopes are set and mask.causal is false; without causal "
        "attention queries have no positions");
  }
  const uint64_t query_elements = uint64_t{params.num_heads} * params.kv.head_dim;
  if (params.query_token_stride < query_elements) {
    return InvalidArgument("query_token_stride is ", params.query_token_stride,
                           ", below num_heads * head_dim ", query_elements);
  }
  const uint64_t output_elements = uint64_t{params.num_heads} * params.kv.value_elements();
  if (params.output_token_stride < output_elements) {
    return InvalidArgument("output_token_stride is ", params.output_token_stride,
                           ", below num_heads * value_dim ", output_elements);
  }
  if (params.output == params.query && (params.query_token_stride != params.output_token_stride ||
                                        query_elements != output_elements)) {
    return InvalidArgument("output is query, with other strides or another value_dim");
  }
  const uint64_t num_sequences = params.context_lengths.size();
  if (params.query_starts.size() != num_sequences + 1) {
    return InvalidArgument("query_starts has ", Counted(params.query_starts.size(), "entry"), "; ",
                           num_sequences, " context_lengths need one more");
  }
  return CheckTablesSize(params.block_tables.size(), num_sequences, params.block_table_stride);
}

absl::Status CheckShapes(const AttentionMergeParams& params) {
  if (params.parts.empty() || params.parts.size() > kMaxMergedParts) {
    return InvalidArgument("parts has ", params.parts.size(), " entries, not 1 to ",
                           kMaxMergedParts);
  }
  for (const AttentionPart& part : params.parts) {
    absl::Status status = CheckRows("parts.output", part.output, params.type);
    if (!status.ok()) return status;
    if (part.lse == nullptr) return InvalidArgument("parts.lse is null");
  }
  if (absl::Status status = CheckRows("output", params.output, params.type); !status.ok()) {
    return status;
  }
  if (params.num_heads == 0) return InvalidArgument("num_heads is 0");
  if (params.value_dim == 0) return InvalidArgument("value_dim is 0");
  const uint64_t token_elements = uint64_t{params.num_heads} * params.value_dim;
  if (params.output_token_stride < token_elements) {
    return InvalidArgument("output_token_stride is ", params.output_token_stride,
                           ", below num_heads * value_dim ", token_elements);
  }
  for (const AttentionPart& part : params.parts) {
    if (part.output == params.output && params.output_token_stride != token_elements) {
      return InvalidArgument("output is a part's, with output_token_stride ",
                             params.output_token_stride, ", not ", token_elements);
    }
  }
  return absl::OkStatus();
}

absl::Status CheckShapes(const CacheRows& rows, const KvLayer& kv) {
  if (absl::Status status = CheckKvLayer(kv); !status.ok()) return status;
  if (absl::Status status = CheckRows("keys", rows.keys, rows.type); !status.ok()) return status;
  const uint64_t key_elements = uint64_t{kv.num_kv_heads} * kv.head_dim;
  if (rows.key_token_stride < key_elements) {
    return InvalidArgument("key_token_stride is ", rows.key_token_stride,
                           ", below num_kv_heads * head_dim ", key_elements);
  }
  if (kv.values == nullptr || kv.values == kv.keys) {
    if (rows.values == nullptr) return absl::OkStatus();
    return InvalidArgument("values is set, and kv.values is ",
                           kv.values == nullptr ? "null" : "kv.keys");
  }
  if (absl::Status status = CheckRows("values", rows.values, rows.type); !status.ok()) {
    return status;
  }
  const uint64_t value_elements = uint64_t{kv.num_kv_heads} * kv.value_elements();
  if (rows.value_token_stride < value_elements) {
    return InvalidArgument("value_token_stride is ", rows.value_token_stride,
                           ", below num_kv_heads * value_dim ", value_elements);
  }
  return absl::OkStatus();
}

absl::Status CheckShapes(const CacheFillParams& params) {
  if (absl::Status status = CheckShapes(params.rows, params.kv); !status.ok()) return status;
  const uint64_t num_sequences = params.first_positions.size();
  if (params.starts.size() != num_sequences + 1) {
    return InvalidArgument("starts has ", Counted(params.starts.size(), "entry"), "; ",
                           num_sequences, " first_positions need one more");
  }
  return CheckTablesSize(params.block_tables.size(), num_sequences, params.block_table_stride);
}

absl::Status CheckShapes(const CacheGatherParams& params) {
  const KvLayer& kv = params.kv;
  if (absl::Status status = CheckKvLayer(kv); !status.ok()) return status;
  if (params.keys == nullptr && params.values == nullptr) {
    return InvalidArgument("keys and values are null");
  }
  if (params.values != nullptr && kv.values == nullptr) {
    return InvalidArgument("values is set, and kv.values is null");
  }
  for (const auto& [name, rows] : {std::pair{"keys", params.keys}, {"values", params.values}}) {
    if (rows == nullptr) continue;
    if (absl::Status status = CheckRows(name, rows, params.type); !status.ok()) return status;
  }
  if (params.starts.empty()) return InvalidArgument("starts is empty");
  return CheckTablesSize(params.block_tables.size(), params.starts.size() - 1,
                         params.block_table_stride);
}

absl::Status CheckShapes(const BlockCopyParams& params) {
  if (params.source == nullptr) return InvalidArgument("source is null");
  if (params.target == nullptr) return InvalidArgument("target is null");
  if (params.slot_bytes == 0) return InvalidArgument("slot_bytes is 0");
  const auto source = reinterpret_cast<uintptr_t>(params.source);
  const auto target = reinterpret_cast<uintptr_t>(params.target);
  const uintptr_t source_end = source + params.source_slots * params.slot_bytes;
  const uintptr_t target_end = target + params.target_slots * params.slot_bytes;
  if (source == target || source_end <= target || target_end <= source) return absl::OkStatus();
  return InvalidArgument("source and target overlap and are not one pool");
}

absl::Status CheckShapes(const BlockCopyParams& params, const TokenRuns& runs,
                         uint32_t num_tokens) {
  if (absl::Status status = CheckShapes(params); !status.ok()) return status;
  if (runs.num_runs == 0 || runs.run_bytes == 0 || runs.token_bytes == 0) {
    return InvalidArgument("runs has num_runs ", runs.num_runs, ", run_bytes ", runs.run_bytes,
                           ", token_bytes ", runs.token_bytes, "; none may be 0");
  }
  if (runs.run_bytes > params.slot_bytes / runs.num_runs) {
    return InvalidArgument("runs: ", runs.num_runs, " of ", runs.run_bytes,
                           " bytes do not fit a slot of ", params.slot_bytes);
  }
  if (num_tokens > runs.run_bytes / runs.token_bytes) {
    return InvalidArgument("num_tokens is ", num_tokens, "; a run of ", runs.run_bytes,
                           " bytes has ", runs.run_bytes / runs.token_bytes);
  }
  return absl::OkStatus();
}

}  // namespace pagoda::kernels
