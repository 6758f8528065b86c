// What a backend for GPUs needs of a machine, where there is no GPU: the emulation's memory, plain
// loops in cuBLASLt's place.
#ifndef PAGODA_TESTS_ENGINE_CUDA_EMULATED_DEVICE_H_
#define PAGODA_TESTS_ENGINE_CUDA_EMULATED_DEVICE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "engine/model/cuda/compute_device.h"
#include "engine/model/cuda/device_products.h"

namespace pagoda::cuda {

// Each allocation ends at a page that may not be touched, and begins as NaN. A test may look at it
// and make it fail while a backend has it.
class EmulatedDevice final : public ComputeDevice {
 public:
  struct State {
    // Memory of the device, all in all.
    uint64_t device_bytes = uint64_t{1} << 40;
    uint64_t used_bytes = 0;
    uint64_t most_used_bytes = 0;
    absl::Status copy;  // What copies give, but so many before them.
    uint32_t good_copies = 0;
    absl::Status wait;
    double seconds = 1e-3;  // What any work takes.
  };
  // `state` outlives the device.
  explicit EmulatedDevice(State* state) : state_(*state) {}
  ~EmulatedDevice() override;

  std::string description() const override { return "cuda:0, emulated"; }
  uint32_t num_multiprocessors() const override { return 4; }
  kernels::cuda::Stream stream() const override { return nullptr; }
  absl::Status MakeCurrent() override { return absl::OkStatus(); }
  absl::StatusOr<std::byte*> Allocate(MemorySide side, uint64_t bytes) override;
  void Free(MemorySide side, std::byte* memory) override;
  absl::Status Copy(void* target, const void* source, uint64_t bytes) override;
  absl::Status Wait() override { return state_.wait; }
  absl::StatusOr<double> SecondsOf(const std::function<absl::Status()>& work) override;

 private:
  State& state_;
  std::map<std::byte*, std::pair<MemorySide, uint64_t>> memory_;  // What lives, and its bytes.
};

// As cuBLASLt is asked for them: factors as they are, sums in fp32; here in an order of its own.
class HostProducts final : public DeviceProducts {
 public:
  std::string name() const override { return "plain loops"; }
  absl::Status Multiply(const DeviceProduct& product, kernels::cuda::Stream stream) override;
};

}  // namespace pagoda::cuda

#endif  // PAGODA_TESTS_ENGINE_CUDA_EMULATED_DEVICE_H_
