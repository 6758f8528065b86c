// Builds the hash ids of prompts that do not exist as tokens.
#ifndef PAGODA_CLIENTS_PAGODA_PLAN_TRACE_PROMPT_BUILDER_H_
#define PAGODA_CLIENTS_PAGODA_PLAN_TRACE_PROMPT_BUILDER_H_

#include <algorithm>
#include <cstdint>
#include <vector>

namespace pagoda {

// The prompt so far, as texts of a number of tokens. Equal texts in the same order give equal ids,
// block by block; ids of different content differ, as 64-bit hashes do. A value: a copy is a branch
// of the conversation. Thread-compatible. Cost: O(blocks) for Append() and Ids().
class PromptBuilder {
 public:
  explicit PromptBuilder(uint32_t tokens_per_block) : tokens_per_block_(tokens_per_block) {}

  // Appends `tokens` tokens of the text with this number, from its start.
  void Append(uint64_t text, uint32_t tokens) {
    uint32_t offset = 0;
    while (offset < tokens) {
      const uint32_t part = std::min(tokens - offset, tokens_per_block_ - tail_tokens_);
      tail_ = Mix(Mix(Mix(tail_, text), offset), part);
      tail_tokens_ += part;
      offset += part;
      if (tail_tokens_ < tokens_per_block_) continue;
      full_.push_back(tail_);
      tail_tokens_ = 0;
    }
    tokens_ += tokens;
  }

  uint32_t tokens() const { return tokens_; }
  // With an id for a partial last block.
  std::vector<uint64_t> Ids() const {
    std::vector<uint64_t> ids = full_;
    if (tail_tokens_ > 0) ids.push_back(Mix(tail_, ~uint64_t{0}));
    return ids;
  }

 private:
  static uint64_t Mix(uint64_t hash, uint64_t value) {
    hash = (hash ^ value) * 0x9E3779B97F4A7C15u + 1;
    hash = (hash ^ hash >> 30) * 0xBF58476D1CE4E5B9u;
    hash = (hash ^ hash >> 27) * 0x94D049BB133111EBu;
    return hash ^ hash >> 31;
  }

  uint32_t tokens_per_block_;
  uint32_t tokens_ = 0;
  std::vector<uint64_t> full_;  // Ids of the full blocks.
  uint64_t tail_ = 0;           // Depends on everything so far.
  uint32_t tail_tokens_ = 0;
};

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODA_PLAN_TRACE_PROMPT_BUILDER_H_
