// One batch of a tenant at a time.
#ifndef PAGODA_SERVER_TENANT_TURNS_H_
#define PAGODA_SERVER_TENANT_TURNS_H_

#include <cstddef>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "events/tenant_id.h"

namespace pagoda::server {

// Of a tenant that sends many batches at once one runs, and the others wait here without a thread:
// so it has one turn at the core's lock where every other tenant has one, and one of gRPC's
// threads, however much it sends. Thread-safe.
class TenantTurns {
 public:
  // `max_waiting`: of each tenant.
  explicit TenantTurns(size_t max_waiting);
  ~TenantTurns();
  TenantTurns(const TenantTurns&) = delete;
  TenantTurns& operator=(const TenantTurns&) = delete;

  // Errors: TOO_MANY_CALLS, where as much of the tenant's waits as may.
  absl::Status CheckRoom(TenantId tenant) const;
  // Runs `work` when nothing else of the tenant runs: before this returns where that is so now,
  // else later, in the order of the calls, on a thread of gRPC's; also where there is no room.
  void Run(TenantId tenant, std::function<void()> work);

 private:
  class Queues;

  // Shared with each turn under way: the call that it is for may be over, and the daemon with it,
  // before the turn is.
  const std::shared_ptr<Queues> queues_;
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_TENANT_TURNS_H_
