// The kind of configuration key that says how much of a tier there is to be.
#ifndef PAGODA_SERVER_CONFIG_TIER_SIZE_KEY_H_
#define PAGODA_SERVER_CONFIG_TIER_SIZE_KEY_H_

#include <cstdint>
#include <string>

#include "pools/sizing.h"
#include "server/config/config_keys.h"

namespace pagoda::server {

// One of: blocks of each window (1024), or a list of them, one for each window, the smallest window
// first ([512, 1024]); bytes of all windows together, with a unit (8GiB, 512MiB, 64KiB, 100B); a
// share of the memory that is free at the start (50%, 12.5%), whose free_bytes the daemon fills in.
// Counts of blocks are from `min_blocks` to kMaxBlocks.
ConfigKey TierSizeKey(std::string name, TierBudget* field, uint32_t min_blocks);

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_CONFIG_TIER_SIZE_KEY_H_
