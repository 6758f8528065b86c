// What pages the pools in host memory got, told to people.
#ifndef PAGODA_SERVER_CACHE_POOL_PAGES_H_
#define PAGODA_SERVER_CACHE_POOL_PAGES_H_

#include <string>
#include <vector>

#include "pools/huge_pages.h"
#include "pools/pool.h"
#include "server/log.h"

namespace pagoda::server {

struct PagesLine {
  LogLevel level = LogLevel::kInfo;
  std::string text;
};

// A line for each tier in host memory, with the pages of its pools, and why there are no larger
// ones where that is news. A warning where `asked` names pages (cache.huge_pages) and a pool has
// others. `tier_names` has a name for each tier of `pools`.
std::vector<PagesLine> DescribePages(const PoolSet& pools,
                                     const std::vector<std::string>& tier_names, HugePages asked);

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_CACHE_POOL_PAGES_H_
