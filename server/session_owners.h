// Whose each session is.
#ifndef PAGODA_SERVER_SESSION_OWNERS_H_
#define PAGODA_SERVER_SESSION_OWNERS_H_

#include <functional>

#include "absl/base/thread_annotations.h"
#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "manager/ids.h"
#include "server/identity.h"

namespace pagoda::server {

// Keeps a tenant's credentials away from the sessions of others: to them a session is as if it had
// never been opened, whether they know its token or not. So is a session whose owner is not known
// here. Sessions that are over are remembered for a while, so that their own clients still hear
// that they are. Thread-safe.
//
// Invariant: the owner of a session is known as long as the core keeps anything of the session.
class SessionOwners {
 public:
  // Sessions that are over and may be remembered, besides those that the core keeps.
  explicit SessionOwners(size_t most) : most_(most), forget_above_(most) {}

  // A session was opened. `kept` is asked about others where there are many, and says whether the
  // core keeps anything of a session: whether it is open, or quarantined. Amortised cost: O(log
  // sessions), and a question or two.
  void Add(SessionRef session, TenantId tenant, const std::function<bool(SessionRef)>& kept)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Errors: UNKNOWN_SESSION unless the session is known to be the caller's. An operator may speak
  // for any; that costs nothing.
  absl::Status Check(SessionRef session, const Identity& caller) const ABSL_LOCKS_EXCLUDED(mutex_);

  size_t size() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Owner {
    SessionToken token;
    TenantId tenant;
  };

  const size_t most_;
  mutable absl::Mutex mutex_;
  // With more owners than so many, Add forgets some. Twice those that had to be kept the last time.
  size_t forget_above_ ABSL_GUARDED_BY(mutex_);
  absl::btree_map<SessionId, Owner> owners_ ABSL_GUARDED_BY(mutex_);  // Oldest first.
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_SESSION_OWNERS_H_
