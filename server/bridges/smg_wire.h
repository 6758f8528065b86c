// Encodes KV events as SMG messages.
#ifndef PAGODA_SERVER_BRIDGES_SMG_WIRE_H_
#define PAGODA_SERVER_BRIDGES_SMG_WIRE_H_

#include <cstdint>

#include "manager/accounts/tenants.h"
#include "pools/types.h"
#include "server/bridges/router_events.h"
#include "server/callers/identity.h"
#include "smg/grpc/kv_events.pb.h"

namespace pagoda::server {

// The facts about the cache that the messages contain.
struct SmgShape {
  uint32_t tokens_per_block = 0;
  // The only window whose events are sent, because SMG messages have no windows.
  WindowSize window = kFullAttention;
  int32_t data_parallel_rank = 0;
};

// A subscriber.
struct Viewer {
  Identity caller;
  const TenantTable* tenants = nullptr;  // Outlives every holder of this struct.
};

// The events of the batch that the viewer may see. If it may see none, the message has no events;
// its number shows that the subscriber missed nothing.
void RouterBatchToSmg(const RouterBatch& batch, const SmgShape& shape, const Viewer& viewer,
                      smg::grpc::common::KvEventBatch* out);

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_BRIDGES_SMG_WIRE_H_
