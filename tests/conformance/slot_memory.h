// The content of a cache's slots, for tests: one number for each token instead of its KV bytes.
#ifndef PAGODA_TESTS_CONFORMANCE_SLOT_MEMORY_H_
#define PAGODA_TESTS_CONFORMANCE_SLOT_MEMORY_H_

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "absl/types/span.h"
#include "pools/order.h"
#include "pools/types.h"

namespace pagoda {

class SlotMemory {
 public:
  explicit SlotMemory(uint32_t tokens_per_block) : tokens_per_block_(tokens_per_block) {}

  // The tokens of a slot, which are 0 until they are written.
  absl::Span<uint64_t> slot(WindowSize window, SlotRef slot) {
    std::vector<uint64_t>& tokens = slots_[{window, slot.tier, slot.slot}];
    tokens.resize(tokens_per_block_);
    return absl::MakeSpan(tokens);
  }

  void CarryOut(WindowSize window, const Order& order) {
    const absl::Span<const uint64_t> source = slot(window, order.source);
    const absl::Span<uint64_t> target = slot(window, order.target);
    for (uint32_t i = 0; i < order.num_tokens; ++i) target[i] = source[i];
  }

 private:
  const uint32_t tokens_per_block_;
  std::map<std::tuple<WindowSize, Tier, SlotIndex>, std::vector<uint64_t>> slots_;
};

}  // namespace pagoda

#endif  // PAGODA_TESTS_CONFORMANCE_SLOT_MEMORY_H_
