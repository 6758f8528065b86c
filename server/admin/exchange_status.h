// The store, other daemons, and what a cache exchanges with them, as messages of GetStatus.
#ifndef PAGODA_SERVER_ADMIN_EXCHANGE_STATUS_H_
#define PAGODA_SERVER_ADMIN_EXCHANGE_STATUS_H_

#include "pagoda/v1/admin.pb.h"
#include "server/admin/daemon_parts.h"
#include "server/directory/cache_parts.h"

namespace pagoda::server {

// Whether the configuration names a store, or daemons to fetch from.
bool Exchanges(const DaemonParts& parts);

// Sets `exchange`, if the daemon exchanges anything.
void ExchangeToStatus(const DaemonParts& parts, const CacheParts& cache,
                      v1::GetStatusResponse* out);
// Sets `store`, `peer_server` and `peer_sources`, which all caches share.
void OtherMachinesToStatus(const DaemonParts& parts, v1::GetStatusResponse* out);

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_ADMIN_EXCHANGE_STATUS_H_
