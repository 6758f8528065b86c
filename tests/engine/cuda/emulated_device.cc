#include "tests/engine/cuda/emulated_device.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/error.h"
#include "engine/model/cuda/device_backend.h"
#include "kernels/cuda/device/runtime.h"
#include "kernels/numeric.h"
#include "tests/engine/cuda/test_backend.h"
#include "tests/kernels/cuda/device_memory.h"
#include "tests/kernels/cuda_emulation/capture.h"

namespace pagoda {
namespace cuda {
namespace {

using kernels::BFloat16;
using kernels::ElementType;
using kernels::Half;
namespace emulation = kernels::cuda::emulation;

// The memory ends at the end of a page, so its size decides its alignment.
constexpr uint64_t kDeviceAlignment = 64;

template <class T>
void MultiplyAs(const DeviceProduct& product) {
  std::vector<float> row(product.inputs);
  const T* const weights = static_cast<const T*>(product.weights);
  for (uint64_t r = 0; r < product.rows; ++r) {
    const T* const input = static_cast<const T*>(product.input) + r * product.input_stride;
    std::transform(input, input + product.inputs, row.begin(),
                   [](T value) { return kernels::ToFloat(value); });
    for (uint64_t o = 0; o < product.outputs; ++o) {
      float sums[8] = {};
      for (uint64_t i = 0; i < product.inputs; ++i) {
        sums[i % 8] += row[i] * kernels::ToFloat(weights[o * product.inputs + i]);
      }
      float sum = product.bias == nullptr ? 0 : product.bias[o];
      for (const float part : sums) sum += part;
      product.output[r * product.output_stride + o] = sum;
    }
  }
}

void MultiplyNow(const DeviceProduct& product) {
  switch (product.type) {
    case ElementType::kFloat16:
      MultiplyAs<Half>(product);
      break;
    case ElementType::kBFloat16:
      MultiplyAs<BFloat16>(product);
      break;
    default:
      MultiplyAs<float>(product);
  }
}

// Does the work, or captures it.
void DoOrCapture(std::function<void()> work) {
  if (!emulation::IsCapturing()) return work();
  emulation::Capture([work = std::move(work)] {
    work();
    return 0;
  });
}

class EmulatedGraph final : public DeviceGraph {
 public:
  EmulatedGraph(emulation::CapturedWork work, EmulatedDevice::State* state)
      : work_(std::move(work)), state_(*state) {
    ++state_.graphs;
    state_.most_graphs = std::max(state_.most_graphs, state_.graphs);
  }
  ~EmulatedGraph() override { --state_.graphs; }

