#include "events/event_log.h"

#include <algorithm>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/error.h"

namespace pagoda {
namespace {

Revision FirstOf(const EventLog::BatchPtr& batch) { return batch->front().revision; }
Revision LastOf(const EventLog::BatchPtr& batch) { return batch->back().revision; }

}  // namespace

void EventLog::Append(Batch events) {
  if (events.empty()) return;
  const auto batch = std::make_shared<const Batch>(std::move(events));
  const Revision first = FirstOf(batch), last = LastOf(batch);
  PAGODA_CHECK(last.value() + 1 == first.value() + batch->size(), "revisions have no holes");
  const size_t bytes = batch->bytes();
  absl::InlinedVector<BatchPtr, 4> dropped;  // Destroyed after the lock is given up.
  absl::MutexLock lock(&mutex_);
  PAGODA_CHECK(first.value() == last_.value() + 1, "revisions have no holes");
  last_ = last;
  for (size_t type = 0; type < type_counts_.size(); ++type) {
    type_counts_[type] += batch->type_counts()[type];
  }
  num_events_ += batch->size();
  num_bytes_ += bytes;
  batches_.push_back(batch);
  while ((num_events_ > limits_.max_events || num_bytes_ > limits_.max_bytes) &&
         batches_.size() > 1) {
    num_events_ -= batches_.front()->size();
    num_bytes_ -= batches_.front()->bytes();
    dropped.push_back(std::move(batches_.front()));
    batches_.pop_front();
  }
}

Revision EventLog::oldest() const {
  absl::MutexLock lock(&mutex_);
  return batches_.empty() ? Revision{last_.value() + 1} : FirstOf(batches_.front());
}

Revision EventLog::last() const {
  absl::MutexLock lock(&mutex_);
  return last_;
}

EventBatch::TypeCounts EventLog::type_counts() const {
  absl::MutexLock lock(&mutex_);
  return type_counts_;
}

absl::StatusOr<std::vector<EventLog::BatchPtr>> EventLog::Read(Revision from,
                                                               size_t max_events) const {
  absl::MutexLock lock(&mutex_);
  if (from.value() > last_.value() + 1) {
    return MakeError(Reason::kRevisionInFuture,
                     absl::StrCat("revision ", from.value(), " is in the future; the next one is ",
                                  last_.value() + 1));
  }
  std::vector<BatchPtr> read;
  if (from.value() == last_.value() + 1) return read;
  const Revision oldest = FirstOf(batches_.front());
  if (from < oldest) {
    return MakeError(Reason::kRevisionCompacted,
                     absl::StrCat("the log no longer has revision ", from.value(),
                                  "; the oldest one is ", oldest.value()));
  }
  // The last batch that begins at or before `from`.
  auto it = std::upper_bound(batches_.begin(), batches_.end(), from,
                             [](Revision r, const auto& batch) { return r < FirstOf(batch); });
  --it;
  size_t events = 0;
  for (; it != batches_.end(); ++it) {
    const size_t size = (*it)->size();
    if (!read.empty() && events + size > max_events) break;
    events += size;
    read.push_back(*it);
  }
  return read;
}

Revision EventLog::WaitBeyond(Revision seen, absl::Duration timeout, uint64_t* wakes) const {
  absl::MutexLock lock(&mutex_);
  const auto ready = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return closed_ || last_ > seen || (wakes != nullptr && wakes_ != *wakes);
  };
  mutex_.AwaitWithTimeout(absl::Condition(&ready), timeout);
  if (wakes != nullptr) *wakes = wakes_;
  return last_;
}

void EventLog::Wake() {
  absl::MutexLock lock(&mutex_);
  ++wakes_;
}

void EventLog::Close() {
  absl::MutexLock lock(&mutex_);
  closed_ = true;
}

}  // namespace pagoda
