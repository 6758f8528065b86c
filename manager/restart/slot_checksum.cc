#include "manager/restart/slot_checksum.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace pagoda {

uint64_t Checksum(absl::Span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

uint64_t ChecksumSlot(PoolSet& pools, uint32_t window_index, SlotRef slot) {
  const size_t num_pools = pools.layout().windows()[window_index].pools.size();
  if (num_pools == 1) return Checksum(pools.pool(window_index, 0, slot.tier).slot(slot.slot));
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  for (uint32_t p = 0; p < num_pools; ++p) {
    const absl::Span<const std::byte> bytes =
        pools.pool(window_index, p, slot.tier).slot(slot.slot);
    XXH3_64bits_update(&state, bytes.data(), bytes.size());
  }
  return XXH3_64bits_digest(&state);
}

}  // namespace pagoda
