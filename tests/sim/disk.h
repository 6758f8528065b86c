// The files of a cache's tier on disk, one a window, and the carrier that reads and writes them:
// what DiskCarrier and SlabFile are to a real cache (manager/disk/README.md).
#ifndef PAGODA_TESTS_SIM_DISK_H_
#define PAGODA_TESTS_SIM_DISK_H_

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "manager/file_orders.h"
#include "manager/recovered_block.h"
#include "pools/copy_order.h"
#include "tests/sim/config.h"
#include "tests/sim/content.h"
#include "tests/sim/memory.h"
#include "tests/sim/random.h"

namespace pagoda::sim {

// Numbers the writes of a file: 0 is none.
using WriteNumber = uint64_t;

// The commands of one window and lane begin in their order. They read and write memory, and the
// file, at some moments between their beginning and their end, and end in any order. An erase is a
// barrier of its lane: it begins when all before it have ended.
//
// A block is named by its write, and names its parent's. A slot that was dropped, that a failed
// backup may have written, or that was not taken back at a start is stale: an erase empties it,
// too.
class Disk {
 public:
  explicit Disk(const SimConfig* config);

  // What a slot of a file holds.
  struct Written {
    WriteNumber write = 0;
    WriteNumber parent = 0;
    SlotContent content;
    uint32_t name_space = 0;
    std::vector<Value> path;  // Of the tokens of the blocks above it, then its own.
    std::array<Value, kMaxTokensPerBlock> bytes = {};
    // Tickets of the erases after which it may not come back.
    std::vector<Ticket> condemned;

    uint32_t tokens_per_block = 0;
    uint32_t count() const {
      return content.keyed ? tokens_per_block : static_cast<uint32_t>(content.tokens.size());
    }
  };

  // `name_space` and `path` are those of the block's content.
  void Backup(const FileOrder& order, uint32_t name_space, std::vector<Value> path);
  void Fetch(const FileOrder& order);
  void Erase(const FileErase& erase);
  void Drop(const FileDrop& drop);

  // Begins some commands that may begin.
  void BeginSome(Random& random, uint32_t percent, Memory& memory);
  // Ends a command that has begun, or begins one and ends it.
  struct Ended {
    Lane lane = Lane::kBackup;
    Ticket ticket;
    uint32_t window = 0;
    bool is_erase = false;
    SlotIndex file = kNoSlot;
    absl::Status status;
  };
  std::optional<Ended> EndOne(Random& random, Memory& memory);
  size_t pending() const { return commands_.size(); }

  // Everything that is written, or is about to be, and whose path begins with `prefix` may not come
  // back once the erase is reported; of nothing, everything of the window.
  struct Prefix {
    uint32_t name_space = 0;
    std::vector<Value> values;
  };
  void Condemn(uint32_t window, const std::optional<Prefix>& prefix, Ticket erase);

  // The erase was given up: what it was to remove may come back.
  void Pardon(uint32_t window, Ticket erase);

  // The daemon dies: what is being written is there, or is not, or is what was there before.
  void Crash(Random& random);
  // What another run finds: blocks whose parents are there, in the order of their writes. Of two
  // with one content the later one, with the children of both.
  std::vector<RecoveredWindow> Recover();
  // The slot is not the core's.
  void NotTakenBack(uint32_t window, SlotIndex slot) { At(window, slot).core_write = 0; }

  // Stops the run where a slot holds what is to be gone by now. `completed`: of the backup lane.
  void CheckErased(uint32_t window, Ticket completed) const;

  const Written& written(uint32_t window, SlotIndex slot) const { return At(window, slot).now; }
  // Whether the core's block is there.
  bool HoldsOf(uint32_t window, SlotIndex slot) const {
    const Slot& at = At(window, slot);
    return at.core_write != 0 && at.core_write == at.now.write;
  }
  // The write that the core knows there.
  WriteNumber core_write(uint32_t window, SlotIndex slot) const {
    return At(window, slot).core_write;
  }

 private:
  struct Slot {
    Written now;
    // The block that the core has there, or has ordered there; 0: none. Then what is there is
    // stale.
    WriteNumber core_write = 0;
  };
  struct Command {
    enum class Kind : uint8_t { kBackup, kFetch, kErase } kind = Kind::kBackup;
    Ticket ticket;
    uint32_t window = 0;
    SlotRef memory;
    SlotIndex file = kNoSlot;
    Ticket after;
    Written block;          // Of a backup: what is to be there.
    WriteNumber write = 0;  // Of a fetch: the block that it expects.
    // Of an erase: the slots that it names, those that were stale when it came, and those of
    // backups before it that have failed since.
    std::vector<SlotIndex> slots;
    bool begun = false;
    bool early = false;  // It touches memory at its beginning, else at its end.
    bool fails = false;  // Of an erase: some of it is done.

    Lane lane() const { return kind == Kind::kFetch ? Lane::kFetch : Lane::kBackup; }
  };

  Slot& At(uint32_t window, SlotIndex slot) { return slots_[window].at(slot.value()); }
  const Slot& At(uint32_t window, SlotIndex slot) const { return slots_[window].at(slot.value()); }
  bool MayBegin(size_t index, const Memory& memory) const;
  void Begin(Command& command, Random& random, Memory& memory);
  void Empty(const Command& erase, Random& random);
  void Read(const Command& fetch, Memory& memory) const;
  absl::Status EndBackup(Command& backup, Random& random, Memory& memory);
  absl::Status EndFetch(Command& fetch, Random& random, Memory& memory);

  const SimConfig* const config_;
  std::array<std::vector<Slot>, kMaxWindows> slots_;
  std::vector<Command> commands_;  // Not reported, in the order in which they came.
  WriteNumber last_write_ = 0;
};

}  // namespace pagoda::sim

#endif  // PAGODA_TESTS_SIM_DISK_H_
