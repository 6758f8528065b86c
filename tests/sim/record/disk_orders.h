// The disk orders of one core that are under way, known from its orders and from the reports, and
// the rules for them.
#ifndef PAGODA_TESTS_SIM_RECORD_DISK_ORDERS_H_
#define PAGODA_TESTS_SIM_RECORD_DISK_ORDERS_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <list>
#include <optional>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "manager/api/stats.h"
#include "pools/order.h"
#include "tests/sim/words/config.h"

namespace pagoda::sim {

class DiskOrders {
 public:
  explicit DiskOrders(const SimConfig* config);

  // A block on its way to disk, from the order of its copy to a staging slot on.
  struct Backup {
    uint32_t window = 0;
    uint32_t id = 0;
    SlotIndex staging;
    Ticket copy;
    bool copied = false, failed = false;  // The copy has succeeded; has failed.
    bool left = false;                    // The block has left the tree since.
    Ticket ticket;                        // 0: the carrier has no order for it yet.
    SlotIndex file = kNoSlot;             // Set when the backup is ordered.
  };
  // A block on its way from disk.
  struct Fetch {
    Ticket ticket;
    uint32_t id = 0;
    SlotIndex file;
    SlotIndex memory;
    Ticket after;
    enum class State : uint8_t { kRunning, kRead, kFailed } state = State::kRunning;
    bool given_up = false;
    bool left = false;  // The block has left the tree since.
  };
  // The fetches of one call: the blocks become usable in order.
  struct Job {
    uint32_t window = 0;
    absl::Time deadline;
    std::deque<Fetch> fetches;
  };

  // --- Orders of the core ---

  // A copy to a staging slot.
  void Stage(uint32_t window, uint32_t id, SlotIndex staging, Ticket copy, absl::Time now);
  // The carrier gets the backup whose copy filled that slot.
  Backup& Submit(const Order& order);
  void AddFetch(const Order& order, uint32_t id, absl::Time deadline);
  // If an erase that failed is to be tried again, this is the next try.
  void AddErase(const Order& erase);
  // All orders of a call are there. The next fetches belong to another job.
  void EndCall() { jobs_open_.fill(false); }

  // --- Reports and other events ---

  // A copy has ended. Returns the window if it was a copy to a staging slot.
  std::optional<uint32_t> CopyEnded(Ticket copy, bool ok);
  // Called after the core heard of that. Returns and forgets the first backup that was to be
  // ordered or given up and was not ordered. Nothing if there is none.
  std::optional<Backup> TakeDropped(uint32_t window);
  // A ticket of the backup lane has ended.
  Backup BackupEnded(Ticket ticket, const absl::Status& status);
  // An erase is over, is to be tried again, or is given up after several tries.
  enum class EraseEnd : uint8_t { kDone, kTryAgain, kGivenUp };
  struct EndedErase {
    EraseEnd end = EraseEnd::kDone;
    std::vector<Ticket> tickets;  // The tickets of all its tries.
  };
  EndedErase EraseEnded(Ticket ticket, const absl::Status& status);
  // Whether each erase that must be tried again was ordered again.
  bool AllTriedAgain() const {
    return std::none_of(erases_.begin(), erases_.end(),
                        [](const Erase& erase) { return erase.is_due; });
  }
  // Marks a fetch as ended. Returns its job.
  Job& FetchEnded(Ticket ticket, const absl::Status& status);
  // Removes ended fetches from the beginning of the job. `comes_up` says, for a fetch that was read
  // and not given up, whether it becomes a block. If not, the fetches behind it are given up too,
  // unless `is_in_memory` says that the block came into memory in another way.
  template <class ComesUp, class IsInMemory>
  void Advance(Job& job, const ComesUp& comes_up, const IsInMemory& is_in_memory);
  static void GiveUp(Job& job, size_t from) {
    for (size_t i = from; i < job.fetches.size(); ++i) job.fetches[i].given_up = true;
  }
  // Gives up the fetches whose deadline has passed. Returns whether there were any.
  bool Expire(absl::Time now);
  void CloseJobs() {
    std::erase_if(jobs_, [](const Job& job) { return job.fetches.empty(); });
  }
  // The block has left the tree of that window.
  void BlockLeft(uint32_t window, uint32_t id);
  void AllLeft(uint32_t window);

  // --- Queries ---

