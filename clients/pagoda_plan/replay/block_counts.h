// Parses lists of capacities, the value of --blocks.
#ifndef PAGODA_CLIENTS_PAGODA_PLAN_REPLAY_BLOCK_COUNTS_H_
#define PAGODA_CLIENTS_PAGODA_PLAN_REPLAY_BLOCK_COUNTS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace pagoda {

inline constexpr size_t kMaxBlockCounts = 1000;

// Parses numbers of blocks, separated by commas: "1000,3000". An entry can be a range, from a
// number to a number by a factor: "1000:100000:x2" is 1000, 2000, 4000 and so on, and 100000 as
// the last one. The factor can have decimals. Errors: INVALID_ARGUMENT for no entry or more than
// kMaxBlockCounts, a malformed entry, a number above kMaxBlocks, a range that does not rise or
// starts at 0, and a factor of 1 or less.
absl::StatusOr<std::vector<uint32_t>> ParseBlockCounts(const std::string& text);

// For options of CLI11: the error in a list; empty if it is valid.
std::string CheckBlockCounts(const std::string& text);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODA_PLAN_REPLAY_BLOCK_COUNTS_H_
