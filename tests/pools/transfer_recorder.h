// Records the copies of a test, and delays them.
#ifndef PAGODA_TESTS_POOLS_TRANSFER_RECORDER_H_
#define PAGODA_TESTS_POOLS_TRANSFER_RECORDER_H_

#include <cstddef>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "pools/order.h"
#include "pools/transfers.h"

namespace pagoda {

// Thread-safe. Must outlive the Transfers that use it.
class TransferRecorder {
 public:
  using Completed = std::pair<uint64_t, absl::Status>;

  Transfers::Completion completion() {
    return [this](Lane, Ticket ticket, absl::Status status) {
      absl::MutexLock lock(&mutex_);
      completed_.emplace_back(ticket.value(), std::move(status));
    };
  }

  // For HostTransfers::Options::before_copy: records the start, then waits while the ticket is
  // held.
  absl::Status Started(const Order& order) {
    const uint64_t ticket = order.ticket.value();
    absl::MutexLock lock(&mutex_);
    started_.push_back(ticket);
    const auto released = [this, ticket]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return !held_.contains(ticket);
    };
    mutex_.Await(absl::Condition(&released));
    return failing_.contains(ticket) ? absl::DataLossError("as the test wants") : absl::OkStatus();
  }

  void Hold(uint64_t ticket) {
    absl::MutexLock lock(&mutex_);
    held_.insert(ticket);
  }
  void Release(uint64_t ticket) {
    absl::MutexLock lock(&mutex_);
    held_.erase(ticket);
  }
  void Fail(uint64_t ticket) {
    absl::MutexLock lock(&mutex_);
    failing_.insert(ticket);
  }

  void AwaitStarts(size_t count) {
    absl::MutexLock lock(&mutex_);
    const auto enough = [this, count]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return started_.size() >= count;
    };
    mutex_.Await(absl::Condition(&enough));
  }
  void AwaitCompletions(size_t count) {
    absl::MutexLock lock(&mutex_);
    const auto enough = [this, count]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return completed_.size() >= count;
    };
    mutex_.Await(absl::Condition(&enough));
  }

  // In the order in which they happened.
  std::vector<uint64_t> started() const {
    absl::MutexLock lock(&mutex_);
    return started_;
  }
  std::vector<Completed> completed() const {
    absl::MutexLock lock(&mutex_);
    return completed_;
  }
  std::vector<uint64_t> completed_tickets() const {
    std::vector<uint64_t> tickets;
    for (const auto& [ticket, status] : completed()) tickets.push_back(ticket);
    return tickets;
  }

 private:
  mutable absl::Mutex mutex_;
  std::vector<uint64_t> started_ ABSL_GUARDED_BY(mutex_);
  std::vector<Completed> completed_ ABSL_GUARDED_BY(mutex_);
  std::set<uint64_t> held_ ABSL_GUARDED_BY(mutex_);
  std::set<uint64_t> failing_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace pagoda

#endif  // PAGODA_TESTS_POOLS_TRANSFER_RECORDER_H_
