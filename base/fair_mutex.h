// A mutex whose holder can let waiting threads in.
#ifndef PAGODA_BASE_FAIR_MUTEX_H_
#define PAGODA_BASE_FAIR_MUTEX_H_

#include <atomic>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/processor_turn.h"

namespace pagoda {

// Threads that find the mutex taken queue at a gate, and only the first of them waits for the mutex
// itself. So a holder that gives the mutex up and queues again comes after all threads that waited.
// Plain unlocking and locking would not guarantee that. A newcomer that finds the mutex free takes
// it at once.
class ABSL_LOCKABLE FairMutex {
 public:
  FairMutex() = default;
  FairMutex(const FairMutex&) = delete;
  FairMutex& operator=(const FairMutex&) = delete;

  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() {
    if (!mutex_.TryLock()) Queue();
  }
  void Unlock() ABSL_UNLOCK_FUNCTION() { mutex_.Unlock(); }
  // Whether any thread waits. A hint, as cheap as reading a variable.
  bool wanted() const { return waiting_.load(std::memory_order_relaxed) != 0; }
  // Gives the mutex up and queues for it again. When this returns, every thread that was at the
  // gate has had the mutex. A thread that takes turns on its processor ends one that is over,
  // and begins another one after the wait.
  void LetOthersIn() ABSL_EXCLUSIVE_LOCKS_REQUIRED(this) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    mutex_.Unlock();
    EndProcessorTurnIfOver();
    Queue();
    RestartProcessorTurn();
  }

 private:
  void Queue() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    waiting_.fetch_add(1, std::memory_order_relaxed);
    gate_.Lock();
    mutex_.Lock();
    gate_.Unlock();
    waiting_.fetch_sub(1, std::memory_order_relaxed);
  }

  absl::Mutex mutex_;
  absl::Mutex gate_;  // Held by the first thread that waits.
  std::atomic<int> waiting_ = 0;
};

class ABSL_SCOPED_LOCKABLE FairMutexLock {
 public:
  explicit FairMutexLock(FairMutex* mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) : mutex_(mutex) {
    mutex_->Lock();
  }
  ~FairMutexLock() ABSL_UNLOCK_FUNCTION() { mutex_->Unlock(); }
  FairMutexLock(const FairMutexLock&) = delete;
  FairMutexLock& operator=(const FairMutexLock&) = delete;

 private:
  FairMutex* const mutex_;
};

}  // namespace pagoda

#endif  // PAGODA_BASE_FAIR_MUTEX_H_
