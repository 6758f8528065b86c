// Records which tenant owns each session.
#ifndef PAGODA_SERVER_BATCH_SESSION_OWNERS_H_
#define PAGODA_SERVER_BATCH_SESSION_OWNERS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "manager/words/ids.h"
#include "server/callers/identity.h"

namespace pagoda::server {

// Keeps a tenant's credentials away from other tenants' sessions: to them such a session never
// existed, even if they know its token. The same holds for a session whose owner is not recorded.
// Ended sessions stay recorded for a while, so that their own clients still learn that they have
// ended. Also records the credential that the session's opener used last. The map socket asks only
// for the session's token, and must not serve a caller whose credential was revoked. Thread-safe.
//
// Invariant: the owner of a session is recorded as long as the core keeps any state of the session.
class SessionOwners {
 public:
  // Tells for each session whether the core keeps state of it: it is open, ending or quarantined.
  using Kept = std::function<std::vector<bool>(absl::Span<const SessionRef>)>;
  // The most sessions per query. The core's lock is held during the query.
  static constexpr size_t kPiece = 64;

  // `most`: how many ended sessions can stay recorded, besides those that the core keeps.
  explicit SessionOwners(size_t most) : most_(most), forget_above_(most) {}

  // `opener` opened a session for the tenant. If too many are recorded, forgets ended ones, the
  // oldest first, a piece of kPiece with each call. `kept` is called for one piece, without this
  // object's lock, which every other call for a session needs. Cost: O(kPiece log sessions).
  void Add(SessionRef session, TenantId tenant, const Identity& opener, const Kept& kept)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Errors: UNKNOWN_SESSION unless the session is recorded as the caller's. An operator has access
  // to every session; if operators need no token, this costs nothing.
  absl::Status Check(SessionRef session, const Identity& caller) ABSL_LOCKS_EXCLUDED(mutex_);

  // The session's opener, with the credential of its last call that Check accepted. nullopt if the
  // session is not recorded.
  std::optional<Identity> OpenerOf(SessionId session) const ABSL_LOCKS_EXCLUDED(mutex_);

  // The tenant that the session is for. nullopt if the session is not recorded.
  std::optional<TenantId> TenantOf(SessionId session) const ABSL_LOCKS_EXCLUDED(mutex_);

  size_t size() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Owner {
    SessionToken token;
    TenantId tenant;
    Identity opener;
  };
  // The next sessions to ask about; empty if there are not too many owners.
  std::vector<SessionRef> NextPiece() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  enum class Credential : uint8_t { kAsKnown, kAnother };

  // `credential`: kAnother if the caller opened the session and now uses another credential.
  absl::Status Look(SessionRef session, const Identity& caller, Credential& credential) const
      ABSL_LOCKS_EXCLUDED(mutex_);

  const size_t most_;
  mutable absl::Mutex mutex_;
  // The number of owners above which Add begins to forget: twice the number that had to be kept
  // last time, but at least most_.
  size_t forget_above_ ABSL_GUARDED_BY(mutex_);
  // While Add forgets: how many more it can forget, and the session to continue from.
  size_t surplus_ ABSL_GUARDED_BY(mutex_) = 0;
  SessionId next_ ABSL_GUARDED_BY(mutex_);
  absl::btree_map<SessionId, Owner> owners_ ABSL_GUARDED_BY(mutex_);  // Oldest first.
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_BATCH_SESSION_OWNERS_H_
