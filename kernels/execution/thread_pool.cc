#include "kernels/execution/thread_pool.h"

#include <immintrin.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "base/thread.h"

namespace pagoda::kernels::cpu {
namespace {

constexpr size_t kScratchAlignment = 64;

// How long a thread spins before it sleeps: about the time between two layers' kernels. Waking a
// sleeping thread costs about ten microseconds.
constexpr std::chrono::microseconds kSpin(30);
constexpr int kPausesPerLook = 16;

// Returns whether `done` became true within kSpin.
template <class Condition>
bool SpinUntil(const Condition& done) {
  const auto end = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < kPausesPerLook; ++i) {
      if (done()) return true;
      _mm_pause();
    }
  } while (std::chrono::steady_clock::now() < end);
  return done();
}

// noexcept: an exception could go nowhere, because the other threads still use the caller's stack.
void Call(absl::FunctionRef<void(uint32_t)> work, uint32_t worker) noexcept { work(worker); }

struct AlignedDelete {
  void operator()(std::byte* data) const {
    ::operator delete (data, std::align_val_t{kScratchAlignment});
  }
};

// Aligned, so that no two threads write to one cache line.
struct alignas(kScratchAlignment) WorkerScratch {
  std::unique_ptr<std::byte, AlignedDelete> data;
  size_t bytes = 0;
};

thread_local ThreadPool::CallerTimes times_of_this_thread;

}  // namespace

struct ThreadPool::State {
  explicit State(uint32_t num_threads) : scratch(num_threads) {}

  // The loop of the pool's thread w.
  void Loop(uint32_t w) {
    uint64_t seen = 0;
    while (true) {
      const auto begun = [&] { return round.load(std::memory_order_acquire) != seen; };
      if (!SpinUntil(begun)) {
        std::unique_lock lock(mutex);
        wake.wait(lock, begun);
      }
      seen = round.load(std::memory_order_acquire);
      if (stop) return;
      Call(*work, w);
      if (running.fetch_sub(1, std::memory_order_acq_rel) == 1) {
        const std::lock_guard lock(mutex);
        done.notify_one();
      }
    }
  }

  // REQUIRES: `callers` is held.
  void Run(absl::FunctionRef<void(uint32_t)> round_work);
  // Waits for the other threads.
  void AwaitOthers();

  std::mutex callers;  // Held for a whole Run. Before `mutex`.
  std::mutex mutex;    // Guards sleeping and waking, nothing else.
  std::condition_variable wake;
  std::condition_variable done;

  // Written before `round` grows, read after it.
  const absl::FunctionRef<void(uint32_t)>* work = nullptr;
  bool stop = false;
  std::atomic<uint64_t> round = 0;
  std::atomic<uint32_t> running = 0;  // Threads of the pool that still work.

  std::vector<WorkerScratch> scratch;
  std::vector<Thread> threads;
  absl::Status started;
};

ThreadPool::ThreadPool(uint32_t num_threads) : state_(std::make_unique<State>(num_threads)) {
  for (uint32_t w = 1; w < num_threads && state_->started.ok(); ++w) {
    Thread thread;
    state_->started = thread.Start("pagoda-kernels", [s = state_.get(), w] { s->Loop(w); });
    if (state_->started.ok()) state_->threads.push_back(std::move(thread));
  }
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stop = true;
    state_->round.fetch_add(1, std::memory_order_release);
  }
  state_->wake.notify_all();
  for (Thread& thread : state_->threads) thread.Join();
}

absl::Status ThreadPool::started() const { return state_->started; }

uint32_t ThreadPool::num_threads() const { return static_cast<uint32_t>(state_->scratch.size()); }

void ThreadPool::State::Run(absl::FunctionRef<void(uint32_t)> round_work) {
  const auto others = static_cast<uint32_t>(threads.size());
  if (others == 0) return Call(round_work, 0);
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begun = Clock::now();
  work = &round_work;
  running.store(others, std::memory_order_relaxed);
  {
    const std::lock_guard lock(mutex);
    round.fetch_add(1, std::memory_order_release);
  }
  wake.notify_all();
  Call(round_work, 0);
  const Clock::time_point own_end = Clock::now();
  AwaitOthers();
  const Clock::time_point end = Clock::now();
  CallerTimes& times = times_of_this_thread;
  ++times.runs;
  times.in_runs += end - begun;
  times.waiting += end - own_end;
}

void ThreadPool::State::AwaitOthers() {
  const auto finished = [&] { return running.load(std::memory_order_acquire) == 0; };
  if (SpinUntil(finished)) return;
  std::unique_lock lock(mutex);
  done.wait(lock, finished);
}

ThreadPool::CallerTimes ThreadPool::OfThisThread() { return times_of_this_thread; }

void ThreadPool::Run(absl::FunctionRef<void(uint32_t)> work) {
  const std::lock_guard one_caller(state_->callers);
  state_->Run(work);
}

void ThreadPool::RunWithScratch(size_t scratch_bytes,
                                absl::FunctionRef<void(uint32_t, absl::Span<std::byte>)> work) {
  const std::lock_guard one_caller(state_->callers);
  for (uint32_t w = 0; w < num_threads(); ++w) Scratch(w, scratch_bytes);
  state_->Run([&](uint32_t w) { work(w, Scratch(w, scratch_bytes)); });
}

absl::Span<std::byte> ThreadPool::Scratch(uint32_t worker, size_t bytes) {
  WorkerScratch& scratch = state_->scratch[worker];
  if (scratch.bytes < bytes) {
    scratch.data.reset();
    scratch.bytes = 0;  // Until the new memory is allocated.
    scratch.data.reset(
        static_cast<std::byte*>(::operator new (bytes, std::align_val_t{kScratchAlignment})));
    scratch.bytes = bytes;
  }
  return {scratch.data.get(), bytes};
}

}  // namespace pagoda::kernels::cpu
