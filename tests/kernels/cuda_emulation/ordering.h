// The happens-before relation in a running block: which accesses of other threads a thread knows to
// have ended, by barriers of warps, of some or all threads, and in shared memory.
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

// A vector clock. A warp's time is its epoch; each barrier of all its lanes ends an epoch. The
// lanes' accesses in epochs before the clock's value have ended. The time of barrier b, at index
// kMostWarps + b, is the number of its ended phases.
struct Clock {
  std::array<uint32_t, kMostWarps + kMostBarriers> times = {};

  void Join(const Clock& other) {
    for (size_t i = 0; i < times.size(); ++i) {
      times[i] = times[i] > other.times[i] ? times[i] : other.times[i];
    }
  }
};

// The accesses that a thread knows to have ended: in general, and for the asynchronous proxy.
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
  // The knowledge that all lanes of a warp share.
  Knowledge OfWarp(uint32_t warp) const;

  // All lanes of these warps have met.
  void Meet(const std::vector<uint32_t>& warps);

  void Wrote(uint32_t thread) { unfenced_[thread] = true; }
  // fence.proxy.async: for the thread's stores, and for the stores that it knows.
  void Fence(uint32_t thread);
  void Learn(uint32_t thread, const Knowledge& other) { knowledge_[thread].Join(other); }
  void LearnPhases(uint32_t thread, uint32_t barrier, uint32_t ended);

 private:
  std::vector<Knowledge> knowledge_;  // By thread.
  std::vector<bool> unfenced_;        // Whether the thread has stored since its last fence.
  std::vector<uint32_t> epochs_;      // By warp.
};

}  // namespace pagoda::kernels::cuda::emulation

#endif  // PAGODA_TESTS_KERNELS_CUDA_EMULATION_ORDERING_H_
