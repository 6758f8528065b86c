// The one reader of the event log that feeds the bridges.
#ifndef PAGODA_SERVER_BRIDGES_ROUTER_FEED_H_
#define PAGODA_SERVER_BRIDGES_ROUTER_FEED_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "base/thread.h"
#include "events/event_log.h"
#include "events/snapshot.h"
#include "server/bridges/router_events.h"
#include "server/bridges/router_translator.h"

namespace pagoda::server {

// A receiver of batches.
class RouterSink {
 public:
  virtual ~RouterSink() = default;
  // Takes the next batch. Runs on the feed's thread and must not block.
  virtual void Publish(const RouterBatchPtr& batch) = 0;
  // Whether a subscriber can still read the last AllCleared and every batch after it. Runs on the
  // feed's thread.
  virtual bool KeepsLastClear() const { return true; }
};

// Reads the log from its first revision on, with its own cursor and thread. Translates the events
// for routers and gives them to the sinks in numbered batches. The cache does not wait for the
// feed. Thread-safe.
//
// A router that drops its blocks at each AllCleared, and applies every later batch, has the cached
// blocks:
//
// 1. The first batch is an AllCleared, because a router can have blocks of the daemon's last run.
// 2. An AllCleared is the first event of its batch, so that a subscriber can begin there.
// 3. If the log drops events before the feed has read them, the feed resets: it sends AllCleared,
//    then every cached block from a snapshot, parents before children, then the log from there on.
// 4. If a sink has dropped the last AllCleared, the feed sends AllCleared and every cached block
//    again, so that a late subscriber finds them. It waits until the changes since the last time
//    take as many bytes as the blocks did, so that at most half of the stream is repetition.
//
// If the log is so short that it passes the feed during each of several snapshots, the feed sends
// AllCleared and goes on from the log's oldest event. Routers then expect too few blocks, but never
// a block that is not cached. The feed tries again when it has read the whole log, at most every
// kRetryReset, until a snapshot succeeds.
class RouterFeed {
 public:
  struct Options {
    RouterTranslator::Options cache;
    // How long the feed waits after a new event, so that further events join the same batch.
    absl::Duration flush_interval;
    // The number of the first batch.
    uint64_t first_number = 0;
    // Returns the next chunk of a snapshot (events/snapshot.h).
    std::function<SnapshotPiece(const SnapshotPosition&)> read_snapshot;
  };

  struct Stats {
    uint64_t batches = 0;
    uint64_t stored_blocks = 0;   // Announced as stored, including moves between tiers.
    uint64_t removed_blocks = 0;  // Announced as removed, including moves between tiers.
    uint64_t clears = 0;
    uint64_t resets = 0;
    uint64_t read_revision = 0;  // The revision of the last event read.
  };

  // `log` and the sinks outlive the feed.
  RouterFeed(Options options, const EventLog* log, std::vector<RouterSink*> sinks);
  // Publishes the events that the log has, then ends the thread. REQUIRES: the log is not closed.
  ~RouterFeed();

  // OK, or why its thread is missing (Thread::Start). It may not be used then.
  const absl::Status& started() const { return started_; }

  Stats stats() const ABSL_LOCKS_EXCLUDED(mutex_);

  // Waits until the sinks have the events up to `revision`. Returns false after the timeout.
  bool WaitUntilRead(Revision revision, absl::Duration timeout) const ABSL_LOCKS_EXCLUDED(mutex_);

  // A batch ends with the RouterEvent that brings it to this size, or with the last event read.
  static constexpr size_t kFullBatchBytes = 128 << 10;
  // The time between a reset without a snapshot and the next attempt.
  static constexpr absl::Duration kRetryReset = absl::Seconds(2);

 private:
  void Run();
  // Reads some events and publishes them. Returns false if there are none.
  bool ReadOn();
  void Reset();
  // Fills the translator. Returns false if the log has passed the feed meanwhile.
  bool TakeSnapshot();
  // Clears the translator without an event for the sinks.
  void ForgetQuietly();
  // Sends AllCleared and every block of the translator, which is at `revision`.
  void SendEverything(Revision revision);
  void RepeatIfDropped();
  void Add(const Event& event);
  void FlushIfFull();
  // Flushes the first sized_ events of pending_.
  void FlushSized();
  void Flush();
  void Count(const RouterBatch& batch);

  const Options options_;
  const EventLog* const log_;
  const std::vector<RouterSink*> sinks_;

  // Used by the thread only.
  RouterTranslator translator_;
  Revision next_{1};
  uint64_t next_number_;
  uint64_t next_event_ = 1;
  absl::Time time_;  // The time of the last event in pending_.
  Revision told_;    // Events up to this one are in batches or in pending_.
  std::vector<RouterEvent> pending_;
  size_t sized_ = 0;  // The number of events of pending_ that pending_bytes_ counts.
  size_t pending_bytes_ = 0;
  size_t content_bytes_ = 0;  // The size of all blocks, when they were last published.
  size_t change_bytes_ = 0;   // The size of the batches since then.
  absl::Time retry_reset_ = absl::InfiniteFuture();

  std::atomic<uint64_t> batches_ = 0;
  std::atomic<uint64_t> stored_blocks_ = 0;
  std::atomic<uint64_t> removed_blocks_ = 0;
  std::atomic<uint64_t> clears_ = 0;
  std::atomic<uint64_t> resets_ = 0;

  mutable absl::Mutex mutex_;  // A leaf lock: no other lock is taken under it.
  Revision read_ ABSL_GUARDED_BY(mutex_);

  absl::Notification stop_;
  absl::Status started_;
  Thread thread_;  // Last: it uses the other members.
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_BRIDGES_ROUTER_FEED_H_
