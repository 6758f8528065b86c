#include "engine/model/backend/model_input.h"

#include <algorithm>

#include "base/check.h"

namespace pagoda {
namespace {

// The token slots and the table of one sequence, the s-th.
void AddToWindow(const SequenceInput& sequence, absl::Span<const SlotIndex> table, size_t s,
                 uint32_t tokens_per_block, ModelInput::Window& window) {
  const uint64_t end = sequence.first_position + sequence.tokens.size();
  PAGODA_CHECK(end <= table.size() * tokens_per_block, "the block table covers the tokens");
  for (uint64_t position = sequence.first_position; position < end; ++position) {
    const SlotIndex slot = table[position / tokens_per_block];
    PAGODA_CHECK(slot != kNoSlot, "a token that is computed has a slot");
    window.token_slots.push_back(int64_t{slot.value()} * tokens_per_block +
                                 static_cast<int64_t>(position % tokens_per_block));
  }
  const auto row =
      window.block_tables.begin() + static_cast<ptrdiff_t>(s * window.block_table_stride);
  std::transform(table.begin(), table.end(), row, [](SlotIndex slot) {
    return slot == kNoSlot ? -1 : static_cast<int32_t>(slot.value());
  });
}

}  // namespace

std::vector<WindowSize> WindowsOf(const ModelConfig& config) {
  std::vector<WindowSize> windows;
  for (const LayerConfig& layer : config.layers) windows.push_back(layer.window);
  std::sort(windows.begin(), windows.end());
  windows.erase(std::unique(windows.begin(), windows.end()), windows.end());
  return windows;
}

void MakeInput(absl::Span<const SequenceInput> sequences, absl::Span<const WindowSize> windows,
               uint32_t tokens_per_block, ModelInput& input) {
  input.tokens.clear();
  input.positions.clear();
  input.query_starts.assign(1, 0);
  input.context_lengths.clear();
  input.adapters.clear();
  input.rotary_ranges.clear();
  input.logit_rows.clear();
  input.draws.clear();
  for (const SequenceInput& sequence : sequences) {
    PAGODA_CHECK(!sequence.tokens.empty(), "a sequence in a step has tokens");
    PAGODA_CHECK(sequence.num_logits <= sequence.tokens.size(), "logits are of the step's tokens");
    PAGODA_CHECK(sequence.tables.size() == windows.size(), "a sequence has a table in each window");
    input.tokens.insert(input.tokens.end(), sequence.tokens.begin(), sequence.tokens.end());
    const auto end = static_cast<uint32_t>(input.tokens.size());
    for (uint32_t i = 0; i < sequence.tokens.size(); ++i) {
      input.positions.push_back(static_cast<int32_t>(sequence.first_position + i));
    }
    for (uint32_t i = end - sequence.num_logits; i < end; ++i) input.logit_rows.push_back(i);
    input.query_starts.push_back(static_cast<int32_t>(end));
    input.context_lengths.push_back(input.positions.back() + 1);
    input.adapters.push_back(sequence.adapter);
    if (sequence.rotary_range == RotaryRange::kLong) {
      input.rotary_ranges.resize(end - sequence.tokens.size(), RotaryRange::kShort);
      input.rotary_ranges.resize(end, RotaryRange::kLong);
    }
  }
  if (!input.rotary_ranges.empty()) {
    input.rotary_ranges.resize(input.tokens.size(), RotaryRange::kShort);
  }

  input.windows.resize(windows.size());
  for (size_t w = 0; w < windows.size(); ++w) {
    ModelInput::Window& window = input.windows[w];
    window.window = windows[w];
    window.token_slots.clear();
    window.block_table_stride = 0;
    for (const SequenceInput& sequence : sequences) {
      window.block_table_stride =
          std::max<uint64_t>(window.block_table_stride, sequence.tables[w].size());
    }
    window.block_tables.assign(sequences.size() * window.block_table_stride, -1);
    for (size_t s = 0; s < sequences.size(); ++s) {
      AddToWindow(sequences[s], sequences[s].tables[w], s, tokens_per_block, window);
    }
  }
}

}  // namespace pagoda
