// The core's orders for the carrier of a disk tier: blocks to write, blocks to read, slots to
// erase. The core touches no file; the carrier decides nothing.
#ifndef PAGODA_MANAGER_WORDS_FILE_ORDERS_H_
#define PAGODA_MANAGER_WORDS_FILE_ORDERS_H_

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "manager/words/slot_journal.h"
#include "pools/copy_order.h"
#include "pools/types.h"

namespace pagoda {

// A block moves from a memory slot to a slot of the window's file (kBackup), or back (kFetch).
//
// Until the order is reported done, neither slot is handed out and no byte of the block changes. So
// two orders never touch the same slot of the file at once, except for two fetches.
struct FileOrder {
  Lane lane = Lane::kBackup;
  Ticket ticket;  // The order's ticket in `lane`.
  uint32_t window_index = 0;
  SlotRef memory;  // Source of a backup, target of a fetch.
  SlotRef file;    // Target of a backup, source of a fetch.
  // A ticket of the memory lane: the order begins after the copies up to it that touch `memory`
  // have ended. 0: it waits for nothing.
  Ticket after;
  // For a backup. The content's `parent` is the block above, whose copy lies in `parent_file` of
  // the same file, or is ordered there by an earlier ticket. kNoSlot: the block is the first of its
  // namespace.
  std::optional<SlotContent> content;
  SlotIndex parent_file = kNoSlot;
};

// Blocks of a window's file that must not come back after a restart. Reported done, like a backup,
// when that is durable. The core hands the slots out again only then.
struct FileErase {
  enum class What : uint8_t {
    kSlots,  // `slots`, and every slot that can hold a block that is not the core's: dropped
             // (FileDrop), left by a failed backup, or not taken back at the start.
    kAll,
  };
  Ticket ticket;  // The ticket of the erase in the backup lane.
  uint32_t window_index = 0;
  What what = What::kSlots;
  std::vector<SlotIndex> slots;
};

// The core gives up a slot of a window's file without erasing it. It can hand the slot out again at
// once. The slot's content can come back after a restart unless an erase comes first. REQUIRES: the
// slot has no unreported order.
struct FileDrop {
  uint32_t window_index = 0;
  SlotIndex slot;
};

// A command of the core to the carrier, in the order of the core's calls.
using FileCommand = std::variant<FileOrder, FileErase, FileDrop>;
using FileCommands = std::vector<FileCommand>;

// Carries the commands out: see DiskCarrier. Called under the core's lock, in order, so it must not
// block.
class FileCommandSink {
 public:
  virtual ~FileCommandSink() = default;
  virtual void Submit(FileCommands commands) = 0;
  // Every copy of the memory lane up to `completed` has ended. `completed` never decreases.
  virtual void MemoryCopiesDone(Ticket completed) = 0;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_WORDS_FILE_ORDERS_H_
