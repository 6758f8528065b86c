// A copy between two slots of one window. The core orders it, and Transfers carries it out.
#ifndef PAGODA_POOLS_COPY_ORDER_H_
#define PAGODA_POOLS_COPY_ORDER_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/strong_id.h"
#include "pools/types.h"

namespace pagoda {

// Numbers a cache's copies in ascending steps of one, from 1. 0 means no copy to wait for.
using Ticket = StrongId<struct TicketTag, uint64_t>;

// The queue of a copy. Each lane numbers its tickets separately, so that a slow disk delays no copy
// between memories.
enum class Lane : uint8_t {
  kMemory,  // Between tiers in memory: CopyOrder.
  kFetch,   // From a disk into memory.
  kBackup,  // From memory to a disk.
};
inline constexpr size_t kNumLanes = 3;

// Copies the first `num_tokens` tokens of `source` to `target`, in every pool of the window.
struct CopyOrder {
  Ticket ticket;
  WindowSize window = kFullAttention;
  SlotRef source;
  SlotRef target;
  uint32_t num_tokens = 0;  // tokens_per_block: the whole slot, in one piece.
  // The copies that last touched the source and the target, or 0. This copy starts when they are
  // done, even if they failed. Both tickets are below `ticket`.
  std::array<Ticket, 2> after;
  friend bool operator==(const CopyOrder&, const CopyOrder&) = default;
};

}  // namespace pagoda

#endif  // PAGODA_POOLS_COPY_ORDER_H_
