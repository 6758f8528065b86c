// Waits for asynchronous work of the cache, as long as it makes progress.
#ifndef PAGODA_CLIENTS_PAGODACTL_PREFIX_TICKET_WAIT_H_
#define PAGODA_CLIENTS_PAGODACTL_PREFIX_TICKET_WAIT_H_

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "manager/api/cache_client.h"
#include "pools/order.h"

namespace pagoda {

// Returns when all work of the lane up to `ticket` has ended, with success or not. Ticket 0 counts
// as done. Errors: WAIT_TIMEOUT if no work of the lane ended for `patience`; those of Execute.
absl::Status AwaitTicket(CacheClient& client, Ticket ticket, Lane lane, absl::Duration patience);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODACTL_PREFIX_TICKET_WAIT_H_
