#include "kernels/cache_checks.h"

#include <cstddef>
#include <cstdint>

#include "kernels/shape_checks.h"

namespace pagoda::kernels {
namespace {

// The table of a sequence has slots for the positions first to end - 1.
absl::Status CheckTable(const KvLayer& kv, absl::Span<const int32_t> block_tables,
                        uint64_t block_table_stride, size_t sequence, uint64_t first,
                        uint64_t end) {
  if (first == end) return absl::OkStatus();
  const uint64_t end_block = (end - 1) / kv.tokens_per_block + 1;
  if (end_block > block_table_stride) {
    return InvalidArgument("block_tables has ", block_table_stride, " entries a sequence; the ",
                           end, " tokens of sequence ", sequence, " need ", end_block);
  }
  const int32_t* table = block_tables.data() + sequence * block_table_stride;
  for (uint64_t i = first / kv.tokens_per_block; i < end_block; ++i) {
    if (table[i] >= 0 && static_cast<uint32_t>(table[i]) < kv.num_slots) continue;
    return InvalidArgument("block_tables[", sequence, "][", i, "] is ", table[i],
                           ", not a slot of the pool's ", kv.num_slots);
  }
  return absl::OkStatus();
}

// Ascending from 0. CheckShapes has found that there are some.
absl::Status CheckStarts(absl::Span<const int32_t> starts) {
  if (starts[0] != 0) return InvalidArgument("starts begins with ", starts[0], ", not 0");
  for (size_t s = 1; s < starts.size(); ++s) {
    if (starts[s] >= starts[s - 1]) continue;
    return InvalidArgument("starts descends at sequence ", s - 1, ": ", starts[s - 1], ", then ",
                           starts[s]);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckHostArguments(const CacheWriteParams& params) {
  if (absl::Status status = CheckShapes(params.rows, params.kv); !status.ok()) return status;
  const uint64_t capacity = uint64_t{params.kv.num_slots} * params.kv.tokens_per_block;
  for (size_t n = 0; n < params.token_slots.size(); ++n) {
    const int64_t token_slot = params.token_slots[n];
    if (token_slot < 0 || static_cast<uint64_t>(token_slot) < capacity) continue;
    return InvalidArgument("token_slots[", n, "] is ", token_slot, "; the pool has ", capacity);
  }
  return absl::OkStatus();
}

absl::Status CheckHostArguments(const CacheFillParams& params) {
  if (absl::Status status = CheckShapes(params); !status.ok()) return status;
  if (absl::Status status = CheckStarts(params.starts); !status.ok()) return status;
  for (size_t s = 0; s < params.first_positions.size(); ++s) {
    const int64_t first = params.first_positions[s];
    if (first < 0) return InvalidArgument("first_positions[", s, "] is ", first);
    const int64_t end = first + params.starts[s + 1] - params.starts[s];
    absl::Status status = CheckTable(params.kv, params.block_tables, params.block_table_stride, s,
                                     static_cast<uint64_t>(first), static_cast<uint64_t>(end));
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status CheckHostArguments(const CacheGatherParams& params) {
  if (absl::Status status = CheckShapes(params); !status.ok()) return status;
  if (absl::Status status = CheckStarts(params.starts); !status.ok()) return status;
  for (size_t s = 0; s + 1 < params.starts.size(); ++s) {
    const auto tokens = static_cast<uint64_t>(params.starts[s + 1] - params.starts[s]);
    absl::Status status =
        CheckTable(params.kv, params.block_tables, params.block_table_stride, s, 0, tokens);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace pagoda::kernels
