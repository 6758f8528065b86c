#include "server/session_owners.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "pools/error.h"

namespace pagoda::server {

void SessionOwners::Add(SessionRef session, TenantId tenant,
                        const std::function<bool(SessionRef)>& lives) {
  absl::MutexLock lock(&mutex_);
  owners_[session.id] = {session.token, tenant};
  if (owners_.size() <= most_) return;
  // Half of them at once, so that this is rare.
  size_t surplus = owners_.size() - most_ / 2;
  for (auto it = owners_.begin(); it != owners_.end() && surplus > 0;) {
    if (lives({it->first, it->second.token})) {
      ++it;
    } else {
      it = owners_.erase(it);
      --surplus;
    }
  }
}

absl::Status SessionOwners::Check(SessionRef session, const Identity& caller) const {
  if (caller.is_operator()) return absl::OkStatus();
  absl::ReaderMutexLock lock(&mutex_);
  const auto owner = owners_.find(session.id);
  // The core knows what to say of a session that nobody owns, and says it in these words.
  if (owner == owners_.end() || owner->second.tenant == caller.tenant) return absl::OkStatus();
  return MakeError(Reason::kUnknownSession,
                   absl::StrCat("session ", session.id.value(), " was never opened"));
}

size_t SessionOwners::size() const {
  absl::ReaderMutexLock lock(&mutex_);
  return owners_.size();
}

}  // namespace pagoda::server
