// Runs of tokens that are neighbours both in their block and among contiguous rows. Cache writes
// and reads move one run at a time.
#ifndef PAGODA_KERNELS_CPU_CACHE_TOKEN_RUNS_H_
#define PAGODA_KERNELS_CPU_CACHE_TOKEN_RUNS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"

namespace pagoda::kernels::cpu {

struct TokenRun {
  uint64_t first_row = 0;
  uint32_t slot = 0;
  uint32_t first_token = 0;  // In the slot's block.
  uint32_t num_tokens = 0;
};

// Calls visit(TokenRun) for the rows begin to end - 1 of a slot mapping; skips negative slots.
template <class Visit>
void ForRunsOfSlots(absl::Span<const int64_t> token_slots, uint32_t tokens_per_block,
                    uint64_t begin, uint64_t end, const Visit& visit) {
  for (uint64_t row = begin; row < end;) {
    const int64_t token_slot = token_slots[row];
    if (token_slot < 0) {
      ++row;
      continue;
    }
    const auto token = static_cast<uint32_t>(token_slot % tokens_per_block);
    const uint64_t most = std::min<uint64_t>(tokens_per_block - token, end - row);
    uint32_t count = 1;
    while (count < most && token_slots[row + count] == token_slot + count) ++count;
    visit(TokenRun{.first_row = row,
                   .slot = static_cast<uint32_t>(token_slot / tokens_per_block),
                   .first_token = token,
                   .num_tokens = count});
    row += count;
  }
}

// The rows of sequences. Those of sequence s are starts[s] to starts[s + 1] - 1. They hold the
// positions from first_positions[s] on, or from 0 on if first_positions is empty.
struct SequenceRows {
  absl::Span<const int32_t> starts;
  absl::Span<const int32_t> first_positions;
  absl::Span<const int32_t> block_tables;
  uint64_t block_table_stride = 0;
  uint32_t tokens_per_block = 0;
};

// Calls visit(TokenRun) for the rows begin to end - 1.
template <class Visit>
void ForRunsOfSequences(const SequenceRows& rows, uint64_t begin, uint64_t end,
                        const Visit& visit) {
  // The last sequence that starts at or before `begin`. Empty ones before it have no rows.
  const auto after = std::upper_bound(
      rows.starts.begin(), rows.starts.end(), begin,
      [](uint64_t row, int32_t start) { return row < static_cast<uint64_t>(start); });
  auto sequence = static_cast<size_t>(after - rows.starts.begin()) - 1;
  for (uint64_t row = begin; row < end; ++sequence) {
    const auto start = static_cast<uint64_t>(rows.starts[sequence]);
    const uint64_t sequence_end =
        std::min<uint64_t>(static_cast<uint64_t>(rows.starts[sequence + 1]), end);
    const uint64_t first_position =
        rows.first_positions.empty() ? 0 : static_cast<uint64_t>(rows.first_positions[sequence]);
    const int32_t* table = rows.block_tables.data() + sequence * rows.block_table_stride;
    while (row < sequence_end) {
      const uint64_t position = first_position + (row - start);
      const auto token = static_cast<uint32_t>(position % rows.tokens_per_block);
      const uint64_t count = std::min<uint64_t>(rows.tokens_per_block - token, sequence_end - row);
      visit(TokenRun{.first_row = row,
                     .slot = static_cast<uint32_t>(table[position / rows.tokens_per_block]),
                     .first_token = token,
                     .num_tokens = static_cast<uint32_t>(count)});
      row += count;
    }
  }
}

}  // namespace pagoda::kernels::cpu

#endif  // PAGODA_KERNELS_CPU_CACHE_TOKEN_RUNS_H_
