#include "kernels/cuda/cache.h"

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/cache/cache_args.h"
#include "kernels/cuda/device/runtime.h"
#include "kernels/shape_checks.h"

namespace pagoda::kernels::cuda {
namespace {

// Whether eight elements at a time are whole on both sides, and aligned to 16 bytes or to their
// size if they are smaller.
bool AreVectors(const TokenRows& rows, const KvLayer& kv) {
  const uint64_t row_bytes = ElementBytes(rows.type);
  const uint64_t row_bits = reinterpret_cast<uintptr_t>(rows.keys) |
                            reinterpret_cast<uintptr_t>(rows.values) |
                            rows.key_token_stride * row_bytes | rows.value_token_stride * row_bytes;
  const uint64_t pool_bits = reinterpret_cast<uintptr_t>(kv.keys) |
                             reinterpret_cast<uintptr_t>(kv.values) | kv.slot_stride_bytes |
                             kv.head_stride_bytes | kv.token_stride_bytes;
  return kv.head_dim % 8 == 0 && rows.value_dim % 8 == 0 && row_bits % 16 == 0 &&
         pool_bits % (IsFloat8(kv.type) ? 8 : 16) == 0;
}

CacheArgs ArgsOf(const TokenPlaces& places, const TokenRows& rows, const KvLayer& kv) {
  return {.places = places, .rows = rows, .kv = kv, .vectors = AreVectors(rows, kv)};
}

TokenRows RowsOf(const CacheRows& rows, const KvLayer& kv, uint32_t num_tokens) {
  return {.keys = static_cast<std::byte*>(const_cast<void*>(rows.keys)),
          .values = static_cast<std::byte*>(const_cast<void*>(rows.values)),
          .type = rows.type,
          .key_token_stride = rows.key_token_stride,
          .value_token_stride = rows.value_token_stride,
          .num_tokens = num_tokens,
          .value_dim = kv.value_elements()};
}

}  // namespace

absl::Status WriteCache(const CacheWriteParams& params, Stream stream) {
  if (absl::Status status = CheckShapes(params.rows, params.kv); !status.ok()) return status;
  const TokenPlaces places = {.token_slots = params.token_slots.data()};
  const auto num_tokens = static_cast<uint32_t>(params.token_slots.size());
  if (num_tokens == 0) return absl::OkStatus();
  return StatusOf(
      "cache write",
      LaunchWrite(ArgsOf(places, RowsOf(params.rows, params.kv, num_tokens), params.kv), stream));
}

absl::Status FitScales(const CacheWriteParams& params, Stream stream) {
  if (absl::Status status = CheckShapes(params.rows, params.kv); !status.ok()) return status;
  const auto num_tokens = static_cast<uint32_t>(params.token_slots.size());
  if (num_tokens == 0 || !params.kv.scales.per_slot()) return absl::OkStatus();
  const TokenPlaces places = {.token_slots = params.token_slots.data()};
  return StatusOf(
      "fit of scales",
      LaunchFitScales(ArgsOf(places, RowsOf(params.rows, params.kv, num_tokens), params.kv),
                      stream));
}

absl::Status FillCache(const CacheFillParams& params, uint32_t num_tokens, Stream stream) {
  if (absl::Status status = CheckShapes(params); !status.ok()) return status;
  const size_t num_sequences = params.first_positions.size();
  if (num_sequences == 0) return absl::OkStatus();
  const TokenPlaces places = {.starts = params.starts.data(),
                              .first_positions = params.first_positions.data(),
                              .block_tables = params.block_tables.data(),
                              .block_table_stride = params.block_table_stride,
                              .num_sequences = static_cast<uint32_t>(num_sequences)};
  return StatusOf(
      "cache fill",
      LaunchWrite(ArgsOf(places, RowsOf(params.rows, params.kv, num_tokens), params.kv), stream));
}

absl::Status GatherCache(const CacheGatherParams& params, uint32_t num_tokens, Stream stream) {
  if (absl::Status status = CheckShapes(params); !status.ok()) return status;
  const size_t num_sequences = params.starts.size() - 1;
  if (num_sequences == 0) return absl::OkStatus();
  const TokenPlaces places = {.starts = params.starts.data(),
                              .block_tables = params.block_tables.data(),
                              .block_table_stride = params.block_table_stride,
                              .num_sequences = static_cast<uint32_t>(num_sequences)};
  const uint32_t value_dim = params.kv.value_elements();
  const TokenRows rows = {.keys = static_cast<std::byte*>(params.keys),
                          .values = static_cast<std::byte*>(params.values),
                          .type = params.type,
                          .key_token_stride = uint64_t{params.kv.num_kv_heads} * params.kv.head_dim,
                          .value_token_stride = uint64_t{params.kv.num_kv_heads} * value_dim,
                          .num_tokens = num_tokens,
                          .value_dim = value_dim};
  return StatusOf("cache gather", LaunchGather(ArgsOf(places, rows, params.kv), stream));
}

}  // namespace pagoda::kernels::cuda
