// One window's part of a DiskCarrier: its file, its two queues and their threads.
#ifndef PAGODA_MANAGER_DISK_DISK_WINDOW_H_
#define PAGODA_MANAGER_DISK_DISK_WINDOW_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "base/thread.h"
#include "manager/disk/disk_carrier.h"

namespace pagoda {

// Thread-safe.
//
// The ledger is ahead of the file: it shows the file's content after everything that was submitted
// has ended. So a backup knows its parent's write before that write has begun.
class DiskWindow {
 public:
  // REQUIRES: all arguments outlive this.
  DiskWindow(PoolSet* pools, uint32_t window_index, SlabFile* file, WriteLedger ledger,
             const DiskCarrier::Options* options, const DiskCarrier::Completion* completion);
  ~DiskWindow() { StopThreads(); }

  // OK, or why a thread is missing (Thread::Start). Nothing may be submitted then.
  const absl::Status& started() const { return started_; }

  void Submit(const Order& order) ABSL_LOCKS_EXCLUDED(mutex_);
  void MemoryCopiesDone(Ticket completed) ABSL_LOCKS_EXCLUDED(mutex_);
  void WaitUntilIdle() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Sync() { return file_->Sync(); }
  void CheckPresent() { file_->CheckPresent(); }
  // Lets running work end, and reports the orders that the file has not begun. Afterwards nothing
  // begins.
  void StopThreads() ABSL_LOCKS_EXCLUDED(mutex_);
  // Reports waiting orders as Cancelled. Returns whether there were any. REQUIRES: StopThreads.
  bool CancelWaiting() ABSL_LOCKS_EXCLUDED(mutex_);
  DiskStats::Window stats() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  enum class Kind : uint8_t { kBackup, kFetch, kErase, kReset };
  // The part of an order that is kept while the file works on it.
  struct Head {
    Kind kind = Kind::kBackup;
    Ticket ticket;
    SlotIndex slot;               // In the file; not set for an erase.
    WriteId write_id = kNoWrite;  // The write of a backup, or the write that a fetch reads.
    uint64_t num_erased = 0;      // The slots of an erase.
    std::chrono::steady_clock::time_point given;
  };
  struct Item {
    Head head;
    absl::Status refused;  // The reason why it cannot be carried out.
    SlotRef memory;
    Ticket after;
    WriteId parent = kNoWrite;
    std::shared_ptr<const SlotContent> content;  // The order's.
    std::vector<SlotIndex> erased;
  };

  absl::Status CheckMove(const Order& order) const;
  absl::Status CheckErase(const Order& order) const;
  void TakeTicket(Ticket ticket, Ticket& last) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Enters an order into the ledger, and its item into a queue.
  void AddBackup(const Order& order, Item item) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AddFetch(const Order& order, Item item) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AddErase(const Order& order, Item item) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  void RunBackups() ABSL_LOCKS_EXCLUDED(mutex_);
  void RunFetches() ABSL_LOCKS_EXCLUDED(mutex_);
  bool HasBackup() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool HasBackupOrEnds() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return stopping_ || HasBackup();
  }
  bool HasFetchOrEnds() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return stopping_ || (!fetches_.empty() && fetches_.begin()->first <= memory_done_);
  }
  bool IsIdle() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return backups_.empty() && fetches_.empty() && running_ == 0;
  }

  // These end with a report, at once or on a thread of the file.
  void Write(const Item& item);
  void Read(const Item& item);
  void Erase(Item item);
  // Report a status: EndFile one of the file, End any.
  void EndFile(const Head& head, const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);
  void End(const Head& head, absl::Status status) ABSL_LOCKS_EXCLUDED(mutex_);
  void Count(const Head& head, const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string Describe(const Head& head) const;
  template <class Byte>
  std::vector<absl::Span<Byte>> PiecesOf(SlotRef memory) const;
  void AtStep(DiskCarrier::Step step) const {
    if (options_->at_step) options_->at_step(step, window_index_);
  }

  PoolSet* const pools_;
  const uint32_t window_index_;
  const uint64_t block_bytes_;
  SlabFile* const file_;
  const DiskCarrier::Options* const options_;
  const DiskCarrier::Completion* const completion_;

  mutable absl::Mutex mutex_;  // A leaf: it is held around no call to other code.
  WriteLedger ledger_ ABSL_GUARDED_BY(mutex_);
  std::deque<Item> backups_ ABSL_GUARDED_BY(mutex_);             // By ticket.
  std::multimap<Ticket, Item> fetches_ ABSL_GUARDED_BY(mutex_);  // By Item::after.
  Ticket memory_done_ ABSL_GUARDED_BY(mutex_);
  Ticket last_backup_ ABSL_GUARDED_BY(mutex_);  // The last one submitted.
  Ticket last_fetch_ ABSL_GUARDED_BY(mutex_);
  size_t running_ ABSL_GUARDED_BY(mutex_) = 0;          // Taken from a queue, and not reported.
  size_t running_backups_ ABSL_GUARDED_BY(mutex_) = 0;  // Without erases.
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  DiskStats::Window stats_ ABSL_GUARDED_BY(mutex_);  // The counters since the start.

  absl::Status started_;
  Thread backup_thread_, fetch_thread_;  // Last: they use all of the above.
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_DISK_DISK_WINDOW_H_
