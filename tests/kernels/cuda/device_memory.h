// Device memory for the tests: of a GPU or of the emulation, according to the linked file.
#ifndef PAGODA_TESTS_KERNELS_CUDA_DEVICE_MEMORY_H_
#define PAGODA_TESTS_KERNELS_CUDA_DEVICE_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "kernels/cuda/device/stream.h"

namespace pagoda::kernels::cuda {

// Empty if kernels can run; else the reason.
std::string WhyNoDevice();

// Whether kernels run on the emulation; tests are smaller then.
bool IsEmulated();

// The functions below end the test program with a message if CUDA fails.

std::byte* AllocateDevice(uint64_t bytes);
void FreeDevice(std::byte* memory);
void CopyToDevice(void* device, const void* host, uint64_t bytes);
void CopyFromDevice(void* host, const void* device, uint64_t bytes);
// Waits for all kernels. Their errors end the program.
void FinishDevice();

// Sets the order of warps for the following launches, if the device supports that.
void ShuffleSchedule(uint32_t seed);

// An array in device memory. The emulation detects accesses behind its end.
template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(uint64_t size)
      : size_(size), memory_(AllocateDevice(size == 0 ? sizeof(T) : size * sizeof(T))) {}
  explicit DeviceArray(const std::vector<T>& host) : DeviceArray(host.size()) {
    CopyToDevice(memory_, host.data(), host.size() * sizeof(T));
  }
  ~DeviceArray() {
    if (memory_ != nullptr) FreeDevice(memory_);
  }
  DeviceArray(DeviceArray&& other) noexcept : size_(other.size_), memory_(other.memory_) {
    other.memory_ = nullptr;
  }
  DeviceArray& operator=(DeviceArray&&) = delete;

  T* data() const { return reinterpret_cast<T*>(memory_); }
  uint64_t size() const { return size_; }
  absl::Span<const T> span() const { return {data(), size_}; }
  void Set(const std::vector<T>& host) {
    CopyToDevice(memory_, host.data(), host.size() * sizeof(T));
  }
  std::vector<T> Get() const {
    std::vector<T> host(size_);
    CopyFromDevice(host.data(), memory_, size_ * sizeof(T));
    return host;
  }

 private:
  uint64_t size_;
  std::byte* memory_;
};

}  // namespace pagoda::kernels::cuda

#endif  // PAGODA_TESTS_KERNELS_CUDA_DEVICE_MEMORY_H_
