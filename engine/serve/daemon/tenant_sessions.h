// The sessions of an engine with one daemon.
#ifndef PAGODA_ENGINE_SERVE_DAEMON_TENANT_SESSIONS_H_
#define PAGODA_ENGINE_SERVE_DAEMON_TENANT_SESSIONS_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "clients/cpp/prefix_fetcher.h"
#include "manager/api/cache_client.h"

namespace pagoda {

// The engine works in a session of its own, and in one more for each tenant that asks it. A
// tenant's session is opened with that tenant's credentials, and the daemon checks them. So what an
// engine does for a tenant, it does with the tenant's rights: the daemon confines the prompt to the
// tenant's namespace, and charges its blocks to the tenant.
//
// A tenant's session serves all its callers. The daemon checks the token of each: the first one by
// opening the session, each further one by itself, and again after kTokenTime.
//
// Invariants
// 1. All sessions are with the same run of the daemon: the pools that the engine has mapped are the
//    pools of every session.
// 2. A session stays open while a request holds it, or one of its sequences is open.
// Thread-safe.
class TenantSessions : public std::enable_shared_from_this<TenantSessions> {
 public:
  struct Session {
    std::unique_ptr<CacheClient> client;     // The engine's thread alone calls its Execute.
    std::shared_ptr<PrefixFetcher> fetcher;  // May be null.
    // Whether the session is over, as far as its client knows.
    std::function<bool()> is_over = nullptr;
    std::string tenant = {};  // "": the engine's own session.
  };
  using SessionPtr = std::shared_ptr<Session>;
  // Opens a session for the tenant, with the token of a caller. Without a token it uses the
  // engine's own credentials, which may name a tenant if they are an operator's. Errors: those of
  // OpenGrpcCacheClient, among them UNAUTHENTICATED and PERMISSION_DENIED (the token is not the
  // tenant's).
  using Opener =
      std::function<absl::StatusOr<Session>(const std::string& tenant, const std::string& token)>;

  // Whether the daemon takes the token for the tenant's. Errors: as of the opener.
  using Checker = std::function<absl::Status(const std::string& tenant, const std::string& token)>;

  // `own`: the engine's session. `check_own`: an error if the daemon no longer knows that session.
  TenantSessions(Session own, Opener open, Checker check, std::function<absl::Status()> check_own)
      : own_(std::make_shared<Session>(std::move(own))),
        open_(std::move(open)),
        check_(std::move(check)),
        check_own_(std::move(check_own)) {}

  // The session for a request of a tenant, null if none is open or the token must be checked. The
  // request holds it until it ends. The last holder must be able to wait: a session calls the
  // daemon when it ends. REQUIRES: the tenant is not "".
  SessionPtr Use(const std::string& tenant, const std::string& token) ABSL_LOCKS_EXCLUDED(mutex_);
  // The same, but opens a session if none is open, and checks the token. Errors: those of the
  // opener and of the checker; those of `check_own`.
  absl::StatusOr<SessionPtr> Get(const std::string& tenant, const std::string& token)
      ABSL_LOCKS_EXCLUDED(opening_, mutex_);
  // The open session of a tenant, null if it has none. The engine's own session for the tenant "".
  SessionPtr Find(const std::string& tenant) const ABSL_LOCKS_EXCLUDED(mutex_);
  const SessionPtr& own() const { return own_; }
  // The next request of the tenant gets another session than this one.
  void Forget(const std::string& tenant, const SessionPtr& session) ABSL_LOCKS_EXCLUDED(mutex_);
  size_t size() const ABSL_LOCKS_EXCLUDED(mutex_);

  // All sessions as one client. The scheduler's batches go to it; each of their operations runs in
  // the session of its tenant. If the call of one session fails, the operations of that session
  // fail, and the others do not. A tenant whose call took longer than kSlow is slow (SlowTenants)
  // for kRestFactor times as long, and twice as long each time that it is slow again. Keeps this
  // object alive.
  std::unique_ptr<CacheClient> MakeClient();

  static constexpr absl::Duration kSlow = absl::Milliseconds(50);
  static constexpr int kRestFactor = 4;
  static constexpr absl::Duration kMostRest = absl::Seconds(30);
  // How long a session without requests stays open. It then ends when another one is opened.
  static constexpr absl::Duration kIdleTime = absl::Minutes(5);
  // How long a refusal of a tenant's token holds. Many requests with it cost one call.
  static constexpr absl::Duration kRefusalTime = absl::Seconds(1);
  // How long the daemon's word on a token holds.
  static constexpr absl::Duration kTokenTime = absl::Seconds(5);

 private:
  struct Entry {
    SessionPtr session;
    absl::Time last_use;
    absl::flat_hash_map<std::string, absl::Time> tokens;  // When the daemon took each.
  };

  // The tenant's entry; null unless its session is open.
  Entry* OpenEntry(const std::string& tenant) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  SessionPtr Peek(const std::string& tenant) ABSL_LOCKS_EXCLUDED(mutex_);
  // `session` is the tenant's, and the daemon has just taken the token.
  void Keep(const std::string& tenant, const std::string& token, SessionPtr session)
      ABSL_LOCKS_EXCLUDED(mutex_);

  const SessionPtr own_;
  const Opener open_;
  const Checker check_;
  const std::function<absl::Status()> check_own_;
  struct Refusal {
    absl::Status status;
    absl::Time time;
  };
  // Whether the daemon has just refused the token for the tenant.
  absl::Status Refused(const std::string& tenant, const std::string& token)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(opening_);
  // Keeps a refusal. Returns it.
  absl::Status Refuse(const std::string& tenant, const std::string& token, absl::Status status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(opening_);

  absl::Mutex opening_;  // Held while a session is being opened; locked before mutex_.
  absl::flat_hash_map<std::pair<std::string, std::string>, Refusal> refusals_
      ABSL_GUARDED_BY(opening_);
  mutable absl::Mutex mutex_;
  absl::flat_hash_map<std::string, Entry> tenants_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_SERVE_DAEMON_TENANT_SESSIONS_H_
