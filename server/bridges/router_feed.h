// The one reader of the event log that feeds the bridges.
#ifndef PAGODA_SERVER_BRIDGES_ROUTER_FEED_H_
#define PAGODA_SERVER_BRIDGES_ROUTER_FEED_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "events/event_log.h"
#include "events/snapshot.h"
#include "server/bridges/router_events.h"
#include "server/bridges/router_translator.h"

namespace pagoda::server {

// Where batches go.
class RouterSink {
 public:
  virtual ~RouterSink() = default;
  // Takes the next batch. On the feed's thread: does not wait for anybody.
  virtual void Publish(const RouterBatchPtr& batch) = 0;
};

// Reads the log at its own cursor, on a thread of its own, from the log's first revision on, and
// hands what routers care for to the sinks, in numbered batches. Nobody waits for it: a feed that
// is too slow is passed by the log, and begins again (a reset). Thread-safe.
//
// A reset is an AllCleared, then all that is cached, parents before their children, as a snapshot
// shows it, then the log from there on. A log that is so short that it passes the feed during each
// of several snapshots leaves it with the log's oldest events: then it says nothing of blocks that
// were stored before, so routers expect too little for a while, and never what is not there.
class RouterFeed {
 public:
  struct Options {
    RouterTranslator::Options cache;
    // From the first new event to its batch: what happens meanwhile goes into the same one.
    absl::Duration flush_interval;
    // Of the first batch.
    uint64_t first_number = 0;
    // The next piece of a snapshot (events/snapshot.h).
    std::function<SnapshotPiece(const SnapshotPosition&)> read_snapshot;
  };

  struct Stats {
    uint64_t batches = 0;
    uint64_t stored_blocks = 0;   // Told of, counting moves between tiers.
    uint64_t removed_blocks = 0;  // The same.
    uint64_t clears = 0;
    uint64_t resets = 0;
    uint64_t read_revision = 0;  // Of the last event read.
  };

  // `log` and the sinks outlive the feed.
  RouterFeed(Options options, const EventLog* log, std::vector<RouterSink*> sinks);
  // Hands over what the log has, and ends the thread. REQUIRES: the log has not been closed before.
  ~RouterFeed();

  Stats stats() const ABSL_LOCKS_EXCLUDED(mutex_);

  // Waits until the sinks have what the log says up to `revision`; false where the timeout was
  // first.
  bool WaitUntilRead(Revision revision, absl::Duration timeout) const ABSL_LOCKS_EXCLUDED(mutex_);

  // A batch ends with the RouterEvent that takes it to this many bytes, or at the end of what was
  // read.
  static constexpr size_t kFullBatchBytes = 128 << 10;

 private:
  void Run();
  // Reads some events and publishes them; false where there are none.
  bool ReadOn();
  void Reset();
  // Fills the translator; false where the log went on too fast.
  bool TakeSnapshot();
  // Forgets what the translator knows, and tells nobody.
  void ForgetQuietly();
  void Add(const Event& event);
  void FlushIfFull();
  void Flush();
  void Count(const RouterBatch& batch);

  const Options options_;
  const EventLog* const log_;
  const std::vector<RouterSink*> sinks_;

  // The thread's.
  RouterTranslator translator_;
  Revision next_{1};
  uint64_t next_number_;
  uint64_t next_event_ = 1;
  absl::Time time_;  // Of the last event of pending_.
  Revision told_;    // Events up to this one are in batches or in pending_.
  std::vector<RouterEvent> pending_;
  size_t sized_ = 0;  // Events of pending_ that are in pending_bytes_.
  size_t pending_bytes_ = 0;

  std::atomic<uint64_t> batches_ = 0;
  std::atomic<uint64_t> stored_blocks_ = 0;
  std::atomic<uint64_t> removed_blocks_ = 0;
  std::atomic<uint64_t> clears_ = 0;
  std::atomic<uint64_t> resets_ = 0;

  mutable absl::Mutex mutex_;  // Nothing is called under it.
  Revision read_ ABSL_GUARDED_BY(mutex_);

  absl::Notification stop_;
  std::thread thread_;  // Last: it uses the others.
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_BRIDGES_ROUTER_FEED_H_
