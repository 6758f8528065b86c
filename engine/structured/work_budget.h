// Bounds the time and the memory of code that knows no bounds itself.
#ifndef PAGODA_ENGINE_STRUCTURED_WORK_BUDGET_H_
#define PAGODA_ENGINE_STRUCTURED_WORK_BUDGET_H_

#include <cstddef>
#include <cstdint>
#include <new>

#include "absl/time/time.h"

namespace pagoda {

// Thrown by operator new on a thread whose budget is used up.
class BudgetExceeded : public std::bad_alloc {
 public:
  const char* what() const noexcept override { return "the work takes too much time or memory"; }
};

// While one lives, allocations of its thread count, and throw BudgetExceeded beyond a limit. Code
// that loops without allocating is not stopped. A build with sanitizers keeps their allocator, and
// has no budgets (kIsEnforced). Thread-compatible; at most one at a time on a thread.
class WorkBudget {
 public:
  struct Limits {
    absl::Duration processor_time;  // The processor time of this thread.
    int64_t bytes = 0;              // Allocated and not freed, beyond those of the beginning.
  };
  static const bool kIsEnforced;

  explicit WorkBudget(const Limits& limits);
  ~WorkBudget();
  WorkBudget(const WorkBudget&) = delete;
  WorkBudget& operator=(const WorkBudget&) = delete;

  // Whether a limit was reached. Code can catch the exception, and go on with wrong data.
  bool exceeded() const { return exceeded_; }
  // Whether that was the limit of bytes.
  bool bytes_exceeded() const { return bytes_exceeded_; }
  // Allocated and not freed since the beginning; can be negative.
  int64_t bytes() const { return bytes_; }

  // For operator new and delete. Admit throws if an allocation is too much; Count counts it.
  static WorkBudget* OfThisThread();
  // Nothing is thrown while another exception passes: the process would end.
  void Admit(size_t bytes);
  void Count(int64_t bytes) { bytes_ += bytes; }

 private:
  const Limits limits_;
  const int64_t end_nanoseconds_;  // The thread's processor time at which the budget ends.
  int64_t bytes_ = 0;
  uint32_t admissions_ = 0;
  bool exceeded_ = false;
  bool bytes_exceeded_ = false;
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_STRUCTURED_WORK_BUDGET_H_
