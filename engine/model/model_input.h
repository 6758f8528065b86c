// What goes through a model at once.
#ifndef PAGODA_ENGINE_MODEL_MODEL_INPUT_H_
#define PAGODA_ENGINE_MODEL_MODEL_INPUT_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "pools/types.h"

namespace pagoda {

// N new tokens of S sequences, in the form that the kernels take (kernels/paged_attention.h,
// kernels/cache_write.h).
struct ModelInput {
  std::vector<TokenId> tokens;           // [N]
  std::vector<int32_t> positions;        // [N]
  std::vector<int64_t> token_slots;      // [N] where their K and V go.
  std::vector<int32_t> query_starts;     // [S + 1]
  std::vector<int32_t> context_lengths;  // [S]
  std::vector<int32_t> block_tables;     // [S][block_table_stride]
  uint64_t block_table_stride = 0;
  std::vector<uint32_t> logit_rows;  // The tokens, by index below N, whose logits are wanted.
};

// One sequence: `tokens` at the positions from `first_position` on. The KV of the positions before
// is in the blocks of `block_table` already, and the table has room for the tokens. No logits are
// wanted yet.
ModelInput InputOfSequence(absl::Span<const TokenId> tokens, uint32_t first_position,
                           absl::Span<const SlotIndex> block_table, uint32_t tokens_per_block);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_MODEL_MODEL_INPUT_H_
