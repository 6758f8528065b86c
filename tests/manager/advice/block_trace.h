// A workload of block-wise prompts, and what a cache makes of it.
#ifndef PAGODA_TESTS_MANAGER_ADVICE_BLOCK_TRACE_H_
#define PAGODA_TESTS_MANAGER_ADVICE_BLOCK_TRACE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "manager/advice/hit_rate_curve.h"

namespace pagoda {

// One request: an id for each block of its prompt. Equal ids after equal prefixes are equal blocks.
struct BlockPrompt {
  int64_t time_ms = 0;
  std::vector<uint64_t> blocks;
};

// Conversations that share system prompts and grow with each turn. One in four requests begins a
// new conversation, the others go on with a recent one or, rarely, an old one. Deterministic.
std::vector<BlockPrompt> Conversations(uint64_t seed, size_t requests);

struct TraceRun {
  std::vector<uint32_t> tier_blocks;  // Nearest first.
  std::string policy = "lru";
  uint32_t samples = 16'384;  // ManagerOptions::max_distance_samples.
};
struct TraceResult {
  double hit_rate = 0;  // Blocks that hit, of those that were asked for.
  ReuseCounts counts;
};
// One request after another, through a BlockManager. Leaves out requests that do not fit the first
// tier.
TraceResult RunTrace(const std::vector<BlockPrompt>& requests, const TraceRun& run);

}  // namespace pagoda

#endif  // PAGODA_TESTS_MANAGER_ADVICE_BLOCK_TRACE_H_
