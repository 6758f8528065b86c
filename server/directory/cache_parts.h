// The parts of one served cache that calls and lists use.
#ifndef PAGODA_SERVER_DIRECTORY_CACHE_PARTS_H_
#define PAGODA_SERVER_DIRECTORY_CACHE_PARTS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "manager/shared_manager.h"
#include "manager/words/ids.h"
#include "pools/layout.h"
#include "pools/pool.h"
#include "pools/transfers.h"
#include "server/memory/writer_processes.h"
#include "wire/caches.h"

namespace pagoda::server {

class CacheExchange;
class CacheStreams;
class DiskTier;
class PoolExport;
class StatusHistory;

// A daemon numbers its caches from 0. The upper half of a session's id is the number of its cache,
// so the id alone identifies the cache.
constexpr uint32_t CacheNumberOf(SessionId session) {
  return static_cast<uint32_t>(session.value() >> 32);
}
constexpr SessionId LastSessionBefore(uint32_t cache_number) {
  return SessionId(uint64_t{cache_number} << 32);
}

// The name under which PeerServer has a cache. A second cache of the same name can be opened before
// a dropped one has ended.
inline std::string PeerNameOf(uint32_t number, const std::string& cache) {
  return number == 0 ? cache : cache + "-" + std::to_string(number);
}

// The bytes of the pools or files of a tier.
struct CacheTierBytes {
  Medium medium = Medium::kHost;
  uint64_t bytes = 0;
};

// The pointers are valid as long as this object. A pointer is null only if its comment says so.
struct CacheParts {
  uint32_t number = 0;
  std::string name;
  // The tenant whose client opened the cache. kDefaultTenant: every tenant may use it.
  TenantId tenant = kDefaultTenant;
  // None: it is the configuration's cache, which cannot be dropped.
  std::optional<CacheIdentity> identity;
  absl::Time opened;

  SharedManager* manager = nullptr;
  const CacheLayout* layout = nullptr;
  const PoolSet* pools = nullptr;
  const Transfers* transfers = nullptr;
  WriterProcesses* writers = nullptr;
  const DiskTier* disk = nullptr;           // Null: it has no tier on disk.
  const PoolExport* pool_export = nullptr;  // Null: the daemon has no map socket.
  CacheStreams* streams = nullptr;
  CacheExchange* exchange = nullptr;
  const StatusHistory* history = nullptr;  // Null: the daemon has no HTTP.
  std::vector<CacheTierBytes> tier_bytes;  // Nearest first.
};

// Whether it is the configuration's cache. The daemon's own engine and the bridges use that one.
inline bool IsConfigured(const CacheParts& cache) { return !cache.identity.has_value(); }

// Keeps the cache and everything it points to alive. CacheOpener, the directory and the calls that
// use the cache share it.
using CachePtr = std::shared_ptr<const CacheParts>;

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_DIRECTORY_CACHE_PARTS_H_
