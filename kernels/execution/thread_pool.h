// Threads that wait for the next kernel.
#ifndef PAGODA_KERNELS_EXECUTION_THREAD_POOL_H_
#define PAGODA_KERNELS_EXECUTION_THREAD_POOL_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"

namespace pagoda::kernels::cpu {

// A caller and num_threads - 1 threads of the pool. After a kernel the threads spin for some
// microseconds, because the next layer's kernel comes soon, and then sleep. One kernel runs at a
// time; a second caller waits.
class ThreadPool {
 public:
  // REQUIRES: num_threads > 0. With 1, everything runs on the caller's thread.
  explicit ThreadPool(uint32_t num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // OK, or why a thread is missing (Thread::Start). The pool may then not be used.
  absl::Status started() const;
  uint32_t num_threads() const;

  // Calls work(w) for w = 0 to num_threads() - 1, each on a separate thread, work(0) on the
  // caller's thread. Returns when all calls have returned. The work of one call is visible to the
  // next one's. Work must not throw: an exception ends the program, on any thread.
  void Run(absl::FunctionRef<void(uint32_t worker)> work);

  // Does what Run does, with `scratch_bytes` for each worker, as Scratch provides them. All scratch
  // memory is allocated before a worker starts: if memory is missing, the caller gets
  // std::bad_alloc and nothing has run.
  void RunWithScratch(size_t scratch_bytes,
                      absl::FunctionRef<void(uint32_t worker, absl::Span<std::byte>)> work);

  // Memory that a kernel can use until it ends; it is kept for the next kernel. Aligned to 64
  // bytes; the content is unspecified. Used by the caller between calls of Run, or by worker w only
  // within one.
  absl::Span<std::byte> Scratch(uint32_t worker, size_t bytes);

  // What the calling thread has spent in Run so far, over all pools of more than one thread.
  struct CallerTimes {
    uint64_t runs = 0;
    std::chrono::nanoseconds in_runs{0};
    // The part of in_runs after the caller's own part, until the last other thread's part was done.
    std::chrono::nanoseconds waiting{0};
  };
  static CallerTimes OfThisThread();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pagoda::kernels::cpu

#endif  // PAGODA_KERNELS_EXECUTION_THREAD_POOL_H_
