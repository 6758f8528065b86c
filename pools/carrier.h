// The interface of everything that carries out the core's orders.
#ifndef PAGODA_POOLS_CARRIER_H_
#define PAGODA_POOLS_CARRIER_H_

#include <functional>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "pools/order.h"

namespace pagoda {

// Serves one or more lanes. Decides nothing. Reports every order that has a ticket exactly once, by
// its lane, its ticket and a status. Thread-safe. The queues have no bound: an order that the core
// has made cannot be refused.
class Carrier {
 public:
  using Completion = std::function<void(Lane lane, Ticket ticket, absl::Status status)>;

  virtual ~Carrier() = default;

  // Accepts orders of the carrier's lanes, in the order of the core's calls. Does not wait for
  // them, because the caller can hold the core's lock. REQUIRES: the tickets of a lane ascend from
  // call to call.
  virtual void Submit(absl::Span<const Order> orders) = 0;
  // Every order of Lane::kMemory up to `completed` has ended. `completed` never decreases. A
  // carrier of other lanes waits for it.
  virtual void MemoryCopiesDone(Ticket /*completed*/) {}
};

}  // namespace pagoda

#endif  // PAGODA_POOLS_CARRIER_H_
