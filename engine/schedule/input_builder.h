// Makes the model's input of a step, sequence by sequence.
#ifndef PAGODA_ENGINE_SCHEDULE_INPUT_BUILDER_H_
#define PAGODA_ENGINE_SCHEDULE_INPUT_BUILDER_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "engine/model/model_input.h"
#include "pools/types.h"

namespace pagoda {

// Keeps its memory from step to step. Thread-compatible.
class InputBuilder {
 public:
  InputBuilder(std::vector<WindowSize> windows, uint32_t tokens_per_block);

  void Clear();
  // The sequence's `tokens` from position `first` on, with `drafts` behind them; the KV before is
  // in the tables' blocks already, and they have room for these. `tables` has one entry a window
  // and is looked at in Finish. The logits of the last `num_logits` of the tokens are wanted;
  // returns the row of the first of them among the wanted ones.
  uint32_t Add(absl::Span<const TokenId> tokens, uint32_t first, absl::Span<const TokenId> drafts,
               uint32_t num_logits, absl::Span<const std::vector<int32_t>> tables);
  bool empty() const { return sequences_.empty(); }
  // Valid until Clear.
  const ModelInput& Finish();

 private:
  struct Part {
    uint32_t first;
    uint32_t count;
    absl::Span<const std::vector<int32_t>> tables;
  };

  const TokensPerBlock tokens_per_block_;
  std::vector<Part> sequences_;
  ModelInput input_;
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_SCHEDULE_INPUT_BUILDER_H_
