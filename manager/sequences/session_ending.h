// The state of a session that has ended while its blocks are freed in chunks.
#ifndef PAGODA_MANAGER_SEQUENCES_SESSION_ENDING_H_
#define PAGODA_MANAGER_SEQUENCES_SESSION_ENDING_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "manager/accounts/sequence_accounts.h"
#include "manager/accounts/session_table.h"
#include "manager/api/stats.h"
#include "manager/words/ids.h"
#include "pools/types.h"

namespace pagoda {

// A session that has ended, or a quarantine that was released. Its blocks are freed in this order:
// 1. `deferred`, the oldest first: each lies below or beside what was released after it.
// 2. The session's sequences, ascending.
// 3. Its raw blocks, by window and id.
// 4. If its client could still write: its deferred releases are counted and become its quarantine.
struct Ending {
  std::deque<DeferredRelease> deferred;
  SequenceAccounts::Charge deferred_charge;
  // Absent for a quarantine that was released.
  std::optional<SessionId> session;
  SessionEnd how = SessionEnd::kClosed;
  // Do not publish partly filled tails: the client can still write behind their computed tokens.
  bool drops_tails = false;
  // The session had deferred releases when it ended. They can lie below blocks that its sequences
  // hold, so the releases of these blocks are deferred too.
  bool deferred_below = false;
  // All raw blocks are freed in the windows before this one, and in this one up to raw_next.
  uint16_t raw_window = 0;
  BlockId raw_next{0};
  // How many of the session's deferred releases are counted. `counted`: a bit for each id, by
  // window.
  size_t counted_deferred = 0;
  std::vector<std::vector<bool>> counted;
  uint32_t quarantined_blocks = 0;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_SEQUENCES_SESSION_ENDING_H_
