// Waiting for work of the cache for as long as it goes on.
#ifndef PAGODA_CLIENTS_PAGODACTL_TICKET_WAIT_H_
#define PAGODA_CLIENTS_PAGODACTL_TICKET_WAIT_H_

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "manager/cache_client.h"
#include "pools/copy_order.h"

namespace pagoda {

// Returns when everything in the lane up to `ticket` has ended, well or not. Ticket 0 is done.
// Errors: WAIT_TIMEOUT where nothing of the lane has ended for `patience`; those of Execute.
absl::Status AwaitTicket(CacheClient& client, Ticket ticket, Lane lane, absl::Duration patience);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODACTL_TICKET_WAIT_H_
