// A block's shared memory. It knows which threads touched each word, and whether the thread that
// touches it now knows of these accesses.
#ifndef PAGODA_TESTS_KERNELS_CUDA_EMULATION_SHARED_MEMORY_H_
#define PAGODA_TESTS_KERNELS_CUDA_EMULATION_SHARED_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/kernels/cuda_emulation/ordering.h"

namespace pagoda::kernels::cuda::emulation {

class SharedMemory {
 public:
  using Reporter = std::function<void(const std::string&)>;

  SharedMemory(uint32_t bytes, uint32_t warps, Ordering& ordering, Reporter report);

  void Read(uint32_t thread, uint32_t address, void* to, uint32_t bytes);
  void Write(uint32_t thread, uint32_t address, const void* from, uint32_t bytes);

  // An asynchronous copy of 16 bytes to the address. Between its start and its end no thread may
  // touch the bytes. Returns false if the address does not exist.
  bool BeginCopy(uint32_t thread, uint32_t address);
  void EndCopy(uint32_t thread, uint32_t address, const std::byte* bytes);

  // Makes the address the place of a barrier, which is no memory from then on. Returns false if the
  // address cannot hold one.
  bool MakeBarrier(uint32_t thread, uint32_t address);

  // A copy by the asynchronous proxy in pieces of 16 bytes. A barrier's phase shows its end.
  bool BeginBox(uint32_t thread, uint32_t address);
  void EndBox(uint32_t address, const std::byte* bytes, uint32_t barrier, uint32_t phase);

  // A warp's product reads 16 bytes from its start to its end. `knowledge` is the warp's. Returns
  // false if the address does not exist.
  bool BeginProduct(const Knowledge& knowledge, uint32_t address);
  void EndProduct(uint32_t warp, uint32_t address, std::byte* to);

 private:
  static constexpr uint16_t kNobody = 0xffff;
  static constexpr uint16_t kBox = 0xfffe;
  static constexpr uint32_t kSeveralLanes = 32;

  // The last accesses to 4 bytes.
  struct Word {
    uint16_t writer = kNobody;   // A thread; kBox: the asynchronous proxy.
    uint16_t copier = kNobody;   // The thread whose copy is in flight, or kBox: the proxy.
    uint16_t products = 0;       // The number of products that will read it.
    uint16_t barrier = kNobody;  // The barrier of a box that has arrived.
    uint32_t write_epoch = 0;    // The epoch of the writer's warp; for a box the barrier's phase.
    bool is_barrier = false;
  };

  bool Check(const char* what, uint32_t address, uint32_t bytes);
  void CheckRead(const char* what, uint32_t thread, const Knowledge& knowledge, uint32_t address,
                 const Word& word);
  void CheckWrite(const char* what, uint32_t thread, uint32_t address, size_t index);
  void MarkWritten(uint32_t thread, Word& word);
  void MarkRead(uint32_t warp, uint32_t lane, size_t index);
  void Report(const char* what, uint32_t address, const std::string& text);

  const uint32_t warps_;
  std::vector<std::byte> bytes_;
  std::vector<Word> words_;
  // By word and warp, the last read: epoch * 64 + the lane, or kSeveralLanes. 0: none.
  std::vector<uint32_t> reads_;
  Ordering& ordering_;
  Reporter report_;
};

}  // namespace pagoda::kernels::cuda::emulation

#endif  // PAGODA_TESTS_KERNELS_CUDA_EMULATION_SHARED_MEMORY_H_
