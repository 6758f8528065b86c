// The configuration key for the size of a tier.
#ifndef PAGODA_SERVER_CONFIG_TIER_SIZE_KEY_H_
#define PAGODA_SERVER_CONFIG_TIER_SIZE_KEY_H_

#include <cstdint>
#include <string>

#include "pools/sizing.h"
#include "server/config/config_keys.h"

namespace pagoda::server {

// The size has one of these forms:
// * a number of blocks for each window (1024), from `min_blocks` to kMaxBlocks;
// * a list of such numbers, one for each window, the smallest window first ([512, 1024]);
// * bytes for all windows together, with a unit (8GiB, 1.5TB; ParseByteSizeWithUnit);
// * a share of the memory that is free at the start (50%, 12.5%); the daemon fills in free_bytes.
ConfigKey TierSizeKey(std::string name, TierBudget* field, uint32_t min_blocks);

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_CONFIG_TIER_SIZE_KEY_H_
