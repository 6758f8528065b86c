#include "clients/cpp/keep_alive.h"

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "wire/errors.h"

namespace pagoda {
namespace {

// A bound for very short leases: keep-alive calls must not become the daemon's main load.
constexpr absl::Duration kShortestPause = absl::Milliseconds(10);

}  // namespace

KeepAlive::KeepAlive(const std::shared_ptr<grpc::Channel>& channel, const v1::SessionRef& session,
                     absl::Duration lease, std::function<void(const absl::Status&)> on_session_over)
    : stub_(v1::CacheService::NewStub(channel)),
      session_(session),
      lease_(std::max(lease, 3 * kShortestPause)),
      on_session_over_(std::move(on_session_over)) {
  started_ = thread_.Start("pagoda-lease", [this] { Run(); });
}

KeepAlive::~KeepAlive() {
  {
    absl::MutexLock lock(&mutex_);
    stopped_ = true;
    if (under_way_ != nullptr) under_way_->TryCancel();
  }
  thread_.Join();
}

absl::Status KeepAlive::session_error() const {
  absl::MutexLock lock(&mutex_);
  return session_error_;
}

void KeepAlive::Run() {
  absl::Duration pause = lease_ / 3;
  while (Pause(pause)) {
    const absl::Status status = Beat();
    if (IsSessionOver(status)) {
      {
        absl::MutexLock lock(&mutex_);
        session_error_ = status;
      }
      if (on_session_over_) on_session_over_(status);
      return;
    }
    // After a lost call, retry sooner.
    pause = std::max(lease_ / (status.ok() ? 3 : 10), kShortestPause);
  }
}

bool KeepAlive::Pause(absl::Duration duration) {
  absl::MutexLock lock(&mutex_);
  return !mutex_.AwaitWithTimeout(absl::Condition(&stopped_), duration);
}

absl::Status KeepAlive::Beat() {
  grpc::ClientContext context;
  {
    absl::MutexLock lock(&mutex_);
    if (stopped_) return absl::OkStatus();
    under_way_ = &context;
  }
  absl::Status status = Call(context, lease_ / 3);
  {
    absl::MutexLock lock(&mutex_);
    under_way_ = nullptr;
  }
  return status;
}

absl::Status KeepAlive::Call(grpc::ClientContext& context, absl::Duration timeout) const {
  context.set_wait_for_ready(true);
  context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
  v1::KeepAliveRequest request;
  *request.mutable_session() = session_;
  v1::KeepAliveResponse response;
  const grpc::Status status = stub_->KeepAlive(&context, request, &response);
  return status.ok() ? absl::OkStatus() : StatusFromGrpc(status);
}

absl::Status KeepAlive::Renew(absl::Duration timeout) const {
  grpc::ClientContext context;
  return Call(context, timeout);
}

}  // namespace pagoda
