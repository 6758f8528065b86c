#include "tests/kernels/cuda_emulation/fiber.h"

#include <sys/mman.h>
#include <ucontext.h>

#include <cstdint>
#include <cstdlib>
#include <utility>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace pagoda::kernels::cuda::emulation {
namespace {

// Tells AddressSanitizer about stack switches; does nothing without it.
void BeforeSwitch([[maybe_unused]] void** fake_stack, [[maybe_unused]] const void* stack,
                  [[maybe_unused]] size_t bytes) {
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_start_switch_fiber(fake_stack, stack, bytes);
#endif
}
void AfterSwitch([[maybe_unused]] void* fake_stack, [[maybe_unused]] const void** stack,
                 [[maybe_unused]] size_t* bytes) {
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_finish_switch_fiber(fake_stack, stack, bytes);
#endif
}

}  // namespace

FiberStacks::~FiberStacks() {
  for (std::byte* stack : free_) munmap(stack, kBytes);
}

std::byte* FiberStacks::Take() {
  if (!free_.empty()) {
    std::byte* stack = free_.back();
    free_.pop_back();
    return stack;
  }
  void* stack = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (stack == MAP_FAILED) std::abort();
  return static_cast<std::byte*>(stack);
}

Fiber::Fiber(FiberStacks& stacks, std::function<void()> work)
    : stacks_(stacks), work_(std::move(work)), stack_(stacks.Take()) {}

Fiber::~Fiber() {
#ifdef __SANITIZE_ADDRESS__
  __asan_unpoison_memory_region(stack_, FiberStacks::kBytes);
#endif
  stacks_.GiveBack(stack_);
}

void Fiber::Enter(unsigned low, unsigned high) {
  const uintptr_t address = uintptr_t{high} << 32 | low;
  reinterpret_cast<Fiber*>(address)->Start();
}

void Fiber::Start() {
  AfterSwitch(nullptr, &caller_stack_, &caller_stack_bytes_);
  work_();
  ended_ = true;
  BeforeSwitch(nullptr, caller_stack_, caller_stack_bytes_);
  _longjmp(caller_, 1);
}

// setjmp and longjmp switch in some nanoseconds. swapcontext, which makes a system call for the
// signal mask, is used only for the first switch to a new stack.
bool Fiber::Resume() {
  if (_setjmp(caller_) == 0) {
    BeforeSwitch(&caller_fake_stack_, stack_, FiberStacks::kBytes);
    if (started_) _longjmp(here_, 1);
    started_ = true;
    ucontext_t context;
    getcontext(&context);
    context.uc_stack.ss_sp = stack_;
    context.uc_stack.ss_size = FiberStacks::kBytes;
    context.uc_link = nullptr;
    const auto address = reinterpret_cast<uintptr_t>(this);
    makecontext(&context, reinterpret_cast<void (*)()>(&Fiber::Enter), 2,
                static_cast<unsigned>(address), static_cast<unsigned>(address >> 32));
    setcontext(&context);
  }
  AfterSwitch(caller_fake_stack_, nullptr, nullptr);
  return !ended_;
}

void Fiber::Suspend() {
  if (_setjmp(here_) == 0) {
    BeforeSwitch(&work_fake_stack_, caller_stack_, caller_stack_bytes_);
    _longjmp(caller_, 1);
  }
  AfterSwitch(work_fake_stack_, nullptr, nullptr);
}

}  // namespace pagoda::kernels::cuda::emulation
