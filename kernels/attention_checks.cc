#include "kernels/attention_checks.h"

#include <cstddef>
#include <cstdint>

#include "kernels/shape_checks.h"

namespace pagoda::kernels {
namespace {

absl::Status CheckTable(const PagedAttentionParams& params, size_t sequence) {
  const uint64_t context = static_cast<uint64_t>(params.context_lengths[sequence]);
  const uint64_t blocks = (context + params.kv.tokens_per_block - 1) / params.kv.tokens_per_block;
  if (blocks > params.block_table_stride) {
    return InvalidArgument("block_tables has ", params.block_table_stride,
                           " entries a sequence; the context of ", context, " tokens of sequence ",
                           sequence, " needs ", blocks);
  }
  const int32_t* table = params.block_tables.data() + sequence * params.block_table_stride;
  for (uint64_t i = 0; i < blocks; ++i) {
    if (table[i] < 0 || static_cast<uint32_t>(table[i]) >= params.kv.num_slots) {
      return InvalidArgument("block_tables[", sequence, "][", i, "] is ", table[i],
                             ", not a slot of the pool's ", params.kv.num_slots);
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckHostArguments(const PagedAttentionParams& params) {
  if (absl::Status status = CheckShapes(params); !status.ok()) return status;
  if (params.query_starts[0] != 0) {
    return InvalidArgument("query_starts begins with ", params.query_starts[0], ", not 0");
  }
  for (size_t s = 0; s < params.context_lengths.size(); ++s) {
    const int64_t queries = int64_t{params.query_starts[s + 1]} - params.query_starts[s];
    if (queries < 0) {
      return InvalidArgument("query_starts descends at sequence ", s, ": ", params.query_starts[s],
                             ", then ", params.query_starts[s + 1]);
    }
    if (params.context_lengths[s] < queries) {
      return InvalidArgument("context_lengths[", s, "] is ", params.context_lengths[s],
                             ", shorter than its ", queries, " query tokens");
    }
    if (absl::Status status = CheckTable(params, s); !status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace pagoda::kernels
