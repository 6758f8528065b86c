// The carriers of Lane::kMemory: they copy between slots in memory.
#ifndef PAGODA_POOLS_TRANSFERS_H_
#define PAGODA_POOLS_TRANSFERS_H_

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/thread.h"
#include "pools/carrier.h"
#include "pools/duration_histogram.h"
#include "pools/order.h"
#include "pools/pool.h"
#include "pools/types.h"

namespace pagoda {

// The bounds of TransferStats::Direction::latency, in seconds. A block of 64 KiB takes about 10 us;
// a block of 16 MiB behind a queue takes seconds.
inline constexpr double kCopyLatencyBounds[] = {10e-6, 25e-6,  50e-6, 100e-6, 250e-6, 500e-6,
                                                1e-3,  2.5e-3, 5e-3,  10e-3,  25e-3,  50e-3,
                                                0.1,   0.25,   0.5,   1,      2.5,    5};

// Counts since the start; `running` and `queued` are current values. An order counts as done when
// its completion has returned.
struct TransferStats {
  struct Direction {
    uint64_t copies = 0;  // Successful copies.
    uint64_t bytes = 0;   // The bytes of the successful copies.
    absl::Duration busy;  // Summed over the threads, failed copies included.
    // The latency of the successful copies, from the order to the last byte. It includes the wait
    // for a thread and for earlier copies.
    DurationHistogram latency{kCopyLatencyBounds};
  };
  // By the tier of the source, then by the tier of the target.
  std::array<std::array<Direction, kMaxTiers>, kMaxTiers> directions;
  uint64_t failed = 0;     // Without cancelled orders.
  uint64_t cancelled = 0;  // Cancelled by Stop.
  size_t running = 0;      // Now.
  size_t queued = 0;       // Now: submitted, and not started.

  const Direction& direction(Tier source, Tier target) const {
    return directions[source.value()][target.value()];
  }
};

// Carries out the orders of Lane::kMemory. Thread-safe.
//
// 1. An order's copy starts when the copies of both tickets in its `after` have ended. It is
// reported when their completions have returned. A ticket that is not among the orders submitted
// and not done has ended earlier. So copies that touch the same slot run one after another, and are
// reported in that order. Other copies run and end in any order.
// 2. Every order is reported exactly once. Any status other than OK means that the target's bytes
// are not those of the source. A copy that is impossible (a slot that does not exist, a window or a
// tier without pools) is reported with the reason. It never stops the process.
// 3. The completion runs without any lock of Transfers. It may call Submit and stats(), but not
// WaitUntilIdle or Stop. When it begins, the order no longer touches its slots (a later order may).
// It sees the bytes that the copy has written, and so does every thread that it notifies.
//
// An order takes about 300 bytes in the queue. A caller that limits new work reads the depth from
// stats(). Submit also REQUIRES: callers on several threads agree on the order of their tickets;
// Stop has not been called, but a completion that Stop waits for may still submit.
class Transfers : public Carrier {
 public:
  // Waits until every order is done.
  virtual void WaitUntilIdle() = 0;
  // Lets the running copies end, and reports each waiting order as CANCELLED, in the order of rule
  // 1; its bytes are not copied. When Stop has returned, no completion runs or will run. A second
  // call does nothing. The destructor calls it. REQUIRES: one caller at a time.
  virtual void Stop() = 0;
  virtual TransferStats stats() const = 0;
};

// Copies between host pools on its own threads. The completions run on the same threads. A copy
// starts when the completions of its `after` have returned. For pools on a device:
// gpu_transfers/transfers.h.
class HostTransfers final : public Transfers {
 public:
  struct Options {
    uint32_t num_threads = 2;  // At least 1.
    // For tests that delay copies or make them fail: called before each copy, on its thread,
    // without a lock. If it returns an error, the order fails with that error and nothing is
    // copied.
    std::function<absl::Status(const Order&)> before_copy;
  };

  // `pools` must outlive this object. Starts the threads. REQUIRES: no pool lies on a device.
  HostTransfers(PoolSet* pools, Options options, Completion completion);
  ~HostTransfers() override;

  // OK, or why a thread is missing (Thread::Start). No order may be submitted then.
  const absl::Status& started() const { return started_; }

  void Submit(absl::Span<const Order> orders) override ABSL_LOCKS_EXCLUDED(mutex_);
  void WaitUntilIdle() override ABSL_LOCKS_EXCLUDED(mutex_);
  void Stop() override ABSL_LOCKS_EXCLUDED(mutex_);
  TransferStats stats() const override ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Pending {
    Order order;
    std::chrono::steady_clock::time_point given;
    uint32_t waits_for = 0;                    // How many of order.after are pending.
    absl::InlinedVector<Ticket, 2> followers;  // The orders that wait for this one.
  };

  void Enqueue(const Order& order, std::chrono::steady_clock::time_point now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RunThread() ABSL_LOCKS_EXCLUDED(mutex_);
  // Carries out and reports the first order of ready_, then releases its followers. Unlocks during
  // the copy and the completion.
  void RunNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool HasWorkOrEnds() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !ready_.empty() || (stopping_ && pending_.empty());
  }
  bool Idle() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return pending_.empty(); }

  PoolSet* const pools_;
  const Options options_;
  const Completion completion_;

  mutable absl::Mutex mutex_;  // A leaf: no other function is called under it.
  absl::flat_hash_map<Ticket, Pending> pending_ ABSL_GUARDED_BY(mutex_);  // Submitted and not done.
  // The tickets of pending_ that can start and have not started.
  std::deque<Ticket> ready_ ABSL_GUARDED_BY(mutex_);
  Ticket last_ ABSL_GUARDED_BY(mutex_);          // The last ticket submitted.
  TransferStats stats_ ABSL_GUARDED_BY(mutex_);  // Without `queued`.
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Thread> threads_;  // Used by the constructor and Stop only, like the next one.
  absl::Status started_;
};

// For simulations and replays. Carries out each order inside Submit, on the caller's thread; the
// completion runs there too. A caller must not hold a lock that the completion takes. If orders
// arrive during Submit, from a completion or from another thread, the thread in Submit carries them
// out as well. Stop only waits for them.
class InstantTransfers final : public Transfers {
 public:
  // `pools` must outlive this object. Null: there is no memory, and every order succeeds.
  InstantTransfers(PoolSet* pools, Completion completion)
      : pools_(pools), completion_(std::move(completion)) {}
  ~InstantTransfers() override { Stop(); }

  void Submit(absl::Span<const Order> orders) override ABSL_LOCKS_EXCLUDED(mutex_);
  void WaitUntilIdle() override ABSL_LOCKS_EXCLUDED(mutex_);
  void Stop() override ABSL_LOCKS_EXCLUDED(mutex_);
  TransferStats stats() const override ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  bool Idle() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !running_; }

  PoolSet* const pools_;
  const Completion completion_;

  mutable absl::Mutex mutex_;  // A leaf: no other function is called under it.
  std::deque<Order> queue_ ABSL_GUARDED_BY(mutex_);
  Ticket last_ ABSL_GUARDED_BY(mutex_);
  TransferStats stats_ ABSL_GUARDED_BY(mutex_);
  bool running_ ABSL_GUARDED_BY(mutex_) = false;  // A thread is carrying out queue_.
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace pagoda

#endif  // PAGODA_POOLS_TRANSFERS_H_
