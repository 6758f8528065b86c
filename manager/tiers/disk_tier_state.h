// The state of a tier on disk: its backups, fetches and erases under way.
#ifndef PAGODA_MANAGER_TIERS_DISK_TIER_STATE_H_
#define PAGODA_MANAGER_TIERS_DISK_TIER_STATE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "base/big_array.h"
#include "manager/api/stats.h"
#include "manager/tiers/backup_queue.h"
#include "manager/words/file_orders.h"
#include "manager/words/ids.h"
#include "pools/types.h"

namespace pagoda {

// TierResidency keeps it, with its invariants (tier_disk.cc, tier_fetches.cc).
struct DiskTierState {
  // A block that is being written to disk.
  struct Backup {
    BlockRef block;
    SlotIndex file;
    SlotIndex staging;
    Ticket copy;             // The copy in the memory lane that fills the staging slot.
    Ticket ticket;           // 0: the carrier has no order for it yet.
    bool filled = false;     // The copy succeeded.
    bool failed = false;     // The copy failed.
    bool abandoned = false;  // The block left the tree.
    bool erased = false;     // Abandoned, and an erase was ordered for it.
  };
  // A block that is being read from disk.
  struct Fetched {
    Ticket ticket;
    BlockRef block;
    SlotIndex file;
    SlotIndex memory;
    enum class State : uint8_t { kRunning, kRead, kFailed } state = State::kRunning;
    bool given_up = false;
  };
  // The fetches of one call. The blocks become usable in this order.
  struct FetchJob {
    absl::Time deadline;
    std::deque<Fetched> blocks;
  };
  // The uses of a file slot by fetches and erases. Backups are not counted here.
  struct FileUse {
    uint32_t reads = 0;
    uint32_t erases = 0;
    bool orphaned = false;  // Its block has left it. It becomes free when nothing touches it.
    bool dropped = false;   // Orphaned, and the carrier has to be told.
    bool retired = false;   // Its write failed: it is not used again.
  };
  size_t tier = kMaxTiers;   // kMaxTiers: there is none.
  size_t above = kMaxTiers;  // The tier that the staging slots are in.
  // By block id. `children`: child blocks with a copy on disk or a backup under way.
  struct Entry {
    uint32_t children : 29 = 0;
    uint32_t queued : 1 = 0;
    uint32_t queued_uses : 2 = 0;  // Block::uses when it was last queued.
  };
  BigArray<Entry> entries;
  std::vector<bool> listed;  // By slot: a candidate of its owner's policy.
  BackupQueue queue;
  std::vector<SlotIndex> staging;  // The free ones.
  std::deque<Backup> backups;      // In the order of their orders.
  BlockId ordering = kNoBlock;     // The block for whose backup a slot is being freed.
  std::list<FetchJob> jobs;
  uint32_t fetching = 0;  // Memory slots that fetches have taken.
  absl::flat_hash_map<SlotIndex, FileUse> uses;
  std::vector<SlotIndex> to_erase;
  struct Erasing {
    FileErase::What what = FileErase::What::kSlots;
    std::vector<SlotIndex> slots;
    // Closed when it ends: its own ticket and those of its earlier tries.
    std::vector<Ticket> tickets;
  };
  absl::flat_hash_map<Ticket, Erasing> erasing;
  uint32_t resets = 0;        // Erases of kAll that are under way.
  uint32_t write_errors = 0;  // In a row.
  DiskTierStats stats;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_TIERS_DISK_TIER_STATE_H_
