// SMG's KV events as messages.
#ifndef PAGODA_SERVER_BRIDGES_SMG_WIRE_H_
#define PAGODA_SERVER_BRIDGES_SMG_WIRE_H_

#include <cstdint>

#include "manager/tenants.h"
#include "pools/types.h"
#include "server/bridges/router_events.h"
#include "server/callers/identity.h"
#include "smg/grpc/kv_events.pb.h"

namespace pagoda::server {

// What the messages say of the cache besides what happens.
struct SmgShape {
  uint32_t tokens_per_block = 0;
  // The window that is told of: SMG's messages know one.
  WindowSize window = kFullAttention;
  int32_t data_parallel_rank = 0;
};

// Who subscribes.
struct Viewer {
  Identity caller;
  const TenantTable* tenants = nullptr;  // Outlives whoever holds this.
};

// The batch as the viewer may see it. A batch of which he may see nothing is one without events:
// its number says that nothing was missed.
void RouterBatchToSmg(const RouterBatch& batch, const SmgShape& shape, const Viewer& viewer,
                      smg::grpc::common::KvEventBatch* out);

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_BRIDGES_SMG_WIRE_H_
