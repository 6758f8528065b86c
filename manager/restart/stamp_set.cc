#include "manager/restart/stamp_set.h"

#include <utility>

#include "absl/memory/memory.h"

namespace pagoda {

absl::StatusOr<std::unique_ptr<StampSet>> StampSet::Create(const PoolSet& pools,
                                                           const std::string& instance,
                                                           uint64_t note) {
  const CacheLayout& layout = pools.layout();
  auto set = absl::WrapUnique(new StampSet);
  set->stamps_.resize(layout.windows().size());
  for (uint32_t w = 0; w < set->num_windows(); ++w) {
    for (size_t t = 0; t < pools.num_tiers(); ++t) {
      const Tier tier(t);
      if (pools.num_slots(w, tier) == 0) continue;
      absl::StatusOr<std::unique_ptr<SlotStamps>> stamps =
          SlotStamps::Create({.shm_name = StampsName(instance, layout.windows()[w].window, tier),
                              .fingerprint = StampsFingerprint(layout, w, tier),
                              .num_slots = pools.num_slots(w, tier),
                              .tokens_per_block = layout.spec().tokens_per_block,
                              .note = note});
      if (!stamps.ok()) return stamps.status();
      set->stamps_[w][t] = *std::move(stamps);
    }
  }
  return set;
}

absl::Status StampSet::RemoveLeftovers(const CacheLayout& layout, const std::string& instance) {
  for (const WindowLayout& window : layout.windows()) {
    for (size_t t = 0; t < kMaxTiers; ++t) {
      absl::Status status =
          SharedMemory::RemoveLeftover(StampsName(instance, window.window, Tier(t)));
      if (!status.ok()) return status;
    }
  }
  return absl::OkStatus();
}

void StampSet::KeepNames() {
  for (const auto& window : stamps_) {
    for (const std::unique_ptr<SlotStamps>& stamps : window) {
      if (stamps != nullptr) stamps->KeepName();
    }
  }
}

void StampSet::InvalidateAll() {
  for (const auto& window : stamps_) {
    for (const std::unique_ptr<SlotStamps>& stamps : window) {
      for (uint32_t slot = 0; stamps != nullptr && slot < stamps->num_slots(); ++slot) {
        stamps->Invalidate(SlotIndex{slot});
      }
    }
  }
}

}  // namespace pagoda
