// A cached prefix as a picture and a table. Knows no terminal but as a value.
#ifndef PAGODA_CLIENTS_PAGODACTL_INSPECT_TEXT_H_
#define PAGODA_CLIENTS_PAGODACTL_INSPECT_TEXT_H_

#include <cstdint>
#include <string>

#include "clients/pagodactl/terminal.h"
#include "nlohmann/json.hpp"
#include "pagoda/v1/admin.pb.h"
#include "pagoda/v1/cache.pb.h"

namespace pagoda {

// For each window a cell for each block of the prompt's `token_count` tokens, by its nearest tier,
// pinned or not there; then its runs of blocks that are alike, a line each. Where the cache has a
// tier on disk, also how many tokens lie in which tier. Ends with a newline.
std::string InspectText(const v1::InspectPrefixResponse& prefix, const v1::CacheInfo& cache,
                        uint32_t token_count, const Terminal& terminal);
// Every block by itself.
nlohmann::ordered_json InspectJson(const v1::InspectPrefixResponse& prefix,
                                   const v1::CacheInfo& cache, uint32_t token_count);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODACTL_INSPECT_TEXT_H_
