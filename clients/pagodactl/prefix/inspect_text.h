// Shows a cached prefix as a picture and a table. It does not touch the terminal.
#ifndef PAGODA_CLIENTS_PAGODACTL_PREFIX_INSPECT_TEXT_H_
#define PAGODA_CLIENTS_PAGODACTL_PREFIX_INSPECT_TEXT_H_

#include <cstdint>
#include <string>

#include "clients/command_line/terminal/terminal.h"
#include "pagoda/v1/admin.pb.h"
#include "pagoda/v1/cache.pb.h"

namespace pagoda {

// Draws, for each window, a cell for each block of the prompt's `token_count` tokens. The cell
// shows the block's nearest tier, or that it is pinned or not cached. Below is one line for each
// run of equal blocks. If the cache has a disk tier, the text also has the number of tokens in each
// tier. Ends with a newline.
std::string InspectText(const v1::InspectPrefixResponse& prefix, const v1::CacheInfo& cache,
                        uint32_t token_count, const Terminal& terminal);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODACTL_PREFIX_INSPECT_TEXT_H_
