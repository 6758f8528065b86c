// What the core orders of the carrier of a disk tier: blocks to write, blocks to read, slots to
// erase. The core touches no file; the carrier decides nothing.
#ifndef PAGODA_MANAGER_FILE_ORDERS_H_
#define PAGODA_MANAGER_FILE_ORDERS_H_

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "manager/slot_journal.h"
#include "pools/copy_order.h"
#include "pools/types.h"

namespace pagoda {

// A block goes from a memory slot to a slot of the window's file (kBackup), or back (kFetch).
//
// Neither slot is handed out, and no byte of the block changes, until the order is reported done.
// So two orders never touch the same slot of the file at once, but for two fetches.
struct FileOrder {
  Lane lane = Lane::kBackup;
  Ticket ticket;  // Of its lane.
  uint32_t window_index = 0;
  SlotRef memory;  // Source of a backup, target of a fetch.
  SlotRef file;    // Target of a backup, source of a fetch.
  // Of the memory lane: the copies up to this one that touch `memory` have ended when the order
  // begins. 0: nothing to wait for.
  Ticket after;
  // Of a backup. Its `parent` is the block above it, whose copy lies in `parent_file` of the same
  // file, or is ordered there by an earlier ticket; kNoSlot: the block is the first of its
  // namespace.
  std::optional<SlotContent> content;
  SlotIndex parent_file = kNoSlot;
};

// Blocks of a window's file that must not come back after a restart. Reported done like a backup,
// when that is durable. The slots are handed out again only then.
struct FileErase {
  enum class What : uint8_t {
    kSlots,  // Those below, and every slot that may hold a block which is not the core's: dropped
             // (FileDrop), left by a backup that failed, or not taken back at the start.
    kAll,
  };
  Ticket ticket;  // Of the backup lane.
  uint32_t window_index = 0;
  What what = What::kSlots;
  std::vector<SlotIndex> slots;
};

// The core lets a slot of a window's file go without erasing it: the slot may be handed out again
// at once, and what lies there may come back after a restart unless an erase comes first. Not of a
// slot with an order that is not reported.
struct FileDrop {
  uint32_t window_index = 0;
  SlotIndex slot;
};

// What a call of the core has for the carrier, in the order in which it happened.
using FileCommand = std::variant<FileOrder, FileErase, FileDrop>;
using FileCommands = std::vector<FileCommand>;

// Carries the commands out: DiskCarrier. Called under the core's lock, in order: must not block.
class FileCommandSink {
 public:
  virtual ~FileCommandSink() = default;
  virtual void Submit(FileCommands commands) = 0;
  // Every copy of the memory lane up to this one has ended. Never less than the call before.
  virtual void MemoryCopiesDone(Ticket completed) = 0;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_FILE_ORDERS_H_
