// A block's shared memory, which knows who touched each word since the last barrier.
#ifndef PAGODA_TESTS_KERNELS_CUDA_EMULATION_SHARED_MEMORY_H_
#define PAGODA_TESTS_KERNELS_CUDA_EMULATION_SHARED_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace pagoda::kernels::cuda::emulation {

class SharedMemory {
 public:
  using Reporter = std::function<void(const std::string&)>;

  SharedMemory(uint32_t bytes, uint32_t warps, Reporter report);

  void Read(uint32_t thread, uint32_t address, void* to, uint32_t bytes);
  void Write(uint32_t thread, uint32_t address, const void* from, uint32_t bytes);

  // An asynchronous copy of 16 bytes to the address: between the two, nobody may touch them. False
  // where there is no such address.
  bool BeginCopy(uint32_t thread, uint32_t address);
  void EndCopy(uint32_t thread, uint32_t address, const std::byte* bytes);

  // All threads of the block, or of a warp, have met.
  void BlockBarrier() { ++block_epoch_; }
  void WarpBarrier(uint32_t warp) { ++warp_epochs_[warp]; }

 private:
  static constexpr uint16_t kNobody = 0xffff;
  static constexpr uint16_t kSeveral = 0xfffe;

  // The last accesses to 4 bytes; epochs are those of the time.
  struct Word {
    uint16_t writer = kNobody;
    uint16_t reader = kNobody;       // kSeveral: of one warp, in its epoch.
    uint16_t reader_warp = kNobody;  // kSeveral: in the block's epoch.
    uint16_t copier = kNobody;       // Whose copy is on its way.
    uint32_t write_block_epoch = 0;
    uint32_t write_warp_epoch = 0;
    uint32_t read_block_epoch = 0;
    uint32_t read_warp_epoch = 0;
  };

  bool Check(const char* what, uint32_t address, uint32_t bytes);
  void CheckWrite(const char* what, uint32_t thread, uint32_t address, const Word& word);
  void MarkWritten(uint32_t thread, Word& word);
  void Report(const char* what, uint32_t address, const std::string& text);

  std::vector<std::byte> bytes_;
  std::vector<Word> words_;
  std::vector<uint32_t> warp_epochs_;
  uint32_t block_epoch_ = 1;
  Reporter report_;
};

}  // namespace pagoda::kernels::cuda::emulation

#endif  // PAGODA_TESTS_KERNELS_CUDA_EMULATION_SHARED_MEMORY_H_