  absl::Status Run() {
    for (const auto& piece : work_) {
      absl::Status status = kernels::cuda::StatusOf("graph", piece());
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

 private:
  const emulation::CapturedWork work_;
  EmulatedDevice::State& state_;
};

}  // namespace

EmulatedDevice::~EmulatedDevice() {
  PAGODA_CHECK(memory_.empty(), "a backend gives all of its memory back");
}

absl::StatusOr<std::byte*> EmulatedDevice::Allocate(MemorySide side, uint64_t bytes) {
  ++memory_changes_;
  // CUDA refuses it, and the capture fails.
  if (emulation::IsCapturing()) return absl::InternalError("memory is allocated in a capture");
  const uint64_t padded = (bytes + kDeviceAlignment - 1) / kDeviceAlignment * kDeviceAlignment;
  if (side == MemorySide::kDevice) {
    if (state_.used_bytes + padded > state_.device_bytes) {
      return MakeError(Reason::kOutOfMemory,
                       absl::StrCat(bytes, " bytes, where ",
                                    state_.device_bytes - state_.used_bytes, " are free"));
    }
    state_.used_bytes += padded;
    state_.most_used_bytes = std::max(state_.most_used_bytes, state_.used_bytes);
  }
  std::byte* const memory = kernels::cuda::AllocateDevice(padded);
  std::memset(memory, 0xff, padded);
  memory_[memory] = {side, padded};
  return memory;
}

void EmulatedDevice::Free(MemorySide side, std::byte* memory) {
  const auto found = memory_.find(memory);
  PAGODA_CHECK(found != memory_.end() && found->second.first == side,
               "what is given back was taken on the same side");
  ++memory_changes_;
  if (emulation::IsCapturing()) {
    freed_in_capture_.push_back(memory);
  } else {
    FreeNow(memory);
  }
}

void EmulatedDevice::FreeNow(std::byte* memory) {
  const auto found = memory_.find(memory);
  PAGODA_CHECK(found != memory_.end(), "memory is given back once");
  const auto [side, bytes] = found->second;
  if (side == MemorySide::kDevice) state_.used_bytes -= bytes;
  memory_.erase(found);
  kernels::cuda::FreeDevice(memory);
}

absl::Status EmulatedDevice::Copy(void* target, const void* source, uint64_t bytes) {
  if (!state_.copy.ok() && state_.good_copies-- == 0) {
    state_.good_copies = 0;
    return state_.copy;
  }
  ++state_.copies;
  state_.copied_bytes += bytes;
  DoOrCapture([=] { std::memcpy(target, source, bytes); });
  return absl::OkStatus();
}

absl::Status EmulatedDevice::Wait() {
  if (emulation::IsCapturing()) return absl::InternalError("a wait in a capture");
  ++state_.waits;
  return state_.wait;
}

absl::StatusOr<std::unique_ptr<DeviceGraph>> EmulatedDevice::Capture(
    const std::function<absl::Status()>& work) {
  ++state_.captures;
  emulation::CapturedWork captured;
  emulation::CaptureInto(&captured);
  absl::Status status = work();
  emulation::CaptureInto(nullptr);
  for (std::byte* const memory : std::exchange(freed_in_capture_, {})) FreeNow(memory);
  status.Update(state_.capture);
  if (!status.ok()) return status;
  return std::make_unique<EmulatedGraph>(std::move(captured), &state_);
}

absl::Status EmulatedDevice::Launch(DeviceGraph& graph) {
  if (!state_.launch.ok()) return state_.launch;
  ++state_.graph_launches;
  if (!state_.graphs_run) return absl::OkStatus();
  return static_cast<EmulatedGraph&>(graph).Run();
}

absl::StatusOr<double> EmulatedDevice::SecondsOf(const std::function<absl::Status()>& work) {
  absl::Status status = work();
  if (status.ok()) status = Wait();
  if (!status.ok()) return status;
  return state_.seconds;
}

absl::Status HostProducts::Multiply(const DeviceProduct& product, kernels::cuda::Stream) {
  if (state_ != nullptr) ++state_->products;
  PAGODA_CHECK(product.rows > 0 && product.inputs > 0 && product.outputs > 0,
               "a product has no size of 0");
  PAGODA_CHECK(product.input_stride >= product.inputs && product.output_stride >= product.outputs,
               "rows do not overlap");
  DoOrCapture([product] { MultiplyNow(product); });
  return absl::OkStatus();
}

}  // namespace cuda

namespace {

class EmulatedKvMemory final : public KvMemory {
 public:
  std::byte* Allocate(uint64_t bytes) override { return pieces_.emplace_back(bytes).data(); }
  void Fill(std::byte* target, std::byte value, uint64_t bytes) override {
    std::fill_n(target, bytes, value);
  }

 private:
  std::vector<kernels::cuda::DeviceArray<std::byte>> pieces_;
};

}  // namespace

std::unique_ptr<KvMemory> MakeTestKvMemory() { return std::make_unique<EmulatedKvMemory>(); }

std::string WhyNoBackend() { return ""; }

std::unique_ptr<Backend> MakeTestBackend(ComputeType compute, GpuGraphs graphs,
                                         const FusedChoice& fused) {
  static auto* const state = new cuda::EmulatedDevice::State();
  return cuda::MakeDeviceBackend(std::make_unique<cuda::EmulatedDevice>(state),
                                 std::make_unique<cuda::HostProducts>(), compute, {}, fused,
                                 graphs);
}

}  // namespace pagoda
