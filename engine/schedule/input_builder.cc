#include "engine/schedule/input_builder.h"

#include <algorithm>

#include "pools/check.h"

namespace pagoda {

InputBuilder::InputBuilder(std::vector<WindowSize> windows, uint32_t tokens_per_block)
    : tokens_per_block_(tokens_per_block) {
  for (const WindowSize window : windows) input_.windows.push_back({.window = window});
  Clear();
}

void InputBuilder::Clear() {
  sequences_.clear();
  input_.tokens.clear();
  input_.positions.clear();
  input_.query_starts.assign(1, 0);
  input_.context_lengths.clear();
  input_.logit_rows.clear();
}

uint32_t InputBuilder::Add(absl::Span<const TokenId> tokens, uint32_t first,
                           absl::Span<const TokenId> drafts, uint32_t num_logits,
                           absl::Span<const std::vector<int32_t>> tables) {
  PAGODA_CHECK(tables.size() == input_.windows.size(), "a table for each window");
  const auto count = static_cast<uint32_t>(tokens.size() + drafts.size());
  PAGODA_CHECK(num_logits <= count, "logits are of the step's tokens");
  input_.tokens.insert(input_.tokens.end(), tokens.begin(), tokens.end());
  input_.tokens.insert(input_.tokens.end(), drafts.begin(), drafts.end());
  for (uint32_t i = 0; i < count; ++i) input_.positions.push_back(static_cast<int32_t>(first + i));
  const auto end = static_cast<uint32_t>(input_.tokens.size());
  input_.query_starts.push_back(static_cast<int32_t>(end));
  input_.context_lengths.push_back(static_cast<int32_t>(first + count));
  const auto row = static_cast<uint32_t>(input_.logit_rows.size());
  for (uint32_t i = end - num_logits; i < end; ++i) input_.logit_rows.push_back(i);
  sequences_.push_back({first, count, tables});
  return row;
}

const ModelInput& InputBuilder::Finish() {
  for (size_t w = 0; w < input_.windows.size(); ++w) {
    ModelInput::Window& window = input_.windows[w];
    size_t stride = 1;
    for (const Part& part : sequences_) stride = std::max(stride, part.tables[w].size());
    window.block_table_stride = stride;
    window.block_tables.assign(stride * sequences_.size(), -1);
    window.token_slots.clear();
    for (size_t s = 0; s < sequences_.size(); ++s) {
      const Part& part = sequences_[s];
      const std::vector<int32_t>& table = part.tables[w];
      std::copy(table.begin(), table.end(),
                window.block_tables.begin() + static_cast<ptrdiff_t>(s * stride));
      for (uint32_t t = part.first; t < part.first + part.count; ++t) {
        const uint64_t block = tokens_per_block_.BlockForToken(t);
        PAGODA_CHECK(block < table.size() && table[block] >= 0, "the table has room for the token");
        window.token_slots.push_back(int64_t{table[block]} * tokens_per_block_.value() +
                                     tokens_per_block_.OffsetInBlock(t));
      }
    }
  }
  return input_;
}

}  // namespace pagoda
