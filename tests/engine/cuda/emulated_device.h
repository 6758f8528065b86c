// The device of a GPU backend on a machine without a GPU: the emulation's memory, and plain loops
// instead of cuBLASLt.
#ifndef PAGODA_TESTS_ENGINE_CUDA_EMULATED_DEVICE_H_
#define PAGODA_TESTS_ENGINE_CUDA_EMULATED_DEVICE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/model/cuda/device/compute_device.h"
#include "engine/model/cuda/products/device_products.h"

namespace pagoda::cuda {

// Each allocation ends at a page that must not be touched, and begins as NaN. A test can inspect
// it, and make it fail, while a backend uses it.
class EmulatedDevice final : public ComputeDevice {
 public:
  struct State {
    // The total memory of the device.
    uint64_t device_bytes = uint64_t{1} << 40;
    uint64_t used_bytes = 0;
    uint64_t most_used_bytes = 0;
    absl::Status copy;  // The status of copies after the first ones.
    uint32_t good_copies = 0;
    absl::Status wait;
    double seconds = 1e-3;  // The time that any work takes on this device.
    // The sums over all devices of this state.
    uint64_t copies = 0;
    uint64_t copied_bytes = 0;
    uint64_t waits = 0;
    uint64_t products = 0;
    uint64_t captures = 0;
    uint64_t graph_launches = 0;
    uint64_t graphs = 0;       // Graphs that exist.
    uint64_t most_graphs = 0;  // The most at the same time.
    absl::Status capture;      // The status of captures after their work.
    absl::Status launch;       // The status of the launches of graphs.
    bool graphs_run = true;    // Whether the launch of a graph does anything.
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
  absl::Status Wait() override;
  absl::StatusOr<double> SecondsOf(const std::function<absl::Status()>& work) override;
  // Kernels, products and copies of `work` are kept with copies of their arguments.
  absl::StatusOr<std::unique_ptr<DeviceGraph>> Capture(
      const std::function<absl::Status()>& work) override;
  absl::Status Launch(DeviceGraph& graph) override;
  uint64_t memory_changes() const override { return memory_changes_; }

 private:
  void FreeNow(std::byte* memory);

  State& state_;
  uint64_t memory_changes_ = 0;
  std::vector<std::byte*> freed_in_capture_;
  std::map<std::byte*, std::pair<MemorySide, uint64_t>> memory_;  // The existing allocations and
                                                                  // their bytes.
};

// Computes like cuBLASLt: unchanged factors, and sums in fp32 in another order.
class HostProducts final : public DeviceProducts {
 public:
  // `state`, if it is not null, counts the products and outlives this.
  explicit HostProducts(EmulatedDevice::State* state = nullptr) : state_(state) {}
  std::string name() const override { return "plain loops"; }
  absl::Status Multiply(const DeviceProduct& product, kernels::cuda::Stream stream) override;

 private:
  EmulatedDevice::State* const state_;
};

}  // namespace pagoda::cuda

#endif  // PAGODA_TESTS_ENGINE_CUDA_EMULATED_DEVICE_H_
