#include "clients/pagodactl/top/top_poller.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/time/clock.h"

namespace pagoda {

absl::StatusOr<TopSample> TopPoller::Poll() {
  if (!admin_.has_value()) {
    absl::StatusOr<AdminClient> admin = AdminClient::Connect(globals_);
    if (!admin.ok()) return admin.status();
    admin_ = *std::move(admin);
  }
  absl::StatusOr<v1::GetStatusResponse> status =
      admin_->Call(&AdminClient::Stub::GetStatus, v1::GetStatusRequest());
  if (!status.ok()) {
    // A new channel avoids gRPC's growing pauses between connection attempts.
    admin_.reset();
    return status.status();
  }
  TopSample sample{
      .time = absl::Now(), .status = *std::move(status), .tenants = {}, .stream = stream_.Look()};
  const auto tenants = admin_->Call(&AdminClient::Stub::ListTenants, v1::ListTenantsRequest());
  if (tenants.ok()) sample.tenants.assign(tenants->tenants().begin(), tenants->tenants().end());
  return sample;
}

TopPollThread::TopPollThread(TopPoller poller, absl::Duration interval, EventPoll* wait)
    : interval_(interval), wait_(*wait) {
  // Shared with the thread: a std::function is copied.
  const auto owned = std::make_shared<TopPoller>(std::move(poller));
  const absl::Status started =
      thread_.Start("pagoda-poll", [this, owned] { Run(std::move(*owned)); });
  if (started.ok()) return;
  absl::MutexLock lock(&mutex_);
  answers_.emplace_back(started);  // The reader sees why there are no others.
  wait_.Wake();
}

TopPollThread::~TopPollThread() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  thread_.Join();
}

std::vector<absl::StatusOr<TopSample>> TopPollThread::Take() {
  absl::MutexLock lock(&mutex_);
  return std::exchange(answers_, {});
}

void TopPollThread::Run(TopPoller poller) {
  absl::MutexLock lock(&mutex_);
  absl::Time next = absl::Now() + interval_;
  while (!mutex_.AwaitWithDeadline(absl::Condition(&stopping_), next)) {
    mutex_.Unlock();
    absl::StatusOr<TopSample> answer = poller.Poll();
    mutex_.Lock();
    answers_.push_back(std::move(answer));
    wait_.Wake();
    // After a long poll, the missed polls are not made up for.
    next = std::max(next + interval_, absl::Now());
  }
}

}  // namespace pagoda
