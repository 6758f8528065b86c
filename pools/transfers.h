// The copies between slots: the core orders them, Transfers carries them out.
#ifndef PAGODA_POOLS_TRANSFERS_H_
#define PAGODA_POOLS_TRANSFERS_H_

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "pools/copy_order.h"
#include "pools/duration_histogram.h"
#include "pools/pool.h"
#include "pools/types.h"

namespace pagoda {

// Bounds of TransferStats::Direction::latency, in seconds: a block of 64 KiB takes 10 us or so, one
// of 16 MiB behind a queue seconds.
inline constexpr double kCopyLatencyBounds[] = {10e-6, 25e-6,  50e-6, 100e-6, 250e-6, 500e-6,
                                                1e-3,  2.5e-3, 5e-3,  10e-3,  25e-3,  50e-3,
                                                0.1,   0.25,   0.5,   1,      2.5,    5};

// Counts since the start, but for the depth. An order counts as done when its completion has
// returned.
struct TransferStats {
  struct Direction {
    uint64_t copies = 0;  // That succeeded.
    uint64_t bytes = 0;   // Of those.
    absl::Duration busy;  // Summed over the threads, failed copies too.
    // Of the copies that succeeded: from the order to the last byte, with the wait for a thread and
    // for the copies before it.
    DurationHistogram latency{kCopyLatencyBounds};
  };
  // By the tier of the source, then of the target.
  std::array<std::array<Direction, kMaxTiers>, kMaxTiers> directions;
  uint64_t failed = 0;     // Cancelled ones are not among them.
  uint64_t cancelled = 0;  // By Stop.
  size_t running = 0;      // Now.
  size_t queued = 0;       // Now: given, and not started.

  const Direction& direction(Tier source, Tier target) const {
    return directions[static_cast<size_t>(source)][static_cast<size_t>(target)];
  }
};

// Thread-safe.
//
// 1. An order's copy starts when those of both tickets of its `after` are over, and is reported
// when their completions have returned; a ticket that is not among the orders given and not done
// has ended long ago. So copies that touch one slot run one after another and are reported in that
// order; others run and end in any order.
// 2. Every order is reported exactly once, by its ticket and a status. Any other than OK says that
// the target's bytes are not those of the source. A copy that cannot be made (a slot that does not
// exist, a window or a tier without pools) is reported with the reason; it never stops the process.
// 3. The completion runs without any lock of Transfers. It may call Submit and stats(), and neither
// Drain nor Stop. The order touches its slots no more when it begins (one behind it may), and what
// the copy has written is visible to it and to whatever it tells.
//
// The queue has no bound of its own, since an order that the core has made cannot be refused: it
// takes some 200 bytes an order, and stats() tells its depth to whoever holds back new work.
class Transfers {
 public:
  using Completion = std::function<void(Ticket ticket, absl::Status status)>;

  virtual ~Transfers() = default;

  // Takes orders. Does not wait for a copy. REQUIRES: tickets ascend from call to call, so callers
  // on several threads agree on the order among themselves; Stop has not been called, but a
  // completion that it waits for may still submit.
  virtual void Submit(absl::Span<const CopyOrder> orders) = 0;
  // Waits until every order is done.
  virtual void WaitUntilIdle() = 0;
  // Lets the copies that run end as they will, and reports each order that waits as CANCELLED, with
  // its bytes uncopied, in the order of rule 1. When it has returned no completion runs or will. A
  // second call does nothing; the destructor calls it. REQUIRES: one caller at a time.
  virtual void Stop() = 0;
  virtual TransferStats stats() const = 0;
};

// Copies between host pools, on its own threads, which run the completions. A copy starts when the
// completions of its `after` have returned. For pools on a device: cuda/transfers.h.
class HostTransfers final : public Transfers {
 public:
  struct Options {
    uint32_t num_threads = 2;  // At least 1.
    // For tests that make copies late or fail: called before each copy, on its thread and without a
    // lock. Where it returns an error the order fails with it and nothing is copied.
    std::function<absl::Status(const CopyOrder&)> before_copy;
  };

  // `pools` outlives this. Starts the threads. REQUIRES: no pool lies on a device.
  HostTransfers(PoolSet* pools, Options options, Completion completion);
  ~HostTransfers() override;

  void Submit(absl::Span<const CopyOrder> orders) override ABSL_LOCKS_EXCLUDED(mutex_);
  void WaitUntilIdle() override ABSL_LOCKS_EXCLUDED(mutex_);
  void Stop() override ABSL_LOCKS_EXCLUDED(mutex_);
  TransferStats stats() const override ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Pending {
    CopyOrder order;
    std::chrono::steady_clock::time_point given;
    uint32_t waits_for = 0;                    // Of order.after, how many are pending.
    absl::InlinedVector<Ticket, 2> followers;  // The orders that wait for this one.
  };

  void Enqueue(const CopyOrder& order, std::chrono::steady_clock::time_point now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RunThread() ABSL_LOCKS_EXCLUDED(mutex_);
  // Carries out and reports the first of ready_, and lets its followers go. Gives up the lock in
  // between.
  void RunNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool HasWorkOrEnds() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !ready_.empty() || (stopping_ && pending_.empty());
  }
  bool Idle() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return pending_.empty(); }

  PoolSet* const pools_;
  const Options options_;
  const Completion completion_;

  mutable absl::Mutex mutex_;  // A leaf: nothing is called under it.
  absl::flat_hash_map<Ticket, Pending> pending_ ABSL_GUARDED_BY(mutex_);  // Given and not done.
  std::deque<Ticket> ready_ ABSL_GUARDED_BY(mutex_);  // Of pending_: may start, and have not.
  Ticket last_ ABSL_GUARDED_BY(mutex_);               // Given last.
  TransferStats stats_ ABSL_GUARDED_BY(mutex_);       // `queued` is not kept here.
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;  // Of the constructor and Stop alone.
};

// Carries out each order inside Submit, on its caller's thread, which also runs the completion: for
// simulations and replays. A caller must not hold a lock that the completion takes. Orders given
// while Submit runs, by a completion or by another thread, follow on the thread that is at it. Stop
// only waits for them.
class InstantTransfers final : public Transfers {
 public:
  // `pools` outlives this; null: there is no memory, and every order succeeds.
  InstantTransfers(PoolSet* pools, Completion completion)
      : pools_(pools), completion_(std::move(completion)) {}
  ~InstantTransfers() override { Stop(); }

  void Submit(absl::Span<const CopyOrder> orders) override ABSL_LOCKS_EXCLUDED(mutex_);
  void WaitUntilIdle() override ABSL_LOCKS_EXCLUDED(mutex_);
  void Stop() override ABSL_LOCKS_EXCLUDED(mutex_);
  TransferStats stats() const override ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  bool Idle() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !running_; }

  PoolSet* const pools_;
  const Completion completion_;

  mutable absl::Mutex mutex_;  // A leaf: nothing is called under it.
  std::deque<CopyOrder> queue_ ABSL_GUARDED_BY(mutex_);
  Ticket last_ ABSL_GUARDED_BY(mutex_);
  TransferStats stats_ ABSL_GUARDED_BY(mutex_);
  bool running_ ABSL_GUARDED_BY(mutex_) = false;  // A thread is carrying out queue_.
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace pagoda

#endif  // PAGODA_POOLS_TRANSFERS_H_
