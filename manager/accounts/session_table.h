// The open sessions, and how long they may stay silent.
#ifndef PAGODA_MANAGER_ACCOUNTS_SESSION_TABLE_H_
#define PAGODA_MANAGER_ACCOUNTS_SESSION_TABLE_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/check.h"
#include "base/fair_count.h"
#include "manager/accounts/sequence_accounts.h"
#include "manager/words/ids.h"
#include "pools/types.h"

namespace pagoda {

// The longest client name.
inline constexpr size_t kMaxClientNameBytes = 128;

// A block that was released in a step whose kernels can still read it.
struct DeferredRelease {
  uint64_t step;
  uint16_t window;  // Index.
  TenantId tenant;  // The one that holds it.
  BlockId block;
};

struct Session {
  SessionToken token;
  std::string client_name;
  TenantId tenant = kDefaultTenant;
  absl::Time opened;
  absl::Duration lease;
  absl::Time deadline;   // When the lease runs out, unless a stream is attached.
  uint32_t streams = 0;  // Attached.
  // A process of the session has mapped the pools for writing.
  bool may_write = false;
  bool ending = false;  // It is over, and its blocks are being freed: see Ending.
  uint64_t raw_blocks = 0;
  absl::btree_set<SequenceId> sequences;
  uint64_t step = 0;        // The last one that a batch named. Likewise completed_step.
  uint64_t batch_step = 0;  // The step of the running batch; 0: it names none.
  uint64_t completed_step = 0;
  std::deque<DeferredRelease> deferred;      // In the order of release: steps never decrease.
  SequenceAccounts::Charge deferred_charge;  // Their bytes.
  // At this many deferred releases, those with a later one for the same block and tenant end.
  static constexpr size_t kFewDeferred = 256;
  size_t compact_deferred_at = kFewDeferred;
  // Sequences with losses that no commit had named at the last check. Some of them may have ended.
  absl::btree_set<SequenceId> shortened;
};

// The blocks that a session could still write when it ended without its client.
struct Quarantine {
  // A caller that shows this token acknowledges the quarantine. Absent for an earlier run.
  std::optional<SessionToken> token;
  std::string client_name;
  TenantId tenant = kDefaultTenant;
  absl::Time since;
  std::deque<DeferredRelease> deferred;  // A block can be here more than once.
  SequenceAccounts::Charge deferred_charge;
  uint32_t blocks = 0;  // The different blocks in `deferred`.
};

// Thread-compatible. Ids count up and are not reused.
class SessionTable {
 public:
  // No tenant of `num_tenants` can take all of `max_sessions`: see FairCount. The first id is the
  // one after `last`.
  SessionTable(uint32_t max_sessions, size_t num_tenants, SessionId last = SessionId{0})
      : has_tenants_(num_tenants > 1),
        by_tenant_(max_sessions, num_tenants),
        before_first_(last.value()),
        last_id_(last.value()) {}
  SessionTable(const SessionTable&) = delete;
  SessionTable& operator=(const SessionTable&) = delete;

  // Errors: TOO_MANY_SESSIONS, INVALID_ARGUMENT (a name that is too long).
  absl::StatusOr<SessionRef> Open(std::string client_name, absl::Duration lease, absl::Time now,
                                  TenantId tenant, SessionToken token);
  // Errors: UNKNOWN_SESSION (never opened), STALE_SESSION (over or ending, or another token).
  absl::StatusOr<const Session*> Find(SessionRef ref) const;
  absl::StatusOr<Session*> Find(SessionRef ref);
  // Finds sessions that are ending too. nullptr if there is none. The pointer is valid until a
  // session is opened or closed.
  Session* Find(SessionId id);
  const Session* Find(SessionId id) const { return const_cast<SessionTable*>(this)->Find(id); }
  // REQUIRES: the session is in the table.
  const Session& Get(SessionId id) const { return sessions_.at(id); }
  // The session that an operation runs for. Stops the process if it does not exist.
  Session& Require(SessionId id) {
    Session* found = Find(id);
    PAGODA_CHECK(found != nullptr, "operations run for living sessions");
    return *found;
  }
  const Session& Require(SessionId id) const {
    return const_cast<SessionTable*>(this)->Require(id);
  }
  // REQUIRES: the session is in the table. Needs no look-up in a cache without tenants.
  TenantId TenantOf(SessionId id) const { return has_tenants_ ? Get(id).tenant : kDefaultTenant; }
  // REQUIRES: the session is in the table.
  void Close(SessionId id);

  // The sessions without a stream whose deadline has passed and that are not ending yet, ascending.
  // Cost: O(sessions).
  std::vector<SessionId> Expired(absl::Time now) const;
  // Each lease ends later by `pause`, but not later than a lease that begins now. Cost:
  // O(sessions).
  void Prolong(absl::Duration pause, absl::Time now);
  // All sessions, ascending.
  std::vector<SessionId> Ids() const;
  // The sessions from the id `first` on, ascending, to end().
  using Iterator = absl::btree_map<SessionId, Session>::const_iterator;
  Iterator From(SessionId first) const { return sessions_.lower_bound(first); }
  Iterator end() const { return sessions_.end(); }
  size_t size() const { return sessions_.size(); }
  size_t size(TenantId tenant) const { return by_tenant_.of(tenant.value()); }

 private:
  const bool has_tenants_;  // Besides the default tenant.
  FairCount by_tenant_;
  const uint64_t before_first_;
  uint64_t last_id_;
  absl::btree_map<SessionId, Session> sessions_;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_ACCOUNTS_SESSION_TABLE_H_
