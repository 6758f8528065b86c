#ifndef PAGODA_CLIENTS_COMMAND_LINE_TERMINAL_INTERRUPT_H_
#define PAGODA_CLIENTS_COMMAND_LINE_TERMINAL_INTERRUPT_H_

#include <csignal>

#include <atomic>
#include <functional>

#include "base/thread.h"

namespace pagoda {

// While the object exists, the first SIGINT or SIGTERM calls `on_interrupt` on a separate thread
// instead of ending the process. The second one ends the process at once, with exit code 130,
// unless Rearm was called in between. Create it before other threads, above all gRPC's: they
// inherit the signal mask. Only one object may exist at a time.
class InterruptScope {
 public:
  explicit InterruptScope(std::function<void()> on_interrupt);
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

  bool interrupted() const { return interrupted_; }
  // The next signal is again a first one.
  void Rearm() { interrupted_ = false; }

 private:
  void Watch();

  const std::function<void()> on_interrupt_;
  sigset_t signals_;
  sigset_t previous_mask_;
  std::atomic<bool> interrupted_ = false;
  std::atomic<bool> leaving_ = false;
  Thread watcher_;  // None if the system refuses a thread: signals then end the process.
};

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_COMMAND_LINE_TERMINAL_INTERRUPT_H_
