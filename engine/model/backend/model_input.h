// The input of one step of a model.
#ifndef PAGODA_ENGINE_MODEL_BACKEND_MODEL_INPUT_H_
#define PAGODA_ENGINE_MODEL_BACKEND_MODEL_INPUT_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "engine/checkpoint/config/model_config.h"
#include "engine/words/adapter_index.h"
#include "engine/words/rotary_range.h"
#include "engine/words/token_draw.h"
#include "pools/types.h"

namespace pagoda {

// The windows of the model's layers, each once, ascending; full attention, the largest, is last.
// CacheLayout and KvPools use the same order.
std::vector<WindowSize> WindowsOf(const ModelConfig& config);

// N new tokens of S sequences, in the form that the kernels take (kernels/paged_attention.h,
// kernels/cache_write.h). A sequence's tokens are contiguous and in order of position.
struct ModelInput {
  // The slots for the KV of one window's layers.
  struct Window {
    WindowSize window = kFullAttention;
    std::vector<int64_t> token_slots;   // [N] the destinations of the tokens' K and V.
    std::vector<int32_t> block_tables;  // [S][block_table_stride] slots by position; see below.
    uint64_t block_table_stride = 0;    // In elements.
  };

  std::vector<TokenId> tokens;             // [N]
  std::vector<int32_t> positions;          // [N]
  std::vector<int32_t> query_starts;       // [S + 1] the start of each sequence's tokens, from 0 to
                                           // N.
  std::vector<int32_t> context_lengths;    // [S] the position of its last token, plus one.
  std::vector<AdapterIndex> adapters;      // [S] the adapter of its tokens. Empty: all kNoAdapter.
  std::vector<RotaryRange> rotary_ranges;  // [N]. Empty: all kShort.
  // In the order of WindowsOf. A table's entries are -1 behind the context's end. They can be -1
  // for blocks that the window has passed for all tokens of the input. Kernels do not read these
  // entries.
  std::vector<Window> windows;
  std::vector<uint32_t> logit_rows;  // The tokens, as indices below N, that need logits.
  // How the backend can choose the tokens behind logit_rows, if it does that. Empty: not at all.
  std::vector<TokenDraw> draws;
};

// The result of a step, valid until the next one.
struct ModelOutput {
  ModelOutput() = default;
  // Without chosen tokens. Implicit, so that functions that know no draws can return it.
  ModelOutput(absl::Span<const float> all) : logits(all) {}  // NOLINT(google-explicit-constructor)

  // Whether the row's logits are there.
  bool has_logits(size_t row) const { return tokens.empty() || tokens[row] == kNotDrawn; }

  // [logit_rows][vocab_size] on the host, after the model's soft cap. Rows for which has_logits is
  // false are undefined.
  absl::Span<const float> logits;
  // [logit_rows], or empty if the backend chose none: the chosen token, kNotDrawn or kNoNumber.
  absl::Span<const uint32_t> tokens;
};

// One sequence's part of a step. The spans must stay valid until MakeInput has returned.
struct SequenceInput {
  // At least one token, at the positions from first_position on. The KV of earlier positions is
  // complete, unless the window has passed it.
  absl::Span<const TokenId> tokens;
  uint32_t first_position = 0;
  // By window, in the order of WindowsOf: the slots of the sequence's blocks from position 0 on,
  // including slots for `tokens`. kNoSlot for blocks that the window has passed.
  absl::Span<const absl::Span<const SlotIndex>> tables;
  uint32_t num_logits = 0;  // How many of the last tokens need logits.
  AdapterIndex adapter = kNoAdapter;
  RotaryRange rotary_range = RotaryRange::kShort;  // The same in all steps of the sequence.
};

// Concatenates the sequences. `input` keeps its memory from step to step, so that later steps
// allocate nothing. Logit rows are in the order of the sequences and of their tokens, and have no
// draws. REQUIRES: a
// table for each of `windows`, with a slot for each of the tokens.
void MakeInput(absl::Span<const SequenceInput> sequences, absl::Span<const WindowSize> windows,
               uint32_t tokens_per_block, ModelInput& input);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_MODEL_BACKEND_MODEL_INPUT_H_
