#ifndef PAGODA_ENGINE_TURN_QUEUE_H_
#define PAGODA_ENGINE_TURN_QUEUE_H_

#include <cstdint>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace pagoda {

// Lets threads through one at a time, in the order in which they came: each draws a ticket and
// waits until it is called. Thread-safe. Outlives its turns.
class TurnQueue {
 public:
  // A thread's turn, until it is destroyed. Movable.
  class Turn {
   public:
    Turn(Turn&& other) noexcept : queue_(std::exchange(other.queue_, nullptr)) {}
    Turn& operator=(Turn&&) = delete;
    ~Turn() {
      if (queue_ != nullptr) queue_->CallNext();
    }

   private:
    friend class TurnQueue;
    explicit Turn(TurnQueue* queue) : queue_(queue) {}
    TurnQueue* queue_;
  };

  struct Lengths {
    uint64_t running;  // 0 or 1.
    uint64_t waiting;
  };

  // Blocks until it is the caller's turn.
  Turn Wait();
  Lengths lengths() const;

 private:
  void CallNext();

  mutable absl::Mutex mutex_;
  uint64_t next_ticket_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t called_ticket_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_TURN_QUEUE_H_
