#include "engine/model/cuda/device/runtime_device.h"

#include <cuda_runtime_api.h>

#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "kernels/cuda/device/runtime.h"

namespace pagoda::cuda {
namespace {

using kernels::cuda::StatusOf;

struct DestroyEvent {
  void operator()(cudaEvent_t event) const { cudaEventDestroy(event); }
};
using Event = std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, DestroyEvent>;

struct DestroyGraph {
  void operator()(cudaGraph_t graph) const { cudaGraphDestroy(graph); }
};
using Graph = std::unique_ptr<std::remove_pointer_t<cudaGraph_t>, DestroyGraph>;

class RuntimeGraph final : public DeviceGraph {
 public:
  explicit RuntimeGraph(cudaGraphExec_t graph) : graph_(graph) {}
  ~RuntimeGraph() override { cudaGraphExecDestroy(graph_); }
  cudaGraphExec_t get() const { return graph_; }

 private:
  const cudaGraphExec_t graph_;
};

class RuntimeDevice final : public ComputeDevice {
 public:
  RuntimeDevice(int device, const cudaDeviceProp& properties, cudaStream_t stream)
      : device_(device),
        name_(properties.name),
        num_multiprocessors_(static_cast<uint32_t>(properties.multiProcessorCount)),
        stream_(stream) {}

  ~RuntimeDevice() override {
    if (MakeCurrent().ok()) cudaStreamDestroy(stream_);
  }

  std::string description() const override { return absl::StrCat("cuda:", device_, ", ", name_); }
  uint32_t num_multiprocessors() const override { return num_multiprocessors_; }
  kernels::cuda::Stream stream() const override { return stream_; }

  absl::Status MakeCurrent() override { return StatusOf("cudaSetDevice", cudaSetDevice(device_)); }

  absl::StatusOr<std::byte*> Allocate(MemorySide side, uint64_t bytes) override {
    if (absl::Status status = MakeCurrent(); !status.ok()) return status;
    ++memory_changes_;
    void* memory = nullptr;
    const bool pinned = side == MemorySide::kPinned;
    const cudaError_t error = pinned ? cudaMallocHost(&memory, bytes) : cudaMalloc(&memory, bytes);
    if (error == cudaErrorMemoryAllocation) {
      cudaGetLastError();  // Forgets it.
      return OutOfMemory(side, bytes);
    }
    if (error != cudaSuccess) return StatusOf(pinned ? "cudaMallocHost" : "cudaMalloc", error);
    return static_cast<std::byte*>(memory);
  }

  // In a capture CUDA refuses to free memory, which would then be lost.
  void Free(MemorySide side, std::byte* memory) override {
    ++memory_changes_;
    if (capturing_) {
      freed_in_capture_.push_back({side, memory});
    } else {
      FreeNow(side, memory);
    }
  }

  absl::Status Copy(void* target, const void* source, uint64_t bytes) override {
    return StatusOf("cudaMemcpyAsync",
                    cudaMemcpyAsync(target, source, bytes, cudaMemcpyDefault, stream_));
  }

  absl::Status Wait() override {
    return StatusOf("cudaStreamSynchronize", cudaStreamSynchronize(stream_));
  }

  absl::StatusOr<double> SecondsOf(const std::function<absl::Status()>& work) override {
    if (absl::Status status = MakeCurrent(); !status.ok()) return status;
    cudaEvent_t made[2] = {};
    absl::Status status;
    for (cudaEvent_t& event : made) {
      if (status.ok()) status = StatusOf("cudaEventCreate", cudaEventCreate(&event));
    }
    const Event first(made[0]), last(made[1]);
    if (status.ok()) {
      status = StatusOf("cudaEventRecord", cudaEventRecord(first.get(), stream_));
    }
    if (status.ok()) status = work();
    if (status.ok()) status = StatusOf("cudaEventRecord", cudaEventRecord(last.get(), stream_));
    // Waits after a failure too: an event can be destroyed only when nothing uses it.
    if (absl::Status ended = Wait(); status.ok()) status = ended;
    float milliseconds = 0;
    if (status.ok()) {
      status = StatusOf("cudaEventElapsedTime",
                        cudaEventElapsedTime(&milliseconds, first.get(), last.get()));
    }
    if (!status.ok()) return status;
    return milliseconds * 1e-3;
  }

