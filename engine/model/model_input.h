// What goes through a model at once.
#ifndef PAGODA_ENGINE_MODEL_MODEL_INPUT_H_
#define PAGODA_ENGINE_MODEL_MODEL_INPUT_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "engine/checkpoint/model_config.h"
#include "pools/types.h"

namespace pagoda {

// The windows of the model's layers, each once, ascending: full attention, the largest, comes last.
// CacheLayout and KvPools have them in this order, too.
std::vector<WindowSize> WindowsOf(const ModelConfig& config);

// N new tokens of S sequences, in the form that the kernels take (kernels/paged_attention.h,
// kernels/cache_write.h). A sequence's tokens lie side by side and follow each other in position.
struct ModelInput {
  // Where the KV of one window's layers lies.
  struct Window {
    WindowSize window = kFullAttention;
    std::vector<int64_t> token_slots;   // [N] where the tokens' K and V go.
    std::vector<int32_t> block_tables;  // [S][block_table_stride] slots by position; see below.
    uint64_t block_table_stride = 0;    // In elements.
  };

  std::vector<TokenId> tokens;           // [N]
  std::vector<int32_t> positions;        // [N]
  std::vector<int32_t> query_starts;     // [S + 1] where each sequence's tokens begin, from 0 to N.
  std::vector<int32_t> context_lengths;  // [S] the position of its last token, plus one.
  // Those of WindowsOf, in its order. A table's entries are -1 behind the context's end, and may be
  // -1 for blocks that no token of the input sees any more: the window has passed them. Those are
  // not read.
  std::vector<Window> windows;
  std::vector<uint32_t> logit_rows;  // The tokens, by index below N, whose logits are wanted.
};

// One sequence's share of a step. Borrows; what it names lives until MakeInput has returned.
struct SequenceInput {
  // At least one, at the positions from first_position on. The KV of the positions before is
  // complete, as far as windows have not passed it.
  absl::Span<const TokenId> tokens;
  uint32_t first_position = 0;
  // By window, in the order of WindowsOf: the slots of the sequence's blocks from position 0 on,
  // with room for the tokens; kNoSlot where the window has passed.
  absl::Span<const absl::Span<const SlotIndex>> tables;
  uint32_t num_logits = 0;  // The logits of so many of the last tokens are wanted.
};

// Puts the sequences side by side. `input` keeps its memory from step to step, so that in the long
// run nothing is allocated. Logit rows are in the order of the sequences, and of their tokens.
// REQUIRES: a table for each of `windows`, with a slot for each of the tokens.
void MakeInput(absl::Span<const SequenceInput> sequences, absl::Span<const WindowSize> windows,
               uint32_t tokens_per_block, ModelInput& input);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_MODEL_MODEL_INPUT_H_
