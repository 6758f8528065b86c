#include "manager/accounts/session_table.h"

#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/counted.h"
#include "base/error.h"

namespace pagoda {

absl::StatusOr<SessionRef> SessionTable::Open(std::string client_name, absl::Duration lease,
                                              absl::Time now, TenantId tenant, SessionToken token) {
  if (client_name.size() > kMaxClientNameBytes) {
    return MakeError(Reason::kInvalidArgument,
                     absl::StrCat("a client name of ", client_name.size(), " bytes; at most ",
                                  kMaxClientNameBytes, " are allowed"));
  }
  // A raw block stores only the low bits of its owner's id.
  if (LowBits(SessionId(last_id_)) == std::numeric_limits<uint32_t>::max()) {
    return MakeError(Reason::kTooManySessions, "the session ids of this epoch are used up");
  }
  if (!by_tenant_.Add(tenant.value())) {
    return MakeError(Reason::kTooManySessions,
                     absl::StrCat("open: ", Counted(by_tenant_.of(tenant.value()), "session"),
                                  " of this tenant; no more are possible now"));
  }
  const SessionRef ref{SessionId{++last_id_}, token};
  Session& session = sessions_[ref.id];
  session.token = ref.token;
  session.client_name = std::move(client_name);
  session.tenant = tenant;
  session.opened = now;
  session.lease = lease;
  session.deadline = now + lease;
  return ref;
}

void SessionTable::Close(SessionId id) {
  const auto it = sessions_.find(id);
  by_tenant_.Remove(it->second.tenant.value());
  sessions_.erase(it);
}

absl::StatusOr<const Session*> SessionTable::Find(SessionRef ref) const {
  const auto it = sessions_.find(ref.id);
  if (it == sessions_.end() && (ref.id.value() <= before_first_ || ref.id.value() > last_id_)) {
    return MakeError(Reason::kUnknownSession,
                     absl::StrCat("session ", ref.id.value(), " was never opened"));
  }
  if (it == sessions_.end() || it->second.ending) {
    return MakeError(Reason::kStaleSession,
                     absl::StrCat("session ", ref.id.value(),
                                  " is over: it was closed or ended, or its lease ran out"));
  }
  if (it->second.token != ref.token) {
    return MakeError(Reason::kStaleSession,
                     absl::StrCat("the token does not belong to session ", ref.id.value()));
  }
  return &it->second;
}

absl::StatusOr<Session*> SessionTable::Find(SessionRef ref) {
  const absl::StatusOr<const Session*> session = std::as_const(*this).Find(ref);
  if (!session.ok()) return session.status();
  return const_cast<Session*>(*session);
}

Session* SessionTable::Find(SessionId id) {
  const auto it = sessions_.find(id);
  return it == sessions_.end() ? nullptr : &it->second;
}

std::vector<SessionId> SessionTable::Expired(absl::Time now) const {
  std::vector<SessionId> expired;
  for (const auto& [id, session] : sessions_) {
    const bool is_over = session.streams == 0 && session.deadline <= now;
    if (is_over && !session.ending) expired.push_back(id);
  }
  return expired;
}

void SessionTable::Prolong(absl::Duration pause, absl::Time now) {
  for (auto& [id, session] : sessions_) {
    session.deadline =
        std::max(session.deadline, std::min(session.deadline + pause, now + session.lease));
  }
}

std::vector<SessionId> SessionTable::Ids() const {
  std::vector<SessionId> ids;
  for (const auto& [id, session] : sessions_) ids.push_back(id);
  return ids;
}

}  // namespace pagoda
