#include "server/session_owners.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "pools/error.h"

namespace pagoda::server {

void SessionOwners::Add(SessionRef session, TenantId tenant,
                        const std::function<bool(SessionRef)>& kept) {
  absl::MutexLock lock(&mutex_);
  owners_[session.id] = {session.token, tenant};
  if (owners_.size() <= forget_above_) return;
  // Half of them at once, so that this is rare.
  size_t surplus = owners_.size() - most_ / 2;
  for (auto it = owners_.begin(); it != owners_.end() && surplus > 0;) {
    if (kept({it->first, it->second.token})) {
      ++it;
    } else {
      it = owners_.erase(it);
      --surplus;
    }
  }
  forget_above_ = std::max(most_, 2 * owners_.size());
}

absl::Status SessionOwners::Check(SessionRef session, const Identity& caller) const {
  if (caller.is_operator()) return absl::OkStatus();
  absl::ReaderMutexLock lock(&mutex_);
  const auto owner = owners_.find(session.id);
  if (owner != owners_.end() && owner->second.tenant == caller.tenant) return absl::OkStatus();
  // The core's words for a session that never was.
  return MakeError(Reason::kUnknownSession,
                   absl::StrCat("session ", session.id.value(), " was never opened"));
}

size_t SessionOwners::size() const {
  absl::ReaderMutexLock lock(&mutex_);
  return owners_.size();
}

}  // namespace pagoda::server
