// A cache's tiers as --tiers names them.
#ifndef PAGODA_CLIENTS_PAGODACTL_LADDER_H_
#define PAGODA_CLIENTS_PAGODACTL_LADDER_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "pools/sizing.h"
#include "pools/types.h"

namespace pagoda {

struct LadderTier {
  std::string name;
  Medium medium = Medium::kHost;
  std::string size;  // As it was given.
  TierBudget budget = BlockBudget{{0}};

  bool in_blocks() const { return std::holds_alternative<BlockBudget>(budget); }
  // For people: "80GiB", "1,000 blocks".
  std::string SizeText() const;
};

// A tier of `size`, as ParseLadder() reads it. REQUIRES: it is a size.
LadderTier TierOfSize(std::string name, Medium medium, const std::string& size);

// "hbm:gpu:80GiB,dram:host:200GiB,nvme:disk:2TiB": tiers, nearest first. A name is as
// CheckTierName() has it; a medium is gpu, host or disk; a size is blocks of each window (1000) or
// bytes of all windows (see ParseBytes). Errors: INVALID_ARGUMENT for no tiers or more than
// kMaxTiers, what is no tier, a size of nothing or of more than kMaxBlocks blocks, two tiers of one
// name, a first tier on disk, and a farther one on a GPU.
absl::StatusOr<std::vector<LadderTier>> ParseLadder(const std::string& text);

// What is wrong with a ladder, for a parser of options; empty: nothing.
std::string CheckLadder(const std::string& text);

// For PlanSizes().
std::vector<TierRequest> TierRequests(const std::vector<LadderTier>& ladder);

// The tier on disk; null where there is none. REQUIRES: the ladder outlives the result.
const LadderTier* FindDisk(const std::vector<LadderTier>& ladder);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODACTL_LADDER_H_