  // Other threads use CUDA meanwhile (copies between tiers), so only this thread's calls are
  // restricted.
  absl::StatusOr<std::unique_ptr<DeviceGraph>> Capture(
      const std::function<absl::Status()>& work) override {
    if (absl::Status status = MakeCurrent(); !status.ok()) return status;
    absl::Status status =
        StatusOf("cudaStreamBeginCapture",
                 cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
    if (!status.ok()) return status;
    capturing_ = true;
    status = work();
    // Ends the capture after a failure too.
    cudaGraph_t captured = nullptr;
    const cudaError_t ended = cudaStreamEndCapture(stream_, &captured);
    capturing_ = false;
    for (const auto& [side, memory] : std::exchange(freed_in_capture_, {})) FreeNow(side, memory);
    const Graph graph(captured);
    if (status.ok()) status = StatusOf("cudaStreamEndCapture", ended);
    cudaGraphExec_t executable = nullptr;
    if (status.ok()) {
      status = StatusOf("cudaGraphInstantiate", cudaGraphInstantiate(&executable, captured, 0));
    }
    if (!status.ok()) {
      cudaGetLastError();  // Forgets it.
      return status;
    }
    return std::make_unique<RuntimeGraph>(executable);
  }

  absl::Status Launch(DeviceGraph& graph) override {
    return StatusOf("cudaGraphLaunch",
                    cudaGraphLaunch(static_cast<RuntimeGraph&>(graph).get(), stream_));
  }

  uint64_t memory_changes() const override { return memory_changes_; }

 private:
  // If the device is lost, there is nothing to free.
  void FreeNow(MemorySide side, std::byte* memory) {
    if (!MakeCurrent().ok()) return;
    if (side == MemorySide::kPinned) {
      cudaFreeHost(memory);
    } else {
      cudaFree(memory);
    }
  }

  absl::Status OutOfMemory(MemorySide side, uint64_t bytes) const {
    if (side == MemorySide::kPinned) {
      return MakeError(Reason::kOutOfMemory,
                       absl::StrCat(bytes, " bytes of host memory could not be pinned"));
    }
    size_t free = 0;
    size_t total = 0;
    cudaMemGetInfo(&free, &total);
    return MakeError(Reason::kOutOfMemory,
                     absl::StrCat(bytes, " bytes are not available in the memory of ",
                                  description(), ": ", free, " of ", total, " bytes are free"));
  }

  const int device_;
  const std::string name_;
  const uint32_t num_multiprocessors_;
  const cudaStream_t stream_;
  uint64_t memory_changes_ = 0;
  bool capturing_ = false;
  std::vector<std::pair<MemorySide, std::byte*>> freed_in_capture_;
};

// The driver's reason why no device is usable.
absl::Status Unavailable(cudaError_t error) {
  return absl::UnavailableError(
      absl::StrCat("no CUDA device: ", cudaGetErrorName(error), ": ", cudaGetErrorString(error)));
}

}  // namespace

absl::StatusOr<std::unique_ptr<ComputeDevice>> OpenRuntimeDevice(int device) {
  int devices = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&devices); error != cudaSuccess) {
    cudaGetLastError();  // Forgets it.
    return Unavailable(error);
  }
  if (devices == 0) return Unavailable(cudaErrorNoDevice);
  if (device < 0 || device >= devices) {
    return MakeError(Reason::kInvalidArgument, absl::StrCat("there is no CUDA device ", device,
                                                            "; this process sees ", devices));
  }
  cudaDeviceProp properties;
  absl::Status status =
      StatusOf("cudaGetDeviceProperties", cudaGetDeviceProperties(&properties, device));
  if (!status.ok()) return status;
  if (properties.major < 8) {
    return absl::FailedPreconditionError(
        absl::StrCat("cuda:", device, ", ", properties.name, ", is sm_", properties.major,
                     properties.minor, "; the engine's kernels need sm_80 or newer"));
  }
  status = StatusOf("cudaSetDevice", cudaSetDevice(device));
  cudaStream_t stream = nullptr;
  if (status.ok()) {
    status = StatusOf("cudaStreamCreateWithFlags",
                      cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  }
  if (!status.ok()) return status;
  return std::make_unique<RuntimeDevice>(device, properties, stream);
}

}  // namespace pagoda::cuda
