#ifndef PAGODA_ENGINE_SERVE_LOCAL_LOCAL_CACHE_H_
#define PAGODA_ENGINE_SERVE_LOCAL_LOCAL_CACHE_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "events/event_log.h"
#include "manager/api/cache_client.h"
#include "manager/shared_manager.h"
#include "pools/layout.h"
#include "pools/memory/memory_place.h"
#include "pools/pool.h"
#include "pools/transfers.h"

namespace pagoda {

// A paged cache of this process: the pools, the block manager over them and the copies between
// blocks, as in the daemon, with one tier and without a server. Thread-safe.
class LocalCache {
 public:
  struct Options {
    CacheSpec spec;
    uint32_t blocks = 0;  // Per window.
    // The device of the pools. None: host memory, whose pages are taken when they are touched.
    std::optional<MemoryPlace> device;
  };

  // Errors: those of CacheLayout::Create, PoolSet::Create, BlockManager::Create and
  // cuda::MakeTransfers.
  static absl::StatusOr<std::unique_ptr<LocalCache>> Create(const Options& options);
  ~LocalCache();

  // A session. This object outlives it. Errors: those of OpenLocalCacheClient.
  absl::StatusOr<std::unique_ptr<CacheClient>> OpenClient();

 private:
  LocalCache(std::unique_ptr<PoolSet> pools, std::unique_ptr<BlockManager> core);

  const std::unique_ptr<PoolSet> pools_;
  EventLog log_;  // Nobody reads it.
  SharedManager manager_;
  std::unique_ptr<Transfers> transfers_;
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_SERVE_LOCAL_LOCAL_CACHE_H_
