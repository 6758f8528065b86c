// A checksum of the bytes of one slot.
#ifndef PAGODA_MANAGER_RESTART_SLOT_CHECKSUM_H_
#define PAGODA_MANAGER_RESTART_SLOT_CHECKSUM_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "pools/pool.h"
#include "pools/types.h"

namespace pagoda {

// XXH3_64 of `bytes`. It protects against accidents, not against attackers.
uint64_t Checksum(absl::Span<const std::byte> bytes);

// XXH3_64 of the slot's bytes in all pools of the window, one pool after another. It detects bytes
// that changed by accident. A process that can write a pool can make bytes with any checksum.
// REQUIRES: the window has pools in the slot's tier, and the slot is one of theirs.
uint64_t ChecksumSlot(PoolSet& pools, uint32_t window_index, SlotRef slot);

}  // namespace pagoda

#endif  // PAGODA_MANAGER_RESTART_SLOT_CHECKSUM_H_
