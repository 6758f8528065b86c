// Fibers: threads that switch to each other explicitly, on one thread of the system.
#ifndef PAGODA_TESTS_KERNELS_CUDA_EMULATION_FIBER_H_
#define PAGODA_TESTS_KERNELS_CUDA_EMULATION_FIBER_H_

#include <csetjmp>
#include <cstddef>
#include <functional>
#include <vector>

namespace pagoda::kernels::cuda::emulation {

// Stacks that ended fibers leave for later ones.
class FiberStacks {
 public:
  static constexpr size_t kBytes = 256 * 1024;
  FiberStacks() = default;
  ~FiberStacks();
  FiberStacks(const FiberStacks&) = delete;
  FiberStacks& operator=(const FiberStacks&) = delete;
  std::byte* Take();
  void GiveBack(std::byte* stack) { free_.push_back(stack); }

 private:
  std::vector<std::byte*> free_;
};

class Fiber {
 public:
  // The work begins with the first Resume. A fiber that is destroyed before its work has ended only
  // loses its stack.
  Fiber(FiberStacks& stacks, std::function<void()> work);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Runs the work until it suspends or ends. Returns false if it has ended.
  bool Resume();
  // Called by the work: returns to the caller of Resume.
  void Suspend();

 private:
  static void Enter(unsigned low, unsigned high);
  void Start();

  FiberStacks& stacks_;
  std::function<void()> work_;
  std::byte* stack_;
  bool started_ = false;
  bool ended_ = false;
  std::jmp_buf here_;                  // The position of the work.
  std::jmp_buf caller_;                // The position of Resume.
  void* caller_fake_stack_ = nullptr;  // For AddressSanitizer.
  void* work_fake_stack_ = nullptr;
  const void* caller_stack_ = nullptr;
  size_t caller_stack_bytes_ = 0;
};

}  // namespace pagoda::kernels::cuda::emulation

#endif  // PAGODA_TESTS_KERNELS_CUDA_EMULATION_FIBER_H_
