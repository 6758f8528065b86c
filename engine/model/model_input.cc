#include "engine/model/model_input.h"

#include "pools/check.h"

namespace pagoda {

ModelInput InputOfSequence(absl::Span<const TokenId> tokens, uint32_t first_position,
                           absl::Span<const SlotIndex> block_table, uint32_t tokens_per_block) {
  const uint64_t end = first_position + tokens.size();
  PAGODA_CHECK(end <= block_table.size() * tokens_per_block, "the block table has room");
  ModelInput input;
  input.tokens.assign(tokens.begin(), tokens.end());
  for (uint64_t position = first_position; position < end; ++position) {
    const SlotIndex slot = block_table[position / tokens_per_block];
    input.positions.push_back(static_cast<int32_t>(position));
    input.token_slots.push_back(int64_t{slot.value()} * tokens_per_block +
                                static_cast<int64_t>(position % tokens_per_block));
  }
  input.query_starts = {0, static_cast<int32_t>(tokens.size())};
  input.context_lengths = {static_cast<int32_t>(end)};
  for (const SlotIndex slot : block_table) {
    input.block_tables.push_back(static_cast<int32_t>(slot.value()));
  }
  input.block_table_stride = block_table.size();
  return input;
}

}  // namespace pagoda
