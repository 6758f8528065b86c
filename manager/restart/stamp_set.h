// The stamps of a cache: for every window, in every tier that has pools.
#ifndef PAGODA_MANAGER_RESTART_STAMP_SET_H_
#define PAGODA_MANAGER_RESTART_STAMP_SET_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "manager/restart/slot_stamps.h"
#include "pools/pool.h"
#include "pools/types.h"

namespace pagoda {

// Thread-safe, as SlotStamps.
class StampSet {
 public:
  // Takes over the stamps that an earlier run left beside the pools of that instance, or begins new
  // ones. `note` is SlotStamps::Options::note. Errors: those of SlotStamps::Create.
  static absl::StatusOr<std::unique_ptr<StampSet>> Create(const PoolSet& pools,
                                                          const std::string& instance,
                                                          uint64_t note = 0);
  // Removes the stamps that dead daemons left of a cache of that layout. A daemon that keeps no
  // stamps calls it, because old ones would not describe its slots. Errors: INVALID_ARGUMENT (the
  // stamps of a living daemon).
  static absl::Status RemoveLeftovers(const CacheLayout& layout, const std::string& instance);

  // All stamps stay when this object ends, new ones too. See SlotStamps::Create.
  void KeepNames();
  // Invalidates the stamps of all slots.
  void InvalidateAll();

  uint32_t num_windows() const { return static_cast<uint32_t>(stamps_.size()); }
  // Null if the window has no pools in that tier.
  SlotStamps* Find(uint32_t window_index, Tier tier) const {
    return stamps_[window_index][tier.value()].get();
  }

 private:
  StampSet() = default;

  std::vector<std::array<std::unique_ptr<SlotStamps>, kMaxTiers>> stamps_;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_RESTART_STAMP_SET_H_
