// The event log: the last events of a cache, by revision, read by any number of subscribers at
// their own pace.
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

// Thread-safe. The writer hands over what one batch of operations caused; a reader gets references
// to those immutable batches and reads them without any lock, so a slow reader holds nothing up and
// memory is bounded by the log's limit (plus what a reader is reading at the moment).
//
// Invariants
// 1. Revisions in the log are consecutive: oldest() .. last().
// 2. Memory: the log holds at most max_events events and their batches hold at most max_bytes
// bytes, or one batch if that alone is more.
class EventLog {
 public:
  using Batch = EventBatch;
  // Shared by the log and by the readers that are reading it at the moment.
  using BatchPtr = std::shared_ptr<const Batch>;

  struct Limits {
    size_t max_events = size_t{1} << 20;
    size_t max_bytes = size_t{256} << 20;  // As EventBatch::bytes counts.
  };

  explicit EventLog(Limits limits) : limits_(limits) {}

  // The events of `batch` continue where the log ends (rule: first.revision == last() + 1). Empty:
  // nothing happens.
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

  // Events ever appended, by type: indexed as Event::what is.
  EventBatch::TypeCounts type_counts() const ABSL_LOCKS_EXCLUDED(mutex_);

  // Some batches that cover the revisions from `from` on, in order; the first one may begin before
  // `from`. At most `max_events` events, but at least one batch where there is any. Empty when
  // `from` is last() + 1. Errors: REVISION_COMPACTED (below oldest()), REVISION_IN_FUTURE (above
  // last() + 1).
  absl::StatusOr<std::vector<BatchPtr>> Read(Revision from, size_t max_events) const
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Waits until last() > `seen`, Close() or the timeout; returns last(). For one notifier thread,
  // not for each subscriber. With `wakes` also until there have been more wakes than that, which it
  // then counts.
  Revision WaitBeyond(Revision seen, absl::Duration timeout, uint64_t* wakes = nullptr) const
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Somebody is behind who was busy when the notifier looked.
  void Wake() ABSL_LOCKS_EXCLUDED(mutex_);
  // Ends every wait, now and later.
  void Close() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  const Limits limits_;

  // Taken after the core's lock, never before it; nothing is called under it.
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
