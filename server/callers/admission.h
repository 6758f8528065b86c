// The checks that every call passes before it runs: capacity, deadline, identity, role.
#ifndef PAGODA_SERVER_CALLERS_ADMISSION_H_
#define PAGODA_SERVER_CALLERS_ADMISSION_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "grpcpp/server_context.h"
#include "manager/accounts/tenants.h"
#include "server/callers/authenticator.h"
#include "server/callers/identity.h"
#include "server/callers/open_calls.h"
#include "server/callers/stream_slots.h"
#include "server/callers/untaken_answers.h"

namespace pagoda::server {

// Every method of the services calls Admit first. Thread-safe.
class Admission {
 public:
  // The pointers outlive this. `max_calls`: the most calls and streams that are open at once.
  // `max_message_bytes`: the largest request.
  Admission(uint64_t max_calls, const OpenCalls* calls, const Authenticator* authenticator,
            const TenantTable* tenants, size_t max_message_bytes = 16 << 20)
      : max_calls_(max_calls),
        max_message_bytes_(max_message_bytes),
        calls_(calls),
        authenticator_(authenticator),
        tenants_(tenants),
        streams_(max_calls, tenants->size()),
        answers_(max_calls, tenants->size()) {}

  // The caller, if it may call the method. `call`: of a method that no interceptor sees; it gets
  // the caller. Errors: DEADLINE_EXCEEDED (the deadline has passed), UNAUTHENTICATED,
  // PERMISSION_DENIED, TOO_MANY_CALLS.
  absl::StatusOr<Identity> Admit(const grpc::ServerContextBase& context, const Method& method,
                                 UntakenAnswers::Call* call = nullptr) const;

  // Whether the method reads a request of so many bytes. Errors: MESSAGE_TOO_LARGE.
  absl::Status CheckSize(const Method& method, size_t request_bytes) const;

  // The tenant of a session that `caller` opens for the tenant `named`; "" means the caller's own
  // tenant. Only an operator may name another tenant. Errors: PERMISSION_DENIED, UNKNOWN_TENANT.
  absl::StatusOr<TenantId> SessionTenant(const Identity& caller, const std::string& named) const;

  // OK while the credential that `caller` showed is valid. Errors: UNAUTHENTICATED.
  absl::Status CheckStillKnown(const Identity& caller) const;

  // A slot for a stream that `caller` opens. Errors: TOO_MANY_CALLS.
  absl::StatusOr<StreamSlots::Slot> TakeStream(const Identity& caller) const {
    return streams_.Take(caller.tenant);
  }

  // The answers that wait for their callers.
  UntakenAnswers* answers() const { return &answers_; }

  const TenantTable& tenants() const { return *tenants_; }

 private:
  const uint64_t max_calls_;
  const size_t max_message_bytes_;
  const OpenCalls* const calls_;
  const Authenticator* const authenticator_;
  const TenantTable* const tenants_;
  mutable StreamSlots streams_;
  mutable UntakenAnswers answers_;
};

// The parts of Admit that need no call.

// Errors: DEADLINE_EXCEEDED.
absl::Status CheckInTime(absl::Time deadline, absl::Time now);
// Errors: PERMISSION_DENIED.
absl::Status CheckRole(const Identity& caller, const Method& method);

// Whether the caller's answers say how much of a prompt was cached. They do for an operator and for
// a tenant with a private namespace, and do not for a tenant that shares the default tenant's.
ReuseNumbers ReuseNumbersFor(const TenantTable& tenants, const Identity& caller);

// Whether the caller's requests to the engine may have this priority: a tenant's at most its
// max_priority, an operator's any. Errors: PERMISSION_DENIED.
absl::Status CheckPriority(const TenantTable& tenants, const Identity& caller, int64_t priority);

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_CALLERS_ADMISSION_H_
