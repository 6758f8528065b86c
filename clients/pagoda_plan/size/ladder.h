// Parses a cache's list of tiers, the value of --tiers.
#ifndef PAGODA_CLIENTS_PAGODA_PLAN_SIZE_LADDER_H_
#define PAGODA_CLIENTS_PAGODA_PLAN_SIZE_LADDER_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "pools/sizing.h"
#include "pools/types.h"

namespace pagoda {

struct LadderTier {
  std::string name;
  Medium medium = Medium::kHost;
  std::string size;  // The size as the user gave it.
  TierBudget budget = BlockBudget{{0}};

  bool in_blocks() const { return std::holds_alternative<BlockBudget>(budget); }
  // For people: "80GiB", "1,000 blocks".
  std::string SizeText() const;
};

// Returns a tier of `size`, in the form that ParseLadder() reads. REQUIRES: the size is valid.
LadderTier TierOfSize(std::string name, Medium medium, const std::string& size);

// Parses tiers, nearest first: "hbm:gpu:80GiB,dram:host:200GiB,nvme:disk:2TiB". CheckTierName()
// checks a name. A medium is gpu, host or disk. A size is blocks of each window (1000) or bytes of
// all windows (see ParseByteSizeWithUnit). Errors: INVALID_ARGUMENT for no tier or more than
// kMaxTiers, a malformed tier, a size of 0 or above kMaxBlocks blocks, two tiers of one name, a
// first tier on disk, a disk that is not the last tier or not directly below one in host memory,
// and a later tier on a GPU.
absl::StatusOr<std::vector<LadderTier>> ParseLadder(const std::string& text);

// For options of CLI11: the error in a list of tiers; empty if it is valid.
std::string CheckLadder(const std::string& text);

// The input of PlanSizes().
std::vector<TierRequest> TierRequests(const std::vector<LadderTier>& ladder);

// The disk tier; null if there is none. REQUIRES: the ladder outlives the result.
const LadderTier* FindDisk(const std::vector<LadderTier>& ladder);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODA_PLAN_SIZE_LADDER_H_
