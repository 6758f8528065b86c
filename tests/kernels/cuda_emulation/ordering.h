// What happens before what in a block that runs: which accesses of the others a thread knows to be
// over, by barriers of warps, of some or all threads, and by those in shared memory.
#ifndef PAGODA_TESTS_KERNELS_CUDA_EMULATION_ORDERING_H_
#define PAGODA_TESTS_KERNELS_CUDA_EMULATION_ORDERING_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace pagoda::kernels::cuda::emulation {

inline constexpr uint32_t kWarpLanes = 32;
inline constexpr uint32_t kMostWarps = 32;
inline constexpr uint32_t kMostBarriers = 32;

// A vector clock. A warp's time is its epoch, which each barrier of all its lanes ends; what its
// lanes did in epochs before the clock's is over. Barrier b's, at kMostWarps + b, is the number of
// its phases that have ended.
struct Clock {
  std::array<uint32_t, kMostWarps + kMostBarriers> times = {};

  void Join(const Clock& other) {
    for (size_t i = 0; i < times.size(); ++i) {
      times[i] = times[i] > other.times[i] ? times[i] : other.times[i];
    }
  }
};

// What is over for a thread: at all, and for the asynchronous proxy.
struct Knowledge {
  Clock over;
  Clock fenced;
  void Join(const Knowledge& other) {
    over.Join(other.over);
    fenced.Join(other.fenced);
  }
};

class Ordering {
 public:
  explicit Ordering(uint32_t threads);

  uint32_t epoch(uint32_t warp) const { return epochs_[warp]; }
  const Knowledge& of(uint32_t thread) const { return knowledge_[thread]; }
  // What all lanes of a warp know.
  Knowledge OfWarp(uint32_t warp) const;

  // The warps' lanes, all of them, have met.
  void Meet(const std::vector<uint32_t>& warps);

  void Wrote(uint32_t thread) { unfenced_[thread] = true; }
  // fence.proxy.async: of the thread's stores, and of those that it knows.
  void Fence(uint32_t thread);
  void Learn(uint32_t thread, const Knowledge& other) { knowledge_[thread].Join(other); }
  void LearnPhases(uint32_t thread, uint32_t barrier, uint32_t ended);

 private:
  std::vector<Knowledge> knowledge_;  // Of each thread.
  std::vector<bool> unfenced_;        // Has stored since its last fence.
  std::vector<uint32_t> epochs_;      // Of each warp.
};

}  // namespace pagoda::kernels::cuda::emulation

#endif  // PAGODA_TESTS_KERNELS_CUDA_EMULATION_ORDERING_H_
