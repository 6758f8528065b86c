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
// never been opened, whether they know its token or not. Sessions that are over are remembered for
// a while, so that their own clients still hear that they are. Thread-safe.
class SessionOwners {
 public:
  // Sessions that may be remembered, those that are open among them.
  explicit SessionOwners(size_t most) : most_(most) {}

  // A session was opened. `lives` is asked about others where there are too many, and says whether
  // a session is open.
  void Add(SessionRef session, TenantId tenant, const std::function<bool(SessionRef)>& lives)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Errors: UNKNOWN_SESSION where the session is known to be another tenant's, or nobody's. An
  // operator may speak for any; that costs nothing.
  absl::Status Check(SessionRef session, const Identity& caller) const ABSL_LOCKS_EXCLUDED(mutex_);

  size_t size() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Owner {
    SessionToken token;
    TenantId tenant;
  };

  const size_t most_;
  mutable absl::Mutex mutex_;
  absl::btree_map<SessionId, Owner> owners_ ABSL_GUARDED_BY(mutex_);  // Oldest first.
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_SESSION_OWNERS_H_
