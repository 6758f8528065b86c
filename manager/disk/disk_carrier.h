// Writes blocks to the files of a disk tier, reads them back and erases them, as the core orders
// it.
#ifndef PAGODA_MANAGER_DISK_DISK_CARRIER_H_
#define PAGODA_MANAGER_DISK_DISK_CARRIER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "manager/disk/disk_files.h"
#include "manager/disk/disk_stats.h"
#include "manager/disk/write_ledger.h"
#include "manager/file_orders.h"
#include "pools/pool.h"

namespace pagoda {

class DiskWindow;

// Thread-safe.
//
// 1. Every order and erase is reported exactly once, by its lane, its ticket and a status. A fetch
//    is OK only if the memory slot has the bytes of the very write that the file's slot held when
//    the fetch was submitted. Whatever fails, the carrier lives on.
// 2. The completion runs without any lock of the carrier, on threads of the carrier and of the
//    files' engines, and never within Submit. It may call Submit, MemoryCopiesDone and stats(), and
//    neither Drain nor Stop.
// 3. Backups and erases of one window begin in the order of their tickets, and end in any order. An
//    erase ends when the orders before it have, and the backups behind it begin after that. Fetches
//    begin in the order of the memory tickets that they wait for.
// 4. What an erase has been reported to have removed never comes back, whatever crashes later.
// 5. Each window and lane has a thread of its own, and backups leave places in the file's queue
//    free. So a file that is stuck holds up no other, and a write that is stuck no fetch; but an
//    erase, which syncs, does hold up the fetches of its file.
//
// The queues have no bound of their own, as those of Transfers.
class DiskCarrier final : public FileCommandSink {
 public:
  // Any status but OK has the code of a DiskError, and says of a fetch that the memory slot's bytes
  // are anything, of a backup that the file's slot has no block of the core's, and of an erase that
  // what it names may come back after a restart: the way out is an erase of kAll.
  using Completion = std::function<void(Lane lane, Ticket ticket, absl::Status status)>;

  // Where the work stands, for tests that end the process there.
  enum class Step : uint8_t {
    kBeforeWrite,
    kWriteStarted,  // The file has it.
    kWritten,       // And not yet reported.
    kBeforeErase,
    kErased,  // And not yet reported.
  };
  static constexpr size_t kNumSteps = 5;

  struct Options {
    // Of each window, at least 1: so many blocks are on their way to the disk at once. The other
    // places of DiskFiles::Options::depth stay free for fetches.
    uint32_t max_running_backups = 16;
    std::function<void(Step, uint32_t window_index)> at_step;  // May be empty.
  };

  // `ledgers`: what each window's file holds, from RecoverDisk. `pools` outlives this. Starts the
  // threads: two for each window with a file.
  DiskCarrier(PoolSet* pools, std::unique_ptr<DiskFiles> files, std::vector<WriteLedger> ledgers,
              Options options, Completion completion);
  ~DiskCarrier() override;

  // Takes orders. Waits for no I/O. Costs an erase the caller a step for each slot that was dropped
  // since the one before, and of kAll a step for each slot. REQUIRES: the windows have files; a
  // backup has content; within a window, tickets of a lane ascend from call to call; what FileOrder
  // and FileDrop say of slots. Stop has not been called, but a completion that it waits for may
  // still submit.
  void Submit(FileCommands commands) override;
  // Every copy of the memory lane up to this one has ended. Never less than the call before.
  void MemoryCopiesDone(Ticket completed) override;

  // Waits until every order is reported, and then until the blocks are durable. The memory copies
  // that orders wait for must end meanwhile. Errors: the first of those of SlabFile::Sync.
  absl::Status WaitUntilIdle();
  // Lets what the disks do end, and reports what waits as Cancelled. When it has returned no
  // completion runs or will. A second call does nothing; the destructor calls it. REQUIRES: one
  // caller at a time.
  void Stop();
  DiskStats stats() const;

 private:
  DiskWindow& window(uint32_t window_index) const;

  const Options options_;
  const Completion completion_;
  const std::unique_ptr<DiskFiles> files_;
  std::vector<std::unique_ptr<DiskWindow>> windows_;  // By window; null without a file.
  std::atomic<bool> stopped_ = false;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_DISK_DISK_CARRIER_H_
