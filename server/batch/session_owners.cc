#include "server/batch/session_owners.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/error.h"

namespace pagoda::server {

void SessionOwners::Add(SessionRef session, TenantId tenant, const Identity& opener,
                        const Kept& kept) {
  std::vector<SessionRef> piece;
  {
    absl::MutexLock lock(&mutex_);
    owners_[session.id] = {session.token, tenant, opener};
    piece = NextPiece();
  }
  if (piece.empty()) return;
  // If the core keeps nothing of a session, that never changes, so the answer stays valid without
  // the lock.
  const std::vector<bool> stays = kept(piece);
  absl::MutexLock lock(&mutex_);
  for (size_t i = 0; i < piece.size() && surplus_ > 0; ++i) {
    if (!stays[i]) surplus_ -= owners_.erase(piece[i].id);
  }
  if (surplus_ > 0 && owners_.lower_bound(next_) != owners_.end()) return;
  // If all were examined, the remaining ones had to be kept.
  forget_above_ = surplus_ > 0 ? std::max(most_, 2 * owners_.size()) : most_;
  surplus_ = 0;
}

std::vector<SessionRef> SessionOwners::NextPiece() {
  if (surplus_ == 0) {
    if (owners_.size() <= forget_above_) return {};
    // Forget down to half, so that this is rare.
    surplus_ = owners_.size() - most_ / 2;
    next_ = SessionId{};
  }
  std::vector<SessionRef> piece;
  for (auto it = owners_.lower_bound(next_); it != owners_.end() && piece.size() < kPiece; ++it) {
    piece.push_back({it->first, it->second.token});
  }
  // A concurrent Add continues after this piece.
  if (!piece.empty()) next_ = SessionId{piece.back().id.value() + 1};
  return piece;
}

absl::Status SessionOwners::Check(SessionRef session, const Identity& caller) {
  if (caller.is_operator() && !caller.token.has_value()) return absl::OkStatus();
  Credential credential = Credential::kAsKnown;
  absl::Status status = Look(session, caller, credential);
  if (!status.ok() || credential == Credential::kAsKnown) return status;
  // Rare: a client continues with a new token.
  absl::MutexLock lock(&mutex_);
  const auto owner = owners_.find(session.id);
  if (owner != owners_.end()) owner->second.opener.token = caller.token;
  return status;
}

absl::Status SessionOwners::Look(SessionRef session, const Identity& caller,
                                 Credential& credential) const {
  absl::ReaderMutexLock lock(&mutex_);
  const auto owner = owners_.find(session.id);
  if (owner != owners_.end() && owner->second.token == session.token &&
      owner->second.opener == caller && owner->second.opener.token != caller.token) {
    credential = Credential::kAnother;
  }
  if (caller.is_operator()) return absl::OkStatus();
  if (owner != owners_.end() && owner->second.tenant == caller.tenant) return absl::OkStatus();
  const bool own = owner != owners_.end() && owner->second.opener == caller;
  if (own && caller.role == Role::kEngine) return absl::OkStatus();
  // The same message as the core's for a session that never existed.
  return MakeError(Reason::kUnknownSession,
                   absl::StrCat("session ", session.id.value(), " was never opened"));
}

std::optional<Identity> SessionOwners::OpenerOf(SessionId session) const {
  absl::ReaderMutexLock lock(&mutex_);
  const auto owner = owners_.find(session);
  return owner == owners_.end() ? std::nullopt : std::optional(owner->second.opener);
}

std::optional<TenantId> SessionOwners::TenantOf(SessionId session) const {
  absl::MutexLock lock(&mutex_);
  const auto owner = owners_.find(session);
  if (owner == owners_.end()) return std::nullopt;
  return owner->second.tenant;
}

size_t SessionOwners::size() const {
  absl::ReaderMutexLock lock(&mutex_);
  return owners_.size();
}

}  // namespace pagoda::server
