#include "tests/kernels/cuda_emulation/ordering.h"

#include <algorithm>

namespace pagoda::kernels::cuda::emulation {

Ordering::Ordering(uint32_t threads)
    : knowledge_(threads), unfenced_(threads, false), epochs_(threads / kWarpLanes, 1) {
  for (uint32_t t = 0; t < threads; ++t) {
    knowledge_[t].over.times[t / kWarpLanes] = 1;
    knowledge_[t].fenced.times[t / kWarpLanes] = 1;
  }
}

Knowledge Ordering::OfWarp(uint32_t warp) const {
  Knowledge common = knowledge_[warp * kWarpLanes];
  for (uint32_t lane = 1; lane < kWarpLanes; ++lane) {
    const Knowledge& other = knowledge_[warp * kWarpLanes + lane];
    for (size_t i = 0; i < common.over.times.size(); ++i) {
      common.over.times[i] = std::min(common.over.times[i], other.over.times[i]);
      common.fenced.times[i] = std::min(common.fenced.times[i], other.fenced.times[i]);
    }
  }
  return common;
}

void Ordering::Meet(const std::vector<uint32_t>& warps) {
  Knowledge all;
  for (const uint32_t warp : warps) {
    bool unfenced = false;
    for (uint32_t t = warp * kWarpLanes; t < (warp + 1) * kWarpLanes; ++t) {
      all.Join(knowledge_[t]);
      unfenced = unfenced || unfenced_[t];
    }
    ++epochs_[warp];
    all.over.times[warp] = epochs_[warp];
    if (!unfenced) all.fenced.times[warp] = epochs_[warp];
  }
  for (const uint32_t warp : warps) {
    for (uint32_t t = warp * kWarpLanes; t < (warp + 1) * kWarpLanes; ++t) knowledge_[t] = all;
  }
}

void Ordering::Fence(uint32_t thread) {
  knowledge_[thread].fenced.Join(knowledge_[thread].over);
  unfenced_[thread] = false;
}

void Ordering::LearnPhases(uint32_t thread, uint32_t barrier, uint32_t ended) {
  uint32_t& known = knowledge_[thread].over.times[kMostWarps + barrier];
  known = std::max(known, ended);
}

}  // namespace pagoda::kernels::cuda::emulation
