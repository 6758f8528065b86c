// Checks of cache writes, cache reads and block copies by the host, before they touch a pool.
#ifndef PAGODA_KERNELS_CACHE_CHECKS_H_
#define PAGODA_KERNELS_CACHE_CHECKS_H_

#include "absl/status/status.h"
#include "kernels/block_copy.h"
#include "kernels/cache_gather.h"
#include "kernels/cache_write.h"

namespace pagoda::kernels {

// CheckShapes, then the contents of slot mappings, starts, positions and block tables, which must
// be host memory. InvalidArgument names the argument and the entry. Cost: O(entries in use).
absl::Status CheckHostArguments(const CacheWriteParams& params);
absl::Status CheckHostArguments(const CacheFillParams& params);
absl::Status CheckHostArguments(const CacheGatherParams& params);

// CheckShapes, then the copies: each slot is inside its pool, no copy is onto itself, and no slot
// is touched by two copies if one of them writes it. Cost: O(n log n) in copies.
absl::Status CheckHostArguments(const BlockCopyParams& params);

}  // namespace pagoda::kernels

#endif  // PAGODA_KERNELS_CACHE_CHECKS_H_