  const std::vector<Backup>& backups() const { return backups_; }
  const std::list<Job>& jobs() const { return jobs_; }
  // The backup of the block that is under way, if any.
  const Backup* BackupOf(uint32_t window, uint32_t id) const;
  // The fetch of the block that is under way and not given up, if any.
  const Fetch* FetchOf(uint32_t window, uint32_t id) const;
  bool IsRead(uint32_t window, SlotIndex file) const { return At(window, file).reads != 0; }
  // Something besides the slot's block uses the file slot: nothing may be written there.
  bool IsBusy(uint32_t window, SlotIndex file) const;
  // File slots that belong to no block and are not free, except for those in `owned` (by slot).
  uint32_t InFlight(uint32_t window, const std::vector<bool>& owned) const;
  uint32_t retired(uint32_t window) const { return stats_[window].retired_slots; }
  // Whether a backup or a fetch has the memory slot. Fetches that wait for `copy` do not count.
  bool InTransit(uint32_t window, SlotRef memory, Ticket copy = Ticket{}) const;
  uint32_t fetching(uint32_t window) const;
  Ticket completed(Lane lane) const;
  Ticket last(Lane lane) const { return lane == Lane::kFetch ? last_fetch_ : last_backup_; }
  bool MayOrderBackups(uint32_t window) const {
    return resets_[window] == 0 && write_errors_[window] < kMaxWriteErrors;
  }
  bool HasFreeStaging(uint32_t window) const;
  DiskTierStats& stats(uint32_t window) { return stats_[window]; }
  // Stops the run if the core's counts differ.
  void CheckStats(uint32_t window, const DiskTierStats& told) const;

 private:
  static constexpr uint32_t kMaxWriteErrors = 8;
  static constexpr size_t kMaxEraseTries = 8;

  struct Erase {
    Order erase;  // The last try.
    std::vector<Ticket> tickets;
    bool is_due = false;  // It must be tried again.
  };

  struct Slot {
    uint32_t reads = 0;
    uint32_t erases = 0;
    bool writing = false;
    bool retired = false;
  };
  struct Spent {
    Ticket copy;
    absl::Time time;
    uint64_t bytes = 0;
  };

  Slot& At(uint32_t window, SlotIndex slot) { return slots_[window].at(slot.value()); }
  const Slot& At(uint32_t window, SlotIndex slot) const { return slots_[window].at(slot.value()); }
  void Spend(const Spent& spent);
  void TakeTicket(Lane lane, Ticket ticket);

  const SimConfig* config_;
  std::array<uint64_t, kMaxWindows> block_bytes_ = {};
  std::array<std::vector<Slot>, kMaxWindows> slots_;
  std::vector<Backup> backups_;  // In the order of their copies.
  std::list<Job> jobs_;
  std::array<bool, kMaxWindows> jobs_open_ = {};  // The last job is of this call.
  std::vector<Erase> erases_;
  std::array<uint32_t, kMaxWindows> resets_ = {};
  std::array<uint32_t, kMaxWindows> write_errors_ = {};  // In a row.
  Ticket last_backup_, last_fetch_;
  std::set<Ticket> open_backups_;  // Erases, too.
  std::deque<Spent> spent_;
  std::array<DiskTierStats, kMaxWindows> stats_ = {};
};

template <class ComesUp, class IsInMemory>
void DiskOrders::Advance(Job& job, const ComesUp& comes_up, const IsInMemory& is_in_memory) {
  for (size_t i = 0; i < job.fetches.size();) {
    Fetch& fetch = job.fetches[i];
    if (fetch.state == Fetch::State::kRunning) {
      if (!fetch.given_up) return;
      ++i;
      continue;
    }
    bool is_up = false;
    if (fetch.state == Fetch::State::kRead && !fetch.given_up) {
      is_up = comes_up(fetch);
      if (!is_up && !is_in_memory(fetch)) GiveUp(job, i);
    }
    if (is_up) {
      ++stats_[job.window].fetches;
    } else if (fetch.state == Fetch::State::kRead) {
      ++stats_[job.window].late_fetches;
    }
    job.fetches.erase(job.fetches.begin() + static_cast<ptrdiff_t>(i));
  }
}

}  // namespace pagoda::sim

#endif  // PAGODA_TESTS_SIM_RECORD_DISK_ORDERS_H_
