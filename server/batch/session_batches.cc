#include "server/batch/session_batches.h"

#include <utility>

#include "base/error.h"
#include "wire/served_fields.h"
#include "wire/vocabulary.h"

namespace pagoda::server {

void SessionBatches::Run(size_t bytes, Parse parse, BatchRun::Done done) {
  const absl::Status read = Read(bytes, parse);
  read.ok() ? Start(std::move(done)) : done(read);
}

absl::Status SessionBatches::Read(size_t bytes, Parse parse) {
  request_ = google::protobuf::Arena::CreateMessage<v1::SessionRequest>(&memory_);
  fingerprint_ = 0;
  if (absl::Status status = context_.CheckSize(bytes); !status.ok()) return status;
  if (absl::Status status = parse(request_, &fingerprint_); !status.ok()) return status;
  if (absl::Status status = CheckServed(*request_); !status.ok()) return status;
  absl::StatusOr<CachePtr> cache = FindCache();
  if (!cache.ok()) return cache.status();
  cache_ = *std::move(cache);
  return absl::OkStatus();
}

absl::StatusOr<CachePtr> SessionBatches::FindCache() {
  if (!request_->has_session() && !session_.has_value()) {
    return MakeError(Reason::kInvalidArgument,
                     "the first message of a stream must name its session");
  }
  const SessionRef named =
      request_->has_session() ? SessionFromProto(request_->session()) : *session_;
  if (!session_.has_value()) return Attach(named);
  if (named.id != session_->id || named.token != session_->token) {
    return MakeError(Reason::kInvalidArgument,
                     "a stream serves only the session that its first message named");
  }
  return caches_->OfSession(named.id);
}

absl::StatusOr<CachePtr> SessionBatches::Attach(SessionRef named) {
  if (absl::Status status = owners_->Check(named, caller_); !status.ok()) return status;
  absl::StatusOr<CachePtr> cache = caches_->OfSession(named.id);
  if (!cache.ok()) return cache;
  if (absl::Status status = (*cache)->manager->AttachStream(named); !status.ok()) return status;
  session_ = named;
  return cache;
}

void SessionBatches::Start(BatchRun::Done done) {
  const CachePtr cache = std::exchange(cache_, nullptr);
  const auto batch =
      std::make_shared<BatchRun>(context_.Of(cache->manager, cache), *session_, std::move(done));
  bool cancelled = false;
  {
    absl::MutexLock lock(&mutex_);
    batch_ = batch;
    cancelled = cancelled_;
  }
  if (cancelled) batch->EndWaits(ClientGone());
  batch_id_ = request_->batch_id();
  batch->Start(request_->batch(), fingerprint_, [this] { memory_.Reset(); });
}

void SessionBatches::Clear() {
  memory_.Reset();
  absl::MutexLock lock(&mutex_);
  batch_.reset();  // Frees its operations, which an idle session does not need.
}

void SessionBatches::Cancel() {
  std::shared_ptr<BatchRun> batch;
  {
    absl::MutexLock lock(&mutex_);
    cancelled_ = true;
    batch = batch_;
  }
  if (batch != nullptr) batch->EndWaits(ClientGone());
}

void SessionBatches::Detach() {
  if (owners_ == nullptr || !session_.has_value()) return;
  // If the session's cache is gone, the session is gone with it.
  const absl::StatusOr<CachePtr> cache = caches_->OfSession(session_->id);
  if (cache.ok()) (*cache)->manager->DetachStream(session_->id);
}

}  // namespace pagoda::server
