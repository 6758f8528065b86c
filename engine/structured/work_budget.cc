#include "engine/structured/work_budget.h"

#include <malloc.h>

#include <cstdlib>
#include <ctime>
#include <exception>

#include "base/check.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define PAGODA_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || \
    __has_feature(memory_sanitizer)
#define PAGODA_SANITIZED 1
#endif
#endif

namespace pagoda {
namespace {

thread_local WorkBudget* budget_of_this_thread = nullptr;

// Asking for the processor time takes a fraction of a microsecond.
constexpr uint32_t kAdmissionsPerLook = 64;

int64_t ProcessorNanoseconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace

WorkBudget::WorkBudget(const Limits& limits)
    : limits_(limits),
      end_nanoseconds_(ProcessorNanoseconds() + absl::ToInt64Nanoseconds(limits.processor_time)) {
  PAGODA_CHECK(budget_of_this_thread == nullptr, "a thread has one budget at a time");
  budget_of_this_thread = this;
}

WorkBudget::~WorkBudget() { budget_of_this_thread = nullptr; }

WorkBudget* WorkBudget::OfThisThread() { return budget_of_this_thread; }

void WorkBudget::Admit(size_t bytes) {
  if (!exceeded_) {
    const bool looks = ++admissions_ % kAdmissionsPerLook == 0;
    bytes_exceeded_ = bytes_ + static_cast<int64_t>(bytes) > limits_.bytes;
    exceeded_ = bytes_exceeded_ || (looks && ProcessorNanoseconds() > end_nanoseconds_);
  }
  // All further ones fail too, if somebody catches this exception.
  if (exceeded_ && std::uncaught_exceptions() == 0) throw BudgetExceeded();
}

#ifdef PAGODA_SANITIZED
const bool WorkBudget::kIsEnforced = false;
#else
const bool WorkBudget::kIsEnforced = true;
#endif

}  // namespace pagoda

#ifndef PAGODA_SANITIZED
// The other forms of new and delete, but those for more than the usual alignment, call these two.
void* operator new(size_t bytes) {
  pagoda::WorkBudget* const budget = pagoda::WorkBudget::OfThisThread();
  if (budget != nullptr) budget->Admit(bytes);
  while (true) {
    void* const memory = std::malloc(bytes == 0 ? 1 : bytes);
    if (memory != nullptr) {
      if (budget != nullptr) budget->Count(static_cast<int64_t>(malloc_usable_size(memory)));
      return memory;
    }
    const std::new_handler handler = std::get_new_handler();
    if (handler == nullptr) throw std::bad_alloc();
    handler();
  }
}

void operator delete(void* memory) noexcept {
  if (memory == nullptr) return;
  pagoda::WorkBudget* const budget = pagoda::WorkBudget::OfThisThread();
  if (budget != nullptr) budget->Count(-static_cast<int64_t>(malloc_usable_size(memory)));
  std::free(memory);
}

void operator delete(void* memory, size_t /*bytes*/) noexcept { ::operator delete(memory); }
#endif
