#include "server/callers/admission.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/error.h"
#include "manager/accounts/tenants.h"

namespace pagoda::server {

absl::StatusOr<Identity> Admission::Admit(const grpc::ServerContextBase& context,
                                          const Method& method, UntakenAnswers::Call* call) const {
  const std::chrono::system_clock::time_point deadline = context.deadline();
  if (deadline != std::chrono::system_clock::time_point::max()) {
    absl::Status status = CheckInTime(absl::FromChrono(deadline), absl::Now());
    if (!status.ok()) return status;
  }
  absl::StatusOr<Identity> caller = authenticator_->Identify(context);
  if (!caller.ok()) return caller;
  if (call != nullptr) {
    call->SetCaller(*caller);
  } else {
    answers_.SetCaller(&context, *caller);
  }
  if (absl::Status status = CheckRole(*caller, method); !status.ok()) return status;
  if (absl::Status status = calls_->CheckPlace(KindOf(method), max_calls_); !status.ok()) {
    return status;
  }
  return caller;
}

absl::Status Admission::CheckSize(const Method& method, size_t request_bytes) const {
  const size_t most = method.max_request_bytes == kAnyRequest
                          ? max_message_bytes_
                          : std::min<size_t>(method.max_request_bytes, max_message_bytes_);
  if (request_bytes <= most) return absl::OkStatus();
  return MakeError(Reason::kMessageTooLarge,
                   absl::StrCat("the request has ", request_bytes, " bytes; ",
                                std::string(method.name), " reads at most ", most));
}

absl::Status Admission::CheckStillKnown(const Identity& caller) const {
  if (authenticator_->StillKnows(caller)) return absl::OkStatus();
  return RevokedError();
}

absl::StatusOr<TenantId> Admission::SessionTenant(const Identity& caller,
                                                  const std::string& named) const {
  if (named.empty()) return caller.tenant;
  if (caller.may_name_tenants()) return tenants_->Find(named);
  if (named == (*tenants_)[caller.tenant].name) return caller.tenant;
  // The error is the same whether the tenant exists or not.
  return MakeError(Reason::kPermissionDenied,
                   absl::StrCat("these credentials do not belong to the tenant '", named, "'"));
}

absl::Status CheckInTime(absl::Time deadline, absl::Time now) {
  if (now < deadline) return absl::OkStatus();
  return absl::DeadlineExceededError(
      "the call's deadline passed before the call began; it did not run");
}

absl::Status CheckRole(const Identity& caller, const Method& method) {
  if (caller.is_operator() || method.access == Access::kTenants) return absl::OkStatus();
  return MakeError(Reason::kPermissionDenied,
                   absl::StrCat(std::string(method.name),
                                " is for operators; these credentials belong to a tenant"));
}

ReuseNumbers ReuseNumbersFor(const TenantTable& tenants, const Identity& caller) {
  const bool alone = caller.is_operator() || !tenants[caller.tenant].shares;
  return alone ? ReuseNumbers::kShow : ReuseNumbers::kLeaveOut;
}

absl::Status CheckPriority(const TenantTable& tenants, const Identity& caller, int64_t priority) {
  if (caller.is_operator() || priority <= tenants[caller.tenant].max_priority) {
    return absl::OkStatus();
  }
  return MakeError(Reason::kPermissionDenied,
                   absl::StrCat("priority is ", priority, "; the tenant '",
                                tenants[caller.tenant].name, "' may ask for at most ",
                                tenants[caller.tenant].max_priority, " (tenants[].max_priority)"));
}

}  // namespace pagoda::server
