// What the core asks of a carrier: to move a block's bytes between two slots, or to forget slots of
// a file.
#ifndef PAGODA_POOLS_ORDER_H_
#define PAGODA_POOLS_ORDER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/strong_id.h"
#include "pools/types.h"

namespace pagoda {

struct SlotContent;  // manager/words/slot_journal.h

// Numbers the orders of a lane in ascending steps of one, from 1. 0 means no order to wait for.
using Ticket = StrongId<struct TicketTag, uint64_t>;

// The queue of an order. Each lane numbers its tickets separately, so that a slow disk delays no
// copy between memories.
enum class Lane : uint8_t {
  kMemory,  // Between tiers in memory.
  kFetch,   // From a disk into memory.
  kBackup,  // From memory to a disk, and what else changes the disk.
};
inline constexpr size_t kNumLanes = 3;

// A Carrier carries it out (pools/carrier.h).
//
// Until an order of kFetch or kBackup is reported done, neither slot is handed out and no byte of
// the block changes. So two orders never touch the same slot of a file at once, except for two
// fetches.
struct Order {
  enum class Kind : uint8_t {
    kMove,  // Copies `source` to `target`.
    // In kBackup: blocks of the window's file must not come back after a restart. Done when that is
    // durable. The core hands the slots out again only then.
    kErase,     // `slots`, and every slot that can hold a block that is not the core's: dropped
                // (kDrop), left by a failed backup, or not taken back at the start.
    kEraseAll,  // Every slot.
    // In kBackup, without a ticket and a report: the core gives up `target`, and can hand it out
    // again at once. Its content can come back after a restart unless an erase comes first.
    // REQUIRES: the slot has no unreported order.
    kDrop,
  };
  Lane lane = Lane::kMemory;
  Kind kind = Kind::kMove;
  Ticket ticket;  // In `lane`.
  uint32_t window_index = 0;
  SlotRef source;
  SlotRef target;
  // In kMemory: how many tokens are copied, the first ones, in every pool of the window.
  // tokens_per_block: the whole slot, in one piece. The other lanes move whole slots.
  uint32_t num_tokens = 0;
  // The copies of kMemory that last touched the source and the target, or 0. The order starts when
  // they are done, even if they failed. In kMemory both tickets are below `ticket`.
  std::array<Ticket, 2> after;
  // For a backup. The content's `parent` is the block above, whose copy lies in slot `parent` of
  // the same file, or is ordered there by an earlier ticket. kNoSlot: the block is the first of its
  // namespace. The copies of an order share the content.
  std::shared_ptr<const SlotContent> content;
  SlotIndex parent = kNoSlot;
  std::vector<SlotIndex> slots;  // For kErase.

  // The two slots of a backup or a fetch.
  const SlotRef& memory() const { return lane == Lane::kFetch ? target : source; }
  const SlotRef& file() const { return lane == Lane::kFetch ? source : target; }
};

}  // namespace pagoda

#endif  // PAGODA_POOLS_ORDER_H_
