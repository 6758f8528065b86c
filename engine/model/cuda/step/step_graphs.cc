#include "engine/model/cuda/step/step_graphs.h"

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>

namespace pagoda::cuda {
namespace {

using kernels::KvLayer;

// All fields. The bindings do not compile if there are others.
auto FieldsOf(const KvLayer& layer) {
  const auto& [keys, values, type, num_slots, num_kv_heads, tokens_per_block, head_dim, value_dim,
               slot_stride, head_stride, token_stride, scales] = layer;
  const auto& [key_scales, value_scales, per_head, scale_stride] = scales;
  return std::tuple(keys, values, type, num_slots, num_kv_heads, tokens_per_block, head_dim,
                    value_dim, slot_stride, head_stride, token_stride, key_scales, value_scales,
                    per_head, scale_stride);
}

bool AreSame(absl::Span<const KvLayer> one, absl::Span<const KvLayer> other) {
  return std::equal(one.begin(), one.end(), other.begin(), other.end(),
                    [](const KvLayer& a, const KvLayer& b) { return FieldsOf(a) == FieldsOf(b); });
}

}  // namespace

bool CanReplay(const ModelInput& input, const ModelConfig& config) {
  const uint64_t tokens = input.tokens.size();
  if (tokens == 0 || tokens > StepGraphs::kMostRows || config.experts.has_value()) return false;
  if (input.context_lengths.size() != tokens || input.logit_rows.size() != tokens) return false;
  for (uint64_t i = 0; i < tokens; ++i) {
    if (input.logit_rows[i] != i) return false;
  }
  return std::all_of(input.adapters.begin(), input.adapters.end(),
                     [](AdapterIndex adapter) { return adapter == kNoAdapter; });
}

absl::Status StepGraphs::Run(const std::vector<uint64_t>& shape, absl::Span<const KvLayer> pools,
                             const std::function<absl::Status()>& launch) {
  if (!on_) return launch();
  DropStale(pools);
  Kept* const kept = Find(shape);
  if (kept == nullptr) return launch();
  if (kept->graph == nullptr || choice_ == GpuGraphs::kCheck) return CaptureAndRun(*kept, launch);
  if (absl::Status launched = device_.Launch(*kept->graph); !launched.ok()) {
    return GiveUp(launched, launch);
  }
  ++counts_.replayed;
  return absl::OkStatus();
}

StepGraphs::Kept* StepGraphs::Find(const std::vector<uint64_t>& shape) {
  const auto found = std::find_if(kept_.begin(), kept_.end(),
                                  [&](const Kept& kept) { return kept.shape == shape; });
  if (found != kept_.end()) {
    kept_.splice(kept_.begin(), kept_, found);
    return &kept_.front();
  }
  if (kept_.size() == kMostGraphs) {
    if (kept_.back().graph != nullptr) ++counts_.dropped;
    kept_.pop_back();
  }
  kept_.push_front({.shape = shape, .graph = nullptr, .launches = {}});
  return nullptr;
}

void StepGraphs::DropStale(absl::Span<const KvLayer> pools) {
  if (device_.memory_changes() == memory_changes_ && AreSame(pools, pools_)) return;
  DropAll();
  memory_changes_ = device_.memory_changes();
  pools_.assign(pools.begin(), pools.end());
}

void StepGraphs::DropAll() {
  for (const Kept& kept : kept_) counts_.dropped += kept.graph == nullptr ? 0 : 1;
  kept_.clear();
}

absl::Status StepGraphs::CaptureAndRun(Kept& kept, const std::function<absl::Status()>& launch) {
  kernels::cuda::LaunchRecord launches;
  capturing_ = true;
  absl::StatusOr<std::unique_ptr<DeviceGraph>> captured = device_.Capture([&] {
    if (choice_ != GpuGraphs::kCheck) return launch();
    const kernels::cuda::ScopedLaunchRecord record(&launches);
    return launch();
  });
  capturing_ = false;
  // A buffer grew all the same. The graph, and all others, can have its old address.
  if (device_.memory_changes() != memory_changes_) {
    DropAll();
    return launch();
  }
  if (!captured.ok()) return GiveUp(captured.status(), launch);
  const bool replay = kept.graph != nullptr && launches == kept.launches;
  if (kept.graph != nullptr && !replay) {
    ++counts_.mismatches;
    counts_.problem = kernels::cuda::DifferenceOf(kept.launches, launches);
  }
  if (!replay) {
    kept.graph = *std::move(captured);
    kept.launches = std::move(launches);
  }
  if (absl::Status launched = device_.Launch(*kept.graph); !launched.ok()) {
    return GiveUp(launched, launch);
  }
  ++(replay ? counts_.replayed : counts_.captured);
  return absl::OkStatus();
}

absl::Status StepGraphs::GiveUp(const absl::Status& why,
                                const std::function<absl::Status()>& launch) {
  ++counts_.failures;
  counts_.problem = std::string(why.message());
  on_ = false;
  DropAll();
  return launch();
}

}  // namespace pagoda::cuda
