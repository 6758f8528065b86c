#ifndef PAGODA_ENGINE_MODEL_CPU_PRODUCTS_WORK_QUEUE_H_
#define PAGODA_ENGINE_MODEL_CPU_PRODUCTS_WORK_QUEUE_H_

#include <atomic>
#include <cstdint>
#include <memory>

namespace pagoda {

// Assigns units of work to workers. Each worker first gets its own units in order, the same in
// every round, so that it uses memory that it has touched before. Then it gets units that others
// have left, so that no worker waits for one whose processor is busy with something else.
class WorkQueue {
 public:
  static constexpr uint64_t kNone = ~uint64_t{0};

  explicit WorkQueue(uint32_t num_workers)
      : num_workers_(num_workers), ranges_(std::make_unique<Range[]>(num_workers)) {}

  // Starts a round of `count` units. REQUIRES: no worker is in Take.
  void Fill(uint64_t count) {
    count_ = count;
    for (uint32_t w = 0; w < num_workers_; ++w) {
      ranges_[w].next.store(Begin(w), std::memory_order_relaxed);
    }
  }

  // The next unit for this worker, or kNone. `*visited` counts the ranges that it has found empty;
  // the caller sets it to 0 first. Thread-safe.
  uint64_t Take(uint32_t worker, uint32_t* visited) {
    for (; *visited < num_workers_; ++*visited) {
      const uint32_t w = (worker + *visited) % num_workers_;
      const uint64_t unit = ranges_[w].next.fetch_add(1, std::memory_order_relaxed);
      if (unit < Begin(w + 1)) return unit;
    }
    return kNone;
  }

 private:
  struct alignas(64) Range {
    std::atomic<uint64_t> next = 0;
  };

  uint64_t Begin(uint32_t worker) const { return count_ * worker / num_workers_; }

  const uint32_t num_workers_;
  uint64_t count_ = 0;
  std::unique_ptr<Range[]> ranges_;
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_MODEL_CPU_PRODUCTS_WORK_QUEUE_H_
