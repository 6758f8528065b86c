#include "kernels/cache_checks.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/counted.h"
#include "kernels/shape_checks.h"

namespace pagoda::kernels {
namespace {

// Checks that a sequence's table has slots for the positions first to end - 1.
absl::Status CheckTable(const KvLayer& kv, absl::Span<const int32_t> block_tables,
                        uint64_t block_table_stride, size_t sequence, uint64_t first,
                        uint64_t end) {
  if (first == end) return absl::OkStatus();
  const uint64_t end_block = (end - 1) / kv.tokens_per_block + 1;
  if (end_block > block_table_stride) {
    return InvalidArgument("block_tables has ", Counted(block_table_stride, "entry"),
                           " a sequence; the ", Counted(end, "token"), " of sequence ", sequence,
                           " need ", end_block);
  }
  const int32_t* table = block_tables.data() + sequence * block_table_stride;
  for (uint64_t i = first / kv.tokens_per_block; i < end_block; ++i) {
    if (table[i] >= 0 && static_cast<uint32_t>(table[i]) < kv.num_slots) continue;
    return InvalidArgument("block_tables[", sequence, "][", i, "] is ", table[i],
                           ", not a slot of the pool's ", kv.num_slots);
  }
  return absl::OkStatus();
}

// Checks that the starts ascend from 0. CheckShapes has checked that they are not empty.
absl::Status CheckStarts(absl::Span<const int32_t> starts) {
  if (starts[0] != 0) return InvalidArgument("starts begins with ", starts[0], ", not 0");
  for (size_t s = 1; s < starts.size(); ++s) {
    if (starts[s] >= starts[s - 1]) continue;
    return InvalidArgument("starts descends at sequence ", s - 1, ": ", starts[s - 1], ", then ",
                           starts[s]);
  }
  return absl::OkStatus();
}

// Checks that no copy's target is another copy's target or source.
absl::Status CheckDisjoint(const BlockCopyParams& params) {
  if (params.copies.size() < 2) return absl::OkStatus();
  std::vector<uint32_t> targets(params.copies.size());
  std::transform(params.copies.begin(), params.copies.end(), targets.begin(),
                 [](const SlotCopy& copy) { return copy.target; });
  std::sort(targets.begin(), targets.end());
  const auto twice = std::adjacent_find(targets.begin(), targets.end());
  if (twice != targets.end())
    return InvalidArgument("copies have slot ", *twice, " as target twice");
  if (params.source != params.target) return absl::OkStatus();
  for (size_t i = 0; i < params.copies.size(); ++i) {
    const uint32_t source = params.copies[i].source;
    if (!std::binary_search(targets.begin(), targets.end(), source)) continue;
    return InvalidArgument("copies[", i, "].source is slot ", source, ", the target of another");
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

absl::Status CheckHostArguments(const BlockCopyParams& params) {
  if (absl::Status status = CheckShapes(params); !status.ok()) return status;
  for (size_t i = 0; i < params.copies.size(); ++i) {
    const SlotCopy& copy = params.copies[i];
    if (copy.source >= params.source_slots) {
      return InvalidArgument("copies[", i, "].source is slot ", copy.source, " of ",
                             params.source_slots);
    }
    if (copy.target >= params.target_slots) {
      return InvalidArgument("copies[", i, "].target is slot ", copy.target, " of ",
                             params.target_slots);
    }
    if (params.source == params.target && copy.source == copy.target) {
      return InvalidArgument("copies[", i, "] copies slot ", copy.source, " onto itself");
    }
  }
  return CheckDisjoint(params);
}

}  // namespace pagoda::kernels
