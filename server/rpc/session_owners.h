// Whose each session is.
#ifndef PAGODA_SERVER_RPC_SESSION_OWNERS_H_
#define PAGODA_SERVER_RPC_SESSION_OWNERS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "manager/ids.h"
#include "server/callers/identity.h"

namespace pagoda::server {

// Keeps a tenant's credentials away from the sessions of others: to them a session is as if it had
// never been opened, whether they know its token or not. So is a session whose owner is not known
// here. Sessions that are over are remembered for a while, so that their own clients still hear
// that they are. Remembers too which credential the session's opener showed last: the map socket
// asks for the session's token alone, and must not serve a caller whose own token has been taken
// back. Thread-safe.
//
// Invariant: the owner of a session is known as long as the core keeps anything of the session.
class SessionOwners {
 public:
  // Which of the sessions the core keeps anything of: those that are open, ending or quarantined.
  using Kept = std::function<std::vector<bool>(absl::Span<const SessionRef>)>;
  // At most so many are asked about at once: the core's lock is held for as long.
  static constexpr size_t kPiece = 64;

  // Sessions that are over and may be remembered, besides those that the core keeps.
  explicit SessionOwners(size_t most) : most_(most), forget_above_(most) {}

  // `opener` opened a session for the tenant. Where many are known, forgets some that are over, the
  // oldest first, a piece with each call: `kept` is asked about a piece, without a lock of this
  // object's, which every other call for a session needs. Cost: O(kPiece log sessions).
  void Add(SessionRef session, TenantId tenant, const Identity& opener, const Kept& kept)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Errors: UNKNOWN_SESSION unless the session is known to be the caller's. An operator may speak
  // for any; that costs nothing where no operator needs a token.
  absl::Status Check(SessionRef session, const Identity& caller) ABSL_LOCKS_EXCLUDED(mutex_);

  // Who opened the session, with the credential of the last call for it that Check let through.
  // None where the session is not known here.
  std::optional<Identity> OpenerOf(SessionId session) const ABSL_LOCKS_EXCLUDED(mutex_);

  size_t size() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Owner {
    SessionToken token;
    TenantId tenant;
    Identity opener;
  };
  // The next sessions to ask about; none where there are not too many owners.
  std::vector<SessionRef> NextPiece() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  enum class Credential : uint8_t { kAsKnown, kAnother };

  // `credential`: whether the caller opened the session and shows another one since.
  absl::Status Look(SessionRef session, const Identity& caller, Credential& credential) const
      ABSL_LOCKS_EXCLUDED(mutex_);

  const size_t most_;
  mutable absl::Mutex mutex_;
  // With more owners than so many, Add begins to forget. Twice those that had to be kept the last
  // time.
  size_t forget_above_ ABSL_GUARDED_BY(mutex_);
  // While Add forgets: how many it may forget yet, and the session that it goes on from.
  size_t surplus_ ABSL_GUARDED_BY(mutex_) = 0;
  SessionId next_ ABSL_GUARDED_BY(mutex_);
  absl::btree_map<SessionId, Owner> owners_ ABSL_GUARDED_BY(mutex_);  // Oldest first.
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_RPC_SESSION_OWNERS_H_
