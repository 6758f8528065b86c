// The thread that serves the pairs of rings of one cache.
#ifndef PAGODA_SERVER_RING_RING_POLLER_H_
#define PAGODA_SERVER_RING_RING_POLLER_H_

#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/thread.h"
#include "server/ring/ring_pair.h"
#include "wire/ring/ring_wake.h"

namespace pagoda::server {

// Runs the batches of its pairs on its thread, one of each pair in turn. After a batch it checks
// for the next one for some microseconds (ring::Spin). Then it sleeps until a client wakes it, so
// it takes no time of the processor while no client sends. Thread-safe.
class RingPoller {
 public:
  // The thread's name, as the system shows it.
  static constexpr const char* kThreadName = "pagoda-ring";

  // Errors: RESOURCE_EXHAUSTED without a reason (no descriptor is left); THREADS_EXHAUSTED.
  static absl::StatusOr<std::unique_ptr<RingPoller>> Start();
  // REQUIRES: every pair has ended.
  ~RingPoller();
  RingPoller(const RingPoller&) = delete;
  RingPoller& operator=(const RingPoller&) = delete;

  // Serves the pair until it ends.
  void Add(std::shared_ptr<RingPair> pair);

  // Pairs that it serves now.
  size_t size() const { return size_.load(std::memory_order_acquire); }

 private:
  explicit RingPoller(std::shared_ptr<RingInbox> inbox) : inbox_(std::move(inbox)) {}
  void Run();
  // Serves every awake pair that has a request.
  void ServeAwake();
  bool AnyRequest() const;
  // Polls for requests of the awake pairs for a short time. False if none came.
  bool SpinForRequest();
  // Lets the awake pairs wait. A pair that just got a request stays awake.
  void PutToSleep();
  // Takes what the system reports, and waits for it up to `timeout`.
  void TakeEvents(absl::Duration timeout);
  // Takes the pairs that are new, or whose batch has ended elsewhere.
  void TakeInbox();
  void OnAdded(std::shared_ptr<RingPair> pair);
  void OnWake(RingPair* pair);
  void Awaken(RingPair* pair);
  void Forget(RingPair* pair);

  const std::shared_ptr<RingInbox> inbox_;  // With the descriptors of the pairs.
  std::atomic<size_t> size_ = 0;            // Pairs added and not forgotten.
  std::atomic<bool> stopping_ = false;

  // Used by the thread alone. A pair is in awake_, or it waits for its client's wake, or its batch
  // runs elsewhere.
  absl::flat_hash_map<RingPair*, std::shared_ptr<RingPair>> pairs_;
  std::vector<RingPair*> awake_;
  ring::Spin spin_;
  Thread thread_;
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_RING_RING_POLLER_H_
