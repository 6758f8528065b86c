// The daemon's side of one pair of rings: a client's batches through shared memory.
#ifndef PAGODA_SERVER_RING_RING_PAIR_H_
#define PAGODA_SERVER_RING_RING_PAIR_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "base/event_poll.h"
#include "base/file_descriptor.h"
#include "server/batch/batch_run.h"
#include "server/batch/session_batches.h"
#include "server/callers/stream_slots.h"
#include "server/calls/rpc_metrics.h"
#include "server/directory/cache_directory.h"
#include "wire/ring/ring_memory.h"
#include "wire/ring/ring_reader.h"
#include "wire/ring/ring_writer.h"

namespace pagoda::server {

class RingPair;

// Tells a poller about its new pairs, and about pairs whose batch has ended on another thread. The
// poller and its pairs share it, because a batch can end after the poller. Thread-safe.
class RingInbox {
 public:
  enum class News : uint8_t { kAdded, kBatchDone };
  struct Item {
    News news;
    std::shared_ptr<RingPair> pair;
  };

  // `poll` is woken by Put.
  explicit RingInbox(EventPoll poll) : poll_(std::move(poll)) {}
  // Only the poller's thread uses it, except for Wake.
  EventPoll& poll() { return poll_; }
  // After Close it does nothing.
  void Put(News news, std::shared_ptr<RingPair> pair) ABSL_LOCKS_EXCLUDED(mutex_);
  std::vector<Item> TakeAll() ABSL_LOCKS_EXCLUDED(mutex_);
  // The poller has ended. Drops the items: their pairs own this object, so they would never be
  // freed.
  void Close() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  EventPoll poll_;
  absl::Mutex mutex_;                                // No other lock is taken under it.
  std::vector<Item> items_ ABSL_GUARDED_BY(mutex_);  // Empty once closed.
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

// Runs the batches of one session, one at a time. The client can write anything into the rings. All
// that it reaches by this is the end of its pair: see ring::Reader and ring::Writer. No call waits
// for the client.
//
// Thread-safe, except for the methods of the poller. The poller, the hub and the running batch
// share it.
class RingPair : public std::enable_shared_from_this<RingPair> {
 public:
  // `context` is that of the session's owner. `caches` and everything in `context` must outlive
  // this. `wake`: the daemon's end of the sockets.
  RingPair(const BatchRun::Context& context, const CacheDirectory* caches, SessionRef session,
           std::unique_ptr<ring::Memory> memory, FileDescriptor wake, RpcMetrics* metrics,
           StreamSlots::Slot slot);

  SessionRef session() const { return session_; }
  TenantId tenant() const { return context_.tenant; }
  uint64_t memory_bytes() const { return ring::MemoryBytes(memory_->bytes()); }

  // Ends the pair as soon as the current batch is answered. The client learns the reason. A second
  // call does nothing.
  void End(const absl::Status& reason) ABSL_LOCKS_EXCLUDED(mutex_);
  bool ended() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Whether a batch is under way.
  bool running() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Ends the pair at once: the current batch's wait ends. Returns when the pair has ended.
  void EndNow(const absl::Status& reason) ABSL_LOCKS_EXCLUDED(mutex_);

  // The poller's methods; its thread calls them, and only while no batch runs, except for
  // OnClientGone.

  // The pair goes into `inbox` when a batch ends on another thread.
  void JoinPoller(std::shared_ptr<RingInbox> inbox) { inbox_ = std::move(inbox); }
  int wake_socket() const { return wake_.get(); }
  bool HasRequest() const { return requests_.HasMessage(); }
  // False if there is a request: the pair does not wait.
  bool BeginWait() { return requests_.BeginWait(); }
  void EndWait() { requests_.EndWait(); }
  enum class Served : uint8_t {
    kAnswered,
    kRunning,  // The batch ends later. Then the pair comes into the inbox.
    kEnded,
  };
  // Runs the next batch. One that takes long runs on a thread of the tenants' queues, so the other
  // pairs need not wait for it. REQUIRES: HasRequest.
  Served Serve() ABSL_LOCKS_EXCLUDED(mutex_);
  // The client has closed its end.
  void OnClientGone() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  enum class Step : uint8_t { kIdle, kRunning, kEnded };

  enum class Place : uint8_t { kPoller, kQueue };

  // Reads a request and runs it. The tenant's queue calls it. `place`: kPoller if that can be on
  // the poller's thread.
  void Run(Place place);
  void Start();
  // `outcome`: the answer, or why the batch as a whole was refused.
  void OnBatchDone(const absl::StatusOr<BatchAnswer>& outcome) ABSL_LOCKS_EXCLUDED(mutex_);
  // The batch is over. `written`: whether the client has an answer. An error ends the pair.
  void FinishBatch(const absl::Status& written) ABSL_LOCKS_EXCLUDED(mutex_);
  // Put the answer of the batch into the ring.
  absl::Status WriteAnswer(const std::string& answer);
  absl::Status WriteRefusal(const absl::Status& why);
  // Wakes the client if the answer is in the ring.
  absl::Status Announce(ring::Writer::Outcome outcome);
  // Tells the client why, and wakes both sides. Call it once, when the step is kEnded.
  void Close(const absl::Status& reason) ABSL_LOCKS_EXCLUDED(mutex_);

  const BatchRun::Context context_;
  const SessionRef session_;
  const std::unique_ptr<ring::Memory> memory_;
  const FileDescriptor wake_;
  RpcMetrics* const metrics_;
  std::shared_ptr<RingInbox> inbox_;

  // Used by the poller, and while a batch runs by its thread.
  ring::Reader requests_;
  ring::Writer answers_;
  SessionBatches batches_;
  std::string bytes_;  // The request's bytes.

  mutable absl::Mutex mutex_;
  Step step_ ABSL_GUARDED_BY(mutex_) = Step::kIdle;
  bool announce_ ABSL_GUARDED_BY(mutex_) = false;  // The batch's end goes into the inbox.
  std::optional<absl::Status> ending_ ABSL_GUARDED_BY(mutex_);  // Set while a batch runs.
  // Until the pair has ended: what it counts in can be destroyed before the last user of this.
  std::optional<StreamSlots::Slot> slot_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_RING_RING_PAIR_H_
