#include "kernels/shape_checks.h"

#include <cstddef>
#include <cstdint>

#include "kernels/cache_write.h"
#include "kernels/paged_attention.h"

namespace pagoda::kernels {
namespace {

absl::Status CheckKvPointer(const char* name, const std::byte* pointer, uint64_t element_bytes) {
  if (pointer == nullptr) return InvalidArgument(name, " is null");
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  if (address % element_bytes == 0) return absl::OkStatus();
  return InvalidArgument(name, " is at 0x", absl::Hex(address), ", not aligned to elements of ",
                         element_bytes, " bytes");
}

// Whether `count` rows of `token_bytes`, `stride_bytes` apart, lie within `room_bytes`. Both sizes
// are `token_bytes` at least; no product is taken, because it could wrap around.
bool Covers(uint64_t room_bytes, uint32_t count, uint64_t stride_bytes, uint64_t token_bytes) {
  return (room_bytes - token_bytes) / stride_bytes >= count - 1;
}

}  // namespace

absl::Status CheckKvLayer(const KvLayer& kv) {
  const uint64_t element_bytes = ElementBytes(kv.type);
  absl::Status keys = CheckKvPointer("kv.keys", kv.keys, element_bytes);
  if (!keys.ok()) return keys;
  absl::Status values = CheckKvPointer("kv.values", kv.values, element_bytes);
  if (!values.ok()) return values;
  if (kv.num_kv_heads == 0) return InvalidArgument("kv.num_kv_heads is 0");
  if (kv.tokens_per_block == 0) return InvalidArgument("kv.tokens_per_block is 0");
  if (kv.head_dim == 0) return InvalidArgument("kv.head_dim is 0");

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

absl::Status CheckShapes(const PagedAttentionParams& params) {
  if (absl::Status status = CheckKvLayer(params.kv); !status.ok()) return status;
  if (params.query == nullptr) return InvalidArgument("query is null");
  if (params.output == nullptr) return InvalidArgument("output is null");
  if (params.num_heads == 0 || params.num_heads % params.kv.num_kv_heads != 0) {
    return InvalidArgument("num_heads is ", params.num_heads,
                           ", not a positive multiple of kv.num_kv_heads ", params.kv.num_kv_heads);
  }
  const uint64_t token_elements = uint64_t{params.num_heads} * params.kv.head_dim;
  if (params.query_token_stride < token_elements) {
    return InvalidArgument("query_token_stride is ", params.query_token_stride,
                           ", below num_heads * head_dim ", token_elements);
  }
  if (params.output_token_stride < token_elements) {
    return InvalidArgument("output_token_stride is ", params.output_token_stride,
                           ", below num_heads * head_dim ", token_elements);
  }
  const uint64_t num_sequences = params.context_lengths.size();
  if (params.query_starts.size() != num_sequences + 1) {
    return InvalidArgument("query_starts has ", params.query_starts.size(), " entries; ",
                           num_sequences, " context_lengths need one more");
  }
  if (params.block_tables.size() != num_sequences * params.block_table_stride) {
    return InvalidArgument("block_tables has ", params.block_tables.size(), " entries, not ",
                           num_sequences, " sequences * block_table_stride ",
                           params.block_table_stride);
  }
  return absl::OkStatus();
}

absl::Status CheckShapes(const CacheWriteParams& params) {
  if (absl::Status status = CheckKvLayer(params.kv); !status.ok()) return status;
  if (params.keys == nullptr) return InvalidArgument("keys is null");
  if (params.values == nullptr) return InvalidArgument("values is null");
  const uint64_t token_elements = uint64_t{params.kv.num_kv_heads} * params.kv.head_dim;
  if (params.key_token_stride < token_elements) {
    return InvalidArgument("key_token_stride is ", params.key_token_stride,
                           ", below num_kv_heads * head_dim ", token_elements);
  }
  if (params.value_token_stride < token_elements) {
    return InvalidArgument("value_token_stride is ", params.value_token_stride,
                           ", below num_kv_heads * head_dim ", token_elements);
  }
  return absl::OkStatus();
}

}  // namespace pagoda::kernels
