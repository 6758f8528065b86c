// The store, other daemons, and what a cache exchanges with them, as JSON (see status_json.h).
#ifndef PAGODA_SERVER_HTTP_EXCHANGE_JSON_H_
#define PAGODA_SERVER_HTTP_EXCHANGE_JSON_H_

#include "server/admin/daemon_parts.h"
#include "server/directory/cache_parts.h"
#include "server/http/status_json.h"

namespace pagoda::server {

// Names of servers, and the text of errors, are for operators only.
enum class MachineDetail : uint8_t { kForAll, kForOperators };

// null if the daemon has no store and may fetch from no other daemon.
Json ExchangeJson(const DaemonParts& parts, const CacheParts& cache);
// null without a store.
Json StoreJson(const DaemonParts& parts, MachineDetail detail);
// null if the daemon neither answers other daemons nor fetches from them.
Json PeersJson(const DaemonParts& parts, MachineDetail detail);

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_HTTP_EXCHANGE_JSON_H_
