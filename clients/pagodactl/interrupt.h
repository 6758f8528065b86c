#ifndef PAGODA_CLIENTS_PAGODACTL_INTERRUPT_H_
#define PAGODA_CLIENTS_PAGODACTL_INTERRUPT_H_

#include <csignal>

#include <atomic>
#include <functional>
#include <thread>

namespace pagoda {

// While it lives, the first SIGINT or SIGTERM calls `on_interrupt` on a thread of its own instead
// of ending the process; the second one ends it at once. Make it before other threads (gRPC's,
// above all): they inherit the signal mask. One at a time.
class InterruptScope {
 public:
  explicit InterruptScope(std::function<void()> on_interrupt);
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

  bool interrupted() const { return interrupted_; }

 private:
  void Watch();

  const std::function<void()> on_interrupt_;
  sigset_t signals_;
  sigset_t previous_mask_;
  std::atomic<bool> interrupted_ = false;
  std::atomic<bool> leaving_ = false;
  std::thread watcher_;
};

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODACTL_INTERRUPT_H_
