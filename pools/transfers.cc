#include "pools/transfers.h"

#include <chrono>
#include <utility>

#include "base/check.h"
#include "pools/copy_work.h"

namespace pagoda {
namespace {

using SteadyClock = std::chrono::steady_clock;

}  // namespace

HostTransfers::HostTransfers(PoolSet* pools, Options options, Completion completion)
    : pools_(pools), options_(std::move(options)), completion_(std::move(completion)) {
  PAGODA_CHECK(options_.num_threads > 0, "transfers have a thread");
  PAGODA_CHECK(pools_ == nullptr || pools_->place(kPrimaryTier).kind == MemoryKind::kHost,
               "the pools lie in host memory");
  threads_.reserve(options_.num_threads);
  started_ = StartThreads(
      "pagoda-copies", options_.num_threads, [this] { RunThread(); }, &threads_);
}

HostTransfers::~HostTransfers() { Stop(); }

void HostTransfers::Submit(absl::Span<const Order> orders) {
  absl::MutexLock lock(&mutex_);
  PAGODA_CHECK(!stopped_, "no copy is ordered after Stop");
  const auto now = SteadyClock::now();
  for (const Order& order : orders) Enqueue(order, now);
}

void HostTransfers::Enqueue(const Order& order, SteadyClock::time_point now) {
  TakeTicket(order.ticket, last_);
  uint32_t waits_for = 0;
  for (const Ticket earlier : order.after) {
    const auto it = pending_.find(earlier);
    if (it == pending_.end()) continue;
    it->second.followers.push_back(order.ticket);
    ++waits_for;
  }
  pending_.emplace(order.ticket, Pending{order, now, waits_for, {}});
  if (waits_for == 0) ready_.push_back(order.ticket);
}

void HostTransfers::RunThread() {
  absl::MutexLock lock(&mutex_);
  while (true) {
    mutex_.Await(absl::Condition(this, &HostTransfers::HasWorkOrEnds));
    if (ready_.empty()) return;
    RunNext();
  }
}

void HostTransfers::RunNext() {
  const Ticket ticket = ready_.front();
  ready_.pop_front();
  const Pending& pending = pending_.find(ticket)->second;
  const Order order = pending.order;
  const SteadyClock::time_point given = pending.given;
  const bool cancelled = stopping_;
  ++stats_.running;
  mutex_.Unlock();

  CopyOutcome outcome;
  if (cancelled) {
    outcome.status = CancelledCopy();
  } else if (options_.before_copy != nullptr) {
    outcome.status = options_.before_copy(order);
  }
  if (outcome.status.ok()) outcome = CarryOutOnHost(order, *pools_, given);
  completion_(order.lane, ticket, outcome.status);

  mutex_.Lock();
  --stats_.running;
  if (cancelled) {
    ++stats_.cancelled;
  } else {
    CountOutcome(order, outcome, stats_);
  }
  const auto done = pending_.find(ticket);
  for (const Ticket follower : done->second.followers) {
    if (--pending_.find(follower)->second.waits_for == 0) ready_.push_back(follower);
  }
  pending_.erase(done);
}

void HostTransfers::WaitUntilIdle() {
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(this, &HostTransfers::Idle));
}

void HostTransfers::Stop() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  for (Thread& thread : threads_) thread.Join();
  threads_.clear();
  absl::MutexLock lock(&mutex_);
  PAGODA_CHECK(pending_.empty(), "every order is reported");
  stopped_ = true;
}

TransferStats HostTransfers::stats() const {
  absl::MutexLock lock(&mutex_);
  TransferStats stats = stats_;
  stats.queued = pending_.size() - stats.running;
  return stats;
}

void InstantTransfers::Submit(absl::Span<const Order> orders) {
  absl::MutexLock lock(&mutex_);
  PAGODA_CHECK(!stopped_, "no copy is ordered after Stop");
  for (const Order& order : orders) {
    TakeTicket(order.ticket, last_);
    queue_.push_back(order);
  }
  if (running_) return;
  running_ = true;
  while (!queue_.empty()) {
    const Order order = queue_.front();
    queue_.pop_front();
    mutex_.Unlock();
    const CopyOutcome outcome =
        pools_ == nullptr ? CopyOutcome() : CarryOutOnHost(order, *pools_, SteadyClock::now());
    completion_(order.lane, order.ticket, outcome.status);
    mutex_.Lock();
    CountOutcome(order, outcome, stats_);
  }
  running_ = false;
}

void InstantTransfers::WaitUntilIdle() {
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(this, &InstantTransfers::Idle));
}

void InstantTransfers::Stop() {
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(this, &InstantTransfers::Idle));
  stopped_ = true;
}

TransferStats InstantTransfers::stats() const {
  absl::MutexLock lock(&mutex_);
  TransferStats stats = stats_;
  stats.running = running_ ? 1 : 0;
  stats.queued = queue_.size();
  return stats;
}

}  // namespace pagoda
