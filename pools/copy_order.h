// A copy between two slots of one window, as the core orders it and Transfers carries it out.
#ifndef PAGODA_POOLS_COPY_ORDER_H_
#define PAGODA_POOLS_COPY_ORDER_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/strong_id.h"
#include "pools/types.h"

namespace pagoda {

// Numbers the copies of a cache: the first is 1, each one more than the one before. 0: nothing to
// wait for.
using Ticket = StrongId<struct TicketTag, uint64_t>;

// Where a copy waits its turn. A lane numbers its tickets by itself, so a slow disk holds up no
// copy between memories.
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
  uint32_t num_tokens = 0;  // tokens_per_block: the whole slot, in one run.
  // The copies that last touched the source and the target: this one starts when they are done,
  // whether they succeeded or not. 0: none. Both are below `ticket`.
  std::array<Ticket, 2> after;
  friend bool operator==(const CopyOrder&, const CopyOrder&) = default;
};

}  // namespace pagoda

#endif  // PAGODA_POOLS_COPY_ORDER_H_
