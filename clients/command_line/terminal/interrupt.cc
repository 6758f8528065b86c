#include "clients/command_line/terminal/interrupt.h"

#include <pthread.h>
#include <unistd.h>

#include <utility>

namespace pagoda {
namespace {

// The code with which a shell reports a process that SIGINT ended.
constexpr int kExitInterruptedTwice = 130;

}  // namespace

InterruptScope::InterruptScope(std::function<void()> on_interrupt)
    : on_interrupt_(std::move(on_interrupt)) {
  sigemptyset(&signals_);
  sigaddset(&signals_, SIGINT);
  sigaddset(&signals_, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals_, &previous_mask_);
  if (!watcher_.Start("pagoda-signals", [this] { Watch(); }).ok()) {
    pthread_sigmask(SIG_SETMASK, &previous_mask_, nullptr);
  }
}

InterruptScope::~InterruptScope() {
  if (!watcher_.joinable()) return;
  leaving_ = true;
  pthread_kill(watcher_.handle(), SIGTERM);
  watcher_.Join();
  pthread_sigmask(SIG_SETMASK, &previous_mask_, nullptr);
}

void InterruptScope::Watch() {
  int signal = 0;
  while (sigwait(&signals_, &signal) == 0 && !leaving_) {
    if (interrupted_.exchange(true)) _exit(kExitInterruptedTwice);
    on_interrupt_();
  }
}

}  // namespace pagoda
