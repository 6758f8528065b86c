#include "engine/turn_queue.h"

namespace pagoda {

TurnQueue::Turn TurnQueue::Wait() {
  absl::MutexLock lock(&mutex_);
  const uint64_t ticket = next_ticket_++;
  const auto called = [this, ticket]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return called_ticket_ == ticket;
  };
  mutex_.Await(absl::Condition(&called));
  return Turn(this);
}

void TurnQueue::CallNext() {
  absl::MutexLock lock(&mutex_);
  ++called_ticket_;
}

TurnQueue::Lengths TurnQueue::lengths() const {
  absl::MutexLock lock(&mutex_);
  const uint64_t inside = next_ticket_ - called_ticket_;
  if (inside == 0) return {.running = 0, .waiting = 0};
  return {.running = 1, .waiting = inside - 1};
}

}  // namespace pagoda
