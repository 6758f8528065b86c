// The event log: the last events of a cache, by revision. Any number of subscribers read it, each
// at its own pace.
#ifndef PAGODA_EVENTS_EVENT_LOG_H_
#define PAGODA_EVENTS_EVENT_LOG_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "events/event.h"
#include "events/event_batch.h"

namespace pagoda {

// Thread-safe. The writer appends the events of one batch of operations. A reader gets references
// to these immutable batches and reads them without a lock, so a slow reader delays nobody. Memory
// is bounded by the log's limits, plus the batches that readers are reading.
//
// Invariants
// 1. Revisions in the log are consecutive: oldest() .. last().
// 2. Memory: the log holds at most max_events events and their batches hold at most max_bytes
// bytes, or one batch if that alone is more.
class EventLog {
 public:
  using Batch = EventBatch;
  // Owned by the log and by the readers that are reading it.
  using BatchPtr = std::shared_ptr<const Batch>;

  struct Limits {
    size_t max_events = size_t{1} << 20;
    size_t max_bytes = size_t{256} << 20;  // The bound on the sum of EventBatch::bytes.
  };

  explicit EventLog(Limits limits) : limits_(limits) {}

  // Appends the events of `batch`, if it has any. REQUIRES: the first one's revision is last() + 1.
  void Append(Batch batch) ABSL_LOCKS_EXCLUDED(mutex_);

  // The oldest revision that can still be read; last() + 1 while the log is empty.
  Revision oldest() const ABSL_LOCKS_EXCLUDED(mutex_);
  // The newest revision; 0 before the first event.
  Revision last() const ABSL_LOCKS_EXCLUDED(mutex_);

  // Memory that the log holds now.
  size_t bytes() const ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return num_bytes_;
  }
  const Limits& limits() const { return limits_; }

  // The number of events ever appended, by type, indexed as Event::what is.
  EventBatch::TypeCounts type_counts() const ABSL_LOCKS_EXCLUDED(mutex_);

  // Batches that cover the revisions from `from` on, in order. The first one may begin before
  // `from`. At most `max_events` events, but at least one batch. Empty if `from` is last() + 1.
  // Errors: REVISION_COMPACTED (below oldest()), REVISION_IN_FUTURE (above last() + 1).
  absl::StatusOr<std::vector<BatchPtr>> Read(Revision from, size_t max_events) const
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Waits until last() > `seen`, Close() or the timeout; returns last(). For one notifier thread,
  // not for each subscriber. With `wakes` it also returns when there have been more than *wakes
  // calls of Wake(); it then sets *wakes to their number.
  Revision WaitBeyond(Revision seen, absl::Duration timeout, uint64_t* wakes = nullptr) const
      ABSL_LOCKS_EXCLUDED(mutex_);
  // At least one subscriber is behind: it was busy at the last notification.
  void Wake() ABSL_LOCKS_EXCLUDED(mutex_);
  // Ends every wait, now and later.
  void Close() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  const Limits limits_;

  // Lock order: after the core's lock. Nothing is called out under it.
  mutable absl::Mutex mutex_;
  std::deque<BatchPtr> batches_ ABSL_GUARDED_BY(mutex_);
  size_t num_events_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t num_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  Revision last_ ABSL_GUARDED_BY(mutex_);
  EventBatch::TypeCounts type_counts_ ABSL_GUARDED_BY(mutex_) = {};
  uint64_t wakes_ ABSL_GUARDED_BY(mutex_) = 0;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace pagoda

#endif  // PAGODA_EVENTS_EVENT_LOG_H_
