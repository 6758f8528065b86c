// Log lines about the page sizes of the pools in host memory.
#ifndef PAGODA_SERVER_CACHE_POOL_PAGES_H_
#define PAGODA_SERVER_CACHE_POOL_PAGES_H_

#include <string>
#include <vector>

#include "pools/memory/huge_pages.h"
#include "pools/pool.h"
#include "server/log/log.h"

namespace pagoda::server {

struct PagesLine {
  LogLevel level = LogLevel::kInfo;
  std::string text;
};

// A line for each tier in host memory: the pages of its pools and, if some are plain or differ from
// `asked`, why there are no larger ones. It is a warning if `asked` (cache.huge_pages) names a page
// size and a pool has other pages. `tier_names` has a name for each tier of `pools`.
std::vector<PagesLine> DescribePages(const PoolSet& pools,
                                     const std::vector<std::string>& tier_names, HugePages asked);

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_CACHE_POOL_PAGES_H_
