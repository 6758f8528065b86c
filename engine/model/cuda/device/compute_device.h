// The device of a backend, as far as the backend needs it: memory, one stream, copies. The class is
// virtual so that the tests' emulation can replace CUDA's runtime.
#ifndef PAGODA_ENGINE_MODEL_CUDA_DEVICE_COMPUTE_DEVICE_H_
#define PAGODA_ENGINE_MODEL_CUDA_DEVICE_COMPUTE_DEVICE_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/device/stream.h"

namespace pagoda::cuda {

// The device's own memory, or pinned host memory, which the device copies from and to.
enum class MemorySide : uint8_t { kDevice, kPinned };

// Work that was captured from a stream, in a form that the device can run many times. It is
// destroyed before its device, and after its last run has ended.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
};

// Thread-compatible.
class ComputeDevice {
 public:
  virtual ~ComputeDevice() = default;

  // For people: "cuda:0, NVIDIA H200".
  virtual std::string description() const = 0;
  virtual uint32_t num_multiprocessors() const = 0;

  // All copies of this object and all kernels of the backend run in the order of this stream.
  virtual kernels::cuda::Stream stream() const = 0;

  // Makes it the calling thread's device. Launches and products need that.
  virtual absl::Status MakeCurrent() = 0;

  // Aligned to 64 bytes, uninitialised. REQUIRES: bytes > 0. Errors: OUT_OF_MEMORY with the wanted
  // and the free bytes; INTERNAL.
  virtual absl::StatusOr<std::byte*> Allocate(MemorySide side, uint64_t bytes) = 0;
  // Waits for work on the device, which could still use the memory. In a capture it only records
  // the memory, which is freed when the capture has ended.
  virtual void Free(MemorySide side, std::byte* memory) = 0;

  // Copies between the device and pinned memory, in either direction and in the stream's order.
  // Errors: INTERNAL.
  virtual absl::Status Copy(void* target, const void* source, uint64_t bytes) = 0;
  // Waits for everything in the stream, and reports its failures. Errors: INTERNAL.
  virtual absl::Status Wait() = 0;
  // How many seconds the work that `work` puts into the stream runs there. Waits for it. Errors:
  // those of `work`; INTERNAL.
  virtual absl::StatusOr<double> SecondsOf(const std::function<absl::Status()>& work) = 0;

  // Captures what `work` puts into the stream, which does not run. The graph has the arguments of
  // each launch by value, and reads the memory at their addresses when it runs. `work` must not
  // wait, and all code that it runs must have run before, because CUDA loads code at its first use.
  // Errors: those of `work`; INTERNAL. After an error the stream can be used as before.
  virtual absl::StatusOr<std::unique_ptr<DeviceGraph>> Capture(
      const std::function<absl::Status()>& work) = 0;
  // Puts the whole graph into the stream. Asynchronous. REQUIRES: this device made it. Errors:
  // INTERNAL.
  virtual absl::Status Launch(DeviceGraph& graph) = 0;

  // How often memory was allocated or freed. If the number is the same, memory that existed then
  // exists now, at the same address.
  virtual uint64_t memory_changes() const = 0;
};

// A piece of a device's memory, freed by the destructor. Movable; a moved-from buffer is empty.
class DeviceBuffer {
 public:
  DeviceBuffer(ComputeDevice* device, MemorySide side) : device_(device), side_(side) {}
  ~DeviceBuffer() { Release(); }
  DeviceBuffer(DeviceBuffer&& other) noexcept
      : device_(other.device_),
        side_(other.side_),
        data_(std::exchange(other.data_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)) {}
  DeviceBuffer& operator=(DeviceBuffer&&) = delete;

  // Makes the buffer at least this large. Its content is lost if it grows. Errors: those of
  // ComputeDevice::Allocate; the buffer is then empty.
  absl::Status Reserve(uint64_t bytes) {
    if (bytes <= bytes_) return absl::OkStatus();
    Release();
    absl::StatusOr<std::byte*> memory = device_->Allocate(side_, bytes);
    if (!memory.ok()) return memory.status();
    data_ = *memory;
    bytes_ = bytes;
    return absl::OkStatus();
  }

  // The same, rounded up to the next power of two, for sizes that change from step to step.
  absl::Status Grow(uint64_t bytes) {
    return bytes <= bytes_ ? absl::OkStatus() : Reserve(std::bit_ceil(bytes));
  }

  std::byte* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  void Release() {
    if (data_ != nullptr) device_->Free(side_, data_);
    data_ = nullptr;
    bytes_ = 0;
  }

  ComputeDevice* device_;
  MemorySide side_;
  std::byte* data_ = nullptr;
  uint64_t bytes_ = 0;
};

}  // namespace pagoda::cuda

#endif  // PAGODA_ENGINE_MODEL_CUDA_DEVICE_COMPUTE_DEVICE_H_
