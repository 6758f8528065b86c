// The graphs of decode steps. Each kind of step is captured once, and then replayed by one launch.
#ifndef PAGODA_ENGINE_MODEL_CUDA_STEP_STEP_GRAPHS_H_
#define PAGODA_ENGINE_MODEL_CUDA_STEP_STEP_GRAPHS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/engine_options.h"
#include "engine/checkpoint/config/model_config.h"
#include "engine/model/backend/model_input.h"
#include "engine/model/cuda/device/compute_device.h"
#include "engine/words/gpu_graphs.h"
#include "kernels/cuda/device/launch_record.h"
#include "kernels/types.h"

namespace pagoda::cuda {

// Whether a step can be replayed: it has one token of each sequence, with its logits, and no
// operation takes values of the host. Experts and adapters take lists of rows.
bool CanReplay(const ModelInput& input, const ModelConfig& config);

// Keeps graphs by the shape of their step. Thread-compatible.
//
// Invariants
// 1. A graph runs for a step only if, since its capture, no memory of the device was allocated or
// freed and the pools did not change, and the step has the graph's shape.
// 2. A step runs exactly once, by a graph or by its own launches, whatever fails.
// 3. At most kMostGraphs graphs exist. The least recently used one is dropped first.
// 4. After a failed capture or launch of a graph, there are no graphs any more.
class StepGraphs {
 public:
  // Each costs device memory, and host memory for its nodes.
  static constexpr size_t kMostGraphs = 32;
  // Larger steps compute for longer than their launches take.
  static constexpr uint64_t kMostRows = 256;

  // `device` outlives it.
  StepGraphs(ComputeDevice* device, GpuGraphs choice)
      : device_(*device), choice_(choice), on_(choice != GpuGraphs::kOff) {}

  // Whether graphs are used.
  bool on() const { return on_; }
  // Whether `launch` of Run is being captured.
  bool capturing() const { return capturing_; }

  // Runs a step in the stream's order. `shape` determines, with the pools and the memory, each
  // launch of the step and its arguments. `launch` puts these launches into the stream; while it is
  // captured, it fails if it would wait or take values of the host. It is called at most twice. The
  // first step of a shape runs without a graph, so that its buffers grow and its code is loaded.
  // The next one is captured. But if memory or the pools have changed since the first one began, it
  // counts as a first one again. Errors: those of `launch`.
  absl::Status Run(const std::vector<uint64_t>& shape, absl::Span<const kernels::KvLayer> pools,
                   const std::function<absl::Status()>& launch);

  const StepGraphCounts& counts() const { return counts_; }

 private:
  struct Kept {
    std::vector<uint64_t> shape;
    std::unique_ptr<DeviceGraph> graph;    // Null: there was one step of this shape.
    kernels::cuda::LaunchRecord launches;  // With kCheck.
  };

  // The entry of the shape, now the first one; null if the shape is new, which it is then no more.
  Kept* Find(const std::vector<uint64_t>& shape);
  void DropStale(absl::Span<const kernels::KvLayer> pools);
  void DropAll();
  absl::Status CaptureAndRun(Kept& kept, const std::function<absl::Status()>& launch);
  // Runs the step without a graph, and never uses one again.
  absl::Status GiveUp(const absl::Status& why, const std::function<absl::Status()>& launch);

  ComputeDevice& device_;
  const GpuGraphs choice_;
  bool on_;
  bool capturing_ = false;
  std::list<Kept> kept_;  // The most recently used one first.
  std::vector<kernels::KvLayer> pools_;
  uint64_t memory_changes_ = 0;
  StepGraphCounts counts_;
};

}  // namespace pagoda::cuda

#endif  // PAGODA_ENGINE_MODEL_CUDA_STEP_STEP_GRAPHS_H_
