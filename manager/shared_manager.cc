#include "manager/shared_manager.h"

#include <chrono>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "pools/check.h"
#include "pools/error.h"

namespace pagoda {

absl::Time SharedManager::Now() {
  using Steady = std::chrono::steady_clock;
  struct Anchor {
    absl::Time wall = absl::Now();
    Steady::time_point steady = Steady::now();
  };
  static const Anchor anchor;
  return anchor.wall + absl::FromChrono(Steady::now() - anchor.steady);
}

SharedManager::SharedManager(std::unique_ptr<BlockManager> core, EventLog* log, Clock clock)
    : clock_(std::move(clock)),
      log_(log),
      core_(std::move(core)),
      info_(core_->info()),
      epoch_(core_->epoch()) {
  absl::MutexLock lock(&mutex_);
  PublishEvents();
}

void SharedManager::PublishEvents() { log_->Append(core_->TakeEvents()); }

absl::StatusOr<BlockManager::OpenedSession> SharedManager::OpenSession(std::string client_name,
                                                                       absl::Duration lease) {
  absl::MutexLock lock(&mutex_);
  return core_->OpenSession(std::move(client_name), lease, clock_());
}

absl::StatusOr<absl::Duration> SharedManager::KeepAlive(SessionRef session) {
  absl::MutexLock lock(&mutex_);
  return core_->KeepAlive(session, clock_());
}

absl::Status SharedManager::AttachStream(SessionRef session) {
  absl::MutexLock lock(&mutex_);
  return core_->AttachStream(session);
}

void SharedManager::DetachStream(SessionId session) {
  absl::MutexLock lock(&mutex_);
  core_->DetachStream(session, clock_());
}

absl::Status SharedManager::CloseSession(SessionRef session) {
  absl::MutexLock lock(&mutex_);
  absl::Status status = core_->CloseSession(session, clock_());
  PublishEvents();
  return status;
}

size_t SharedManager::ExpireSessions() {
  absl::MutexLock lock(&mutex_);
  const size_t expired = core_->ExpireSessions(clock_());
  PublishEvents();
  return expired;
}

uint64_t SharedManager::ResetPrefixCache() {
  absl::MutexLock lock(&mutex_);
  const uint64_t removed = core_->ResetPrefixCache(clock_());
  PublishEvents();
  return removed;
}

ManagerStats SharedManager::Stats() const {
  absl::MutexLock lock(&mutex_);
  return core_->Stats();
}

Revision SharedManager::revision() const {
  absl::MutexLock lock(&mutex_);
  return core_->revision();
}

void SharedManager::CheckInvariants() const {
  absl::MutexLock lock(&mutex_);
  core_->CheckInvariants();
}

absl::StatusOr<BatchResult> SharedManager::Execute(SessionRef session,
                                                   absl::Span<const Operation> operations) {
  if (operations.size() > kMaxBatchOperations) {
    return MakeError(Reason::kBatchTooLarge,
                     absl::StrCat("a batch of ", operations.size(), " operations; the most is ",
                                  kMaxBatchOperations));
  }
  BatchResult batch;
  batch.results.reserve(operations.size());
  absl::MutexLock lock(&mutex_);
  const absl::Time now = clock_();
  if (absl::Status status = core_->KeepAlive(session, now).status(); !status.ok()) return status;
  size_t handles = 0;
  for (const Operation& operation : operations) {
    if (handles >= kMaxBatchHandles) {
      batch.results.push_back(MakeError(
          Reason::kBatchTooLarge,
          absl::StrCat("not run: the batch's answer holds ", handles, " block handles already")));
      continue;
    }
    batch.results.push_back(core_->Execute(session.id, operation, now));
    if (batch.results.back().ok()) handles += CountHandles(*batch.results.back());
  }
  batch.revision = core_->revision();
  PublishEvents();
  return batch;
}

namespace {

class LocalCacheClient final : public CacheClient {
 public:
  LocalCacheClient(SharedManager* manager, SessionRef session)
      : manager_(manager), session_(session) {}

  ~LocalCacheClient() override {
    const absl::Status status = manager_->CloseSession(session_);
    PAGODA_CHECK(status.ok(), "a local session lives as long as its client");
  }

  const CacheInfo& info() const override { return manager_->info(); }

  absl::StatusOr<BatchResult> Execute(absl::Span<const Operation> operations) override {
    return manager_->Execute(session_, operations);
  }

 private:
  SharedManager* const manager_;
  const SessionRef session_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<CacheClient>> OpenLocalCacheClient(SharedManager* manager,
                                                                  std::string client_name) {
  absl::StatusOr<BlockManager::OpenedSession> session =
      manager->OpenSession(std::move(client_name), absl::InfiniteDuration());
  if (!session.ok()) return session.status();
  return absl::make_unique<LocalCacheClient>(manager, session->ref);
}

}  // namespace pagoda
