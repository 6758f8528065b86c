// Threads. Every thread of the product's own starts here: tests/tools/style.py checks it.
//
// Libraries start others, in numbers that do not depend on callers: gRPC (its callback, poller and
// timer threads) and ZMQ (its I/O threads, when the bridge starts). oneDNN and XGrammar run on the
// caller's thread.
#ifndef PAGODA_BASE_THREAD_H_
#define PAGODA_BASE_THREAD_H_

#include <pthread.h>

#include <cstddef>
#include <functional>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace pagoda {

// A thread, or none. A limit of the system can refuse a thread at any time, so Start returns a
// Status and nothing throws. A class that starts threads in its constructor keeps that Status, and
// its owner asks for it (`started()`) before the object is used. Thread-compatible.
class Thread {
 public:
  Thread() = default;
  Thread(Thread&& other) noexcept : handle_(std::exchange(other.handle_, std::nullopt)) {}
  Thread& operator=(Thread&& other) noexcept {
    Join();
    handle_ = std::exchange(other.handle_, std::nullopt);
    return *this;
  }
  // Joins.
  ~Thread() { Join(); }

  // Calls `body` on a new thread. `name`: as the system shows the thread, at most 15 bytes.
  // `stack_bytes`: 0 means the default. Errors: THREADS_EXHAUSTED; the message has the number of
  // threads and the limits. REQUIRES: there is no thread yet.
  [[nodiscard]] absl::Status Start(std::string_view name, std::function<void()> body,
                                   size_t stack_bytes = 0);
  bool joinable() const { return handle_.has_value(); }
  // Waits until the thread has ended. Does nothing if there is none.
  void Join();
  // Lets the thread run on by itself. What it uses must outlive it.
  void Detach();
  // REQUIRES: joinable().
  pthread_t handle() const { return *handle_; }

 private:
  std::optional<pthread_t> handle_;
};

// Adds `count` threads that call the same body. If one of them cannot start, the threads before it
// are in `threads`, and the caller ends them. Errors: those of Thread::Start.
[[nodiscard]] absl::Status StartThreads(std::string_view name, size_t count,
                                        const std::function<void()>& body,
                                        std::vector<Thread>* threads);

}  // namespace pagoda

#endif  // PAGODA_BASE_THREAD_H_
