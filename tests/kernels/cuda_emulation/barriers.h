// A block's barriers in shared memory, and the boxes whose bytes they count.
#ifndef PAGODA_TESTS_KERNELS_CUDA_EMULATION_BARRIERS_H_
#define PAGODA_TESTS_KERNELS_CUDA_EMULATION_BARRIERS_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>

#include "kernels/cuda/device/tensor_map.h"
#include "tests/kernels/cuda_emulation/ordering.h"
#include "tests/kernels/cuda_emulation/shared_memory.h"

namespace pagoda::kernels::cuda::emulation {

// The content of a TensorMap that EncodeTensorMap makes here.
struct BoxSource {
  TensorShape shape;
};
static_assert(sizeof(BoxSource) <= sizeof(TensorMap));

class Barriers {
 public:
  using Reporter = SharedMemory::Reporter;
  Barriers(SharedMemory& shared, Ordering& ordering, Reporter report)
      : shared_(shared), ordering_(ordering), report_(std::move(report)) {}

  void Init(uint32_t thread, uint32_t address, uint32_t arrivals);
  void FenceInit(uint32_t thread);
  // Adds to the bytes that the phase waits for, and arrives.
  void Arrive(uint32_t thread, uint32_t address, uint32_t bytes);
  // Whether the phase of that parity has ended. True if no barrier is at `address`.
  bool Ended(uint32_t address, uint32_t parity) const;
  // Gives the thread the knowledge that it gains by waiting for the phase.
  void Learn(uint32_t thread, uint32_t address);

  void StartBox(uint32_t thread, uint32_t shared, const TensorMap& map, const uint32_t (&place)[4],
                uint32_t barrier);
  // Ends a box, chosen by `choice`. Returns false if there is none.
  bool EndBox(uint32_t choice);

 private:
  struct Barrier {
    uint32_t index;
    uint32_t arrivals;  // Per phase.
    uint32_t left;      // Missing in this phase.
    int64_t bytes = 0;  // Expected and not yet arrived.
    uint32_t phase = 0;
    bool fenced = false;
    uint32_t maker;
    uint32_t made_epoch;
    Knowledge arriving;  // What the threads know that have arrived in this phase.
    Knowledge ended;     // What the threads of the previous phases know.
  };
  struct Box {
    uint32_t shared;
    TensorShape shape;
    uint32_t place[4];
    uint32_t barrier;
  };

  Barrier* Find(uint32_t thread, uint32_t address);
  void EndPhaseIfComplete(Barrier& barrier);
  void Report(const std::string& text) { report_(text); }

  SharedMemory& shared_;
  Ordering& ordering_;
  Reporter report_;
  std::map<uint32_t, Barrier> barriers_;
  std::deque<Box> boxes_;
};

}  // namespace pagoda::kernels::cuda::emulation

#endif  // PAGODA_TESTS_KERNELS_CUDA_EMULATION_BARRIERS_H_
