// The parts of a daemon, for the code that reports on it.
#ifndef PAGODA_SERVER_ADMIN_DAEMON_PARTS_H_
#define PAGODA_SERVER_ADMIN_DAEMON_PARTS_H_

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "pagoda/v1/engine_process.pb.h"
#include "server/directory/cache_parts.h"
#include "server/supervision/serving_state.h"

namespace pagoda::server {

class Admission;
class Bridges;
class CacheDirectory;
class CacheOpener;
class CacheService;
class EngineChild;
class EventService;
class PeerServer;
class Sources;

// The parts of a running daemon that the administration service and the HTTP API read. Each part
// outlives every holder of this struct. All must be set, but for those whose comment says what null
// means.
struct DaemonParts {
  const CacheDirectory* caches = nullptr;
  CacheOpener* opener = nullptr;
  const CacheService* cache_service = nullptr;
  const EventService* events = nullptr;
  const Bridges* bridges = nullptr;     // Over the configuration's cache.
  const EngineChild* engine = nullptr;  // Null: the configuration has no engine.
  const ServingState* state = nullptr;
  const Admission* admission = nullptr;
  const v1::GpuSelfTest* gpu_report = nullptr;  // Null unless the engine would compute on a GPU.
  // The store and the daemons that this one fetches from. Null: none are configured.
  const Sources* sources = nullptr;
  std::vector<std::string> store_servers = {};  // The configured servers: "HOST:PORT".
  const PeerServer* peers = nullptr;            // Null: no other daemon reads from this one.
  absl::Time start_time;
  // Begins the shutdown of the process and returns at once. Null: the process offers no drain.
  std::function<void()> request_drain;

  // The number of open streams of the cache's events.
  size_t Subscribers(const CacheParts& cache) const;
  // Whether the daemon's own engine runs over the cache.
  bool HasEngine(const CacheParts& cache) const;
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_ADMIN_DAEMON_PARTS_H_
