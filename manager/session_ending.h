// What is left of a session that is over, while its blocks are freed in chunks.
#ifndef PAGODA_MANAGER_SESSION_ENDING_H_
#define PAGODA_MANAGER_SESSION_ENDING_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "manager/ids.h"
#include "manager/sequence_accounts.h"
#include "manager/session_table.h"
#include "manager/stats.h"
#include "pools/types.h"

namespace pagoda {

// A session that is over, or a quarantine that was released. What it held is freed in this order:
// 1. `drains`, the oldest first: each lies below or beside what was released after it.
// 2. The session's sequences, ascending.
// 3. Its raw blocks, by window and id.
// 4. If its client could still write: its drains are counted and become its quarantine.
struct Ending {
  std::deque<DeferredRelease> deferred;
  SequenceAccounts::Charge deferred_charge;
  // Nothing where a quarantine was released.
  std::optional<SessionId> session;
  SessionEnd how = SessionEnd::kClosed;
  // Behind the computed tokens of a tail the client may still write: tails are not published.
  bool drops_tails = false;
  // The session had drains when it ended. They may lie below what its sequences hold, so that must
  // drain, too.
  bool deferred_below = false;
  // The raw blocks of windows before this one, and of ids before this one in it, are freed.
  uint16_t raw_window = 0;
  BlockId raw_next{0};
  // Of the session's drains so many are counted: a bit for each id, by window.
  size_t counted_deferred = 0;
  std::vector<std::vector<bool>> counted;
  uint32_t quarantined_blocks = 0;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_SESSION_ENDING_H_
