// Threads that wait for the next kernel.
#ifndef PAGODA_KERNELS_CPU_THREAD_POOL_H_
#define PAGODA_KERNELS_CPU_THREAD_POOL_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"

namespace pagoda::kernels::cpu {

// A caller and num_threads - 1 threads of the pool's, which spin for some microseconds after a
// kernel, because the next layer's comes soon, and then sleep. One kernel runs at a time; a second
// caller waits.
class ThreadPool {
 public:
  // REQUIRES: num_threads > 0. With 1 everything runs on the caller's thread.
  explicit ThreadPool(uint32_t num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  uint32_t num_threads() const;

  // Calls work(w) for w = 0 to num_threads() - 1, each on a thread of its own, 0 on the caller's;
  // returns when all have returned. What the work of one call wrote, the next one's sees. Work must
  // not throw: an exception that leaves it ends the program, on whichever thread.
  void Run(absl::FunctionRef<void(uint32_t worker)> work);

  // Likewise, with `scratch_bytes` for each worker, as Scratch gives them. All are there before any
  // worker starts: where memory lacks, std::bad_alloc reaches the caller, and nothing has run.
  void RunWithScratch(size_t scratch_bytes,
                      absl::FunctionRef<void(uint32_t worker, absl::Span<std::byte>)> work);

  // Memory that a kernel may use until it ends, kept for the next one; aligned to 64 bytes, with
  // anything in it. Of the caller, between Run's, or of worker w alone within one.
  absl::Span<std::byte> Scratch(uint32_t worker, size_t bytes);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pagoda::kernels::cpu

#endif  // PAGODA_KERNELS_CPU_THREAD_POOL_H_
