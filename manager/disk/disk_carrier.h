// Writes blocks to the files of a disk tier, reads them back and erases them, on the core's orders.
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
#include "pools/carrier.h"
#include "pools/pool.h"

namespace pagoda {

class DiskWindow;

// The carrier of Lane::kFetch and Lane::kBackup. Thread-safe.
//
// 1. A fetch is OK only if the memory slot has the bytes of the very write that the file's slot
// held when the fetch was submitted. The carrier survives every failure.
// 2. The completion runs without any lock of the carrier, on threads of the carrier and of the
// files' engines, and never within Submit. It may call Submit, MemoryCopiesDone and stats(), but
// not WaitUntilIdle or Stop.
// 3. Backups and erases of one window begin in the order of their tickets, and end in any order. An
// erase ends after the orders before it, and the backups behind it begin after that. Fetches begin
// in the order of the memory tickets that they wait for.
// 4. Content that an erase has been reported to have removed never comes back, whatever crashes
// later.
// 5. Each window and lane has its own thread, and backups leave places in the file's queue free. So
// a file that is stuck delays no other file, and a write that is stuck delays no fetch. An erase,
// which syncs, does delay the fetches of its file.
//
// Every status but OK has the code of a DiskError. After a failed fetch the memory slot's bytes are
// undefined. After a failed backup the file's slot has no block of the core's. After a failed erase
// the content that it names can come back after a restart; kEraseAll is the remedy.
class DiskCarrier final : public Carrier {
 public:
  // The progress of the work, for tests that end the process there.
  enum class Step : uint8_t {
    kBeforeWrite,
    kWriteStarted,  // The file has it.
    kWritten,       // Not yet reported.
    kBeforeErase,
    kErased,  // Not yet reported.
  };
  static constexpr size_t kNumSteps = 5;

  struct Options {
    // For each window, at least 1: how many blocks are on their way to the disk at once. The other
    // places of DiskFiles::Options::depth stay free for fetches.
    uint32_t max_running_backups = 16;
    std::function<void(Step, uint32_t window_index)> at_step;  // May be empty.
  };

  // `ledgers`: the content of each window's file, from RecoverDisk. `pools` outlives this. Starts
  // two threads for each window with a file.
  DiskCarrier(PoolSet* pools, std::unique_ptr<DiskFiles> files, std::vector<WriteLedger> ledgers,
              Options options, Completion completion);
  ~DiskCarrier() override;

  // OK, or why a thread is missing (Thread::Start). Nothing may be submitted then.
  absl::Status started() const;

  // Waits for no I/O. Cost: an erase takes a step for each slot that was dropped since the last
  // erase, and kEraseAll a step for each slot. REQUIRES: the windows have files; a backup has
  // content; Stop has not been called, but a completion that Stop waits for may still submit.
  void Submit(absl::Span<const Order> orders) override;
  void MemoryCopiesDone(Ticket completed) override;

  // Waits until every order is reported, and then until the blocks are durable. The memory copies
  // that orders wait for must end meanwhile. Errors: the first error of SlabFile::Sync.
  absl::Status WaitUntilIdle();
  // Turns off files that were unlinked or truncated (SlabFile::CheckPresent). Waits for no order.
  void CheckFiles();
  // Lets running I/O end, and reports waiting orders as Cancelled. Once it has returned, no
  // completion runs or will run. A second call does nothing. The destructor calls it. REQUIRES: one
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
