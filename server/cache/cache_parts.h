// One served cache, as calls and lists see it.
#ifndef PAGODA_SERVER_CACHE_CACHE_PARTS_H_
#define PAGODA_SERVER_CACHE_CACHE_PARTS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "manager/ids.h"
#include "manager/shared_manager.h"
#include "pools/layout.h"
#include "pools/pool.h"
#include "pools/transfers.h"
#include "server/memory/writer_processes.h"
#include "wire/caches.h"

namespace pagoda::server {

class CacheStreams;
class DiskTier;
class PoolExport;
class StatusHistory;

// A daemon numbers its caches, from 0. The sessions of a cache have its number in the upper half of
// their ids, so a session's id alone says whose it is.
constexpr uint32_t CacheNumberOf(SessionId session) {
  return static_cast<uint32_t>(session.value() >> 32);
}
constexpr SessionId LastSessionBefore(uint32_t cache_number) {
  return SessionId(uint64_t{cache_number} << 32);
}

// What the pools, or the files, of a tier take.
struct CacheTierBytes {
  Medium medium = Medium::kHost;
  uint64_t bytes = 0;
};

// What a cache has. The pointers live as long as this object; nullptr where a part is said to be
// missing.
struct CacheParts {
  uint32_t number = 0;
  std::string name;
  // Whose it is: the tenant whose client opened it. kDefaultTenant: everybody may use it.
  TenantId tenant = kDefaultTenant;
  // None: it is the configuration's, which nobody drops.
  std::optional<CacheIdentity> identity;
  absl::Time opened;

  SharedManager* manager = nullptr;
  const CacheLayout* layout = nullptr;
  const PoolSet* pools = nullptr;
  const Transfers* transfers = nullptr;
  WriterProcesses* writers = nullptr;       // None: nobody has ever mapped the pools.
  const DiskTier* disk = nullptr;           // None: it has no tier on disk.
  const PoolExport* pool_export = nullptr;  // None: nobody maps the pools.
  CacheStreams* streams = nullptr;
  const StatusHistory* history = nullptr;  // None: the daemon has no HTTP.
  std::vector<CacheTierBytes> tier_bytes;  // Nearest first.
};

// Whether it is the cache of the daemon's configuration, over which its own engine and the bridges
// run.
inline bool IsConfigured(const CacheParts& cache) { return !cache.identity.has_value(); }

// Keeps the cache, and what it points to, alive.
using CachePtr = std::shared_ptr<const CacheParts>;

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_CACHE_CACHE_PARTS_H_
