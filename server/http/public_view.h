// What /api/v1 shows to callers that are not operators.
#ifndef PAGODA_SERVER_HTTP_PUBLIC_VIEW_H_
#define PAGODA_SERVER_HTTP_PUBLIC_VIEW_H_

#include "pagoda/v1/admin.pb.h"
#include "pagoda/v1/caches.pb.h"

namespace pagoda::server {

// Everybody may know the numbers of the daemon, as /metrics has them, and the names of its caches,
// models, tiers and kernels. These functions remove the rest: addresses and names of machines,
// paths, and messages about errors, which can contain any of them.

// For callers that are not operators.
void KeepPublic(v1::GetStatusResponse* status);
// For callers without credentials. Tenants may call ListCaches.
void KeepPublic(v1::ListCachesResponse* caches);

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_HTTP_PUBLIC_VIEW_H_
