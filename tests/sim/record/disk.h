// The files of a cache's tier on disk, one for each window, and the carrier that reads and writes
// them. They stand for DiskCarrier and SlabFile (manager/disk/README.md).
#ifndef PAGODA_TESTS_SIM_RECORD_DISK_H_
#define PAGODA_TESTS_SIM_RECORD_DISK_H_

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "manager/words/recovered_block.h"
#include "pools/order.h"
#include "tests/sim/record/memory.h"
#include "tests/sim/words/config.h"
#include "tests/sim/words/content.h"
#include "tests/sim/words/random.h"

namespace pagoda::sim {

// Numbers the writes of a file: 0 is none.
using WriteNumber = uint64_t;

// The commands of one window and lane begin in their order. They read and write memory and the file
// at some moments between their beginning and their end. They end in any order. An erase is a
// barrier in its lane: it begins when all commands before it have ended.
//
// A block is named by its write, and names its parent's write. A slot is stale if it was dropped,
// if a failed backup may have written it, or if a start did not take it back. An erase empties
// stale slots too.
class Disk {
 public:
  explicit Disk(const SimConfig* config);

  // The content of a file slot.
  struct Written {
    WriteNumber write = 0;
    WriteNumber parent = 0;
    SlotContent content;
    uint32_t name_space = 0;
    std::vector<Value> path;  // The values of the tokens of the blocks above it, then of its own.
    std::array<Value, kMaxTokensPerBlock> bytes = {};
    // Tickets of the erases after which it must not come back.
    std::vector<Ticket> condemned;

    uint32_t tokens_per_block = 0;
    uint32_t count() const {
      return content.keyed ? tokens_per_block : static_cast<uint32_t>(content.tokens.size());
    }
  };

  // `name_space` and `path` are those of the block's content.
  void Backup(const Order& order, uint32_t name_space, std::vector<Value> path);
  void Fetch(const Order& order);
  void Erase(const Order& erase);
  void Drop(const Order& drop);

  // Begins some of the commands that can begin.
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

  // Content that is written, or about to be, and whose path begins with `prefix` must not come back
  // once the erase is reported. An empty prefix means all content of the window.
  struct Prefix {
    uint32_t name_space = 0;
    std::vector<Value> values;
  };
  void Condemn(uint32_t window, const std::optional<Prefix>& prefix, Ticket erase);

  // The erase was given up: its content may come back.
  void Pardon(uint32_t window, Ticket erase);

  // The daemon dies. Each write that is under way is done, is not done, or has left the old
  // content.
  void Crash(Random& random);
  // The blocks that another run finds: those whose parents are there, in the order of their writes.
  // If two blocks have the same content, it finds the later one, with the children of both.
  std::vector<RecoveredWindow> Recover();
  // The slot does not belong to the core.
  void NotTakenBack(uint32_t window, SlotIndex slot) { At(window, slot).core_write = 0; }

  // Stops the run if a slot still holds content that must be gone. `completed`: of the backup lane.
  void CheckErased(uint32_t window, Ticket completed) const;

  const Written& written(uint32_t window, SlotIndex slot) const { return At(window, slot).now; }
  // Whether the core's block is there.
  bool HoldsOf(uint32_t window, SlotIndex slot) const {
    const Slot& at = At(window, slot);
    return at.core_write != 0 && at.core_write == at.now.write;
  }
  // The write that the core knows in the slot.
  WriteNumber core_write(uint32_t window, SlotIndex slot) const {
    return At(window, slot).core_write;
  }

 private:
  struct Slot {
    Written now;
    // The block that the core has in the slot, or has ordered to be written there. 0: none; then
    // the slot's content is stale.
    WriteNumber core_write = 0;
  };
  struct Command {
    enum class Kind : uint8_t { kBackup, kFetch, kErase } kind = Kind::kBackup;
    Ticket ticket;
    uint32_t window = 0;
    SlotRef memory;
    SlotIndex file = kNoSlot;
    Ticket after;
    Written block;          // For a backup: the content to be written.
    WriteNumber write = 0;  // For a fetch: the block that it expects.
    // For an erase: the slots that it names, the slots that were stale when it came, and the slots
    // of earlier backups that have failed since.
    std::vector<SlotIndex> slots;
    bool begun = false;
    bool early = false;  // It touches memory at its beginning, not at its end.
    bool fails = false;  // An erase that fails is done in part.

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
  std::vector<Command> commands_;  // Not reported yet, in the order of arrival.
  WriteNumber last_write_ = 0;
};

}  // namespace pagoda::sim

#endif  // PAGODA_TESTS_SIM_RECORD_DISK_H_
