// Stamps slots with their content, on a thread of its own and without delaying the core.
#ifndef PAGODA_MANAGER_RESTART_SLOT_STAMPER_H_
#define PAGODA_MANAGER_RESTART_SLOT_STAMPER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "base/thread.h"
#include "manager/restart/content_digest.h"
#include "manager/restart/slot_stamps.h"
#include "manager/restart/stamp_set.h"
#include "manager/words/slot_journal.h"
#include "pools/order.h"
#include "pools/pool.h"
#include "pools/types.h"

namespace pagoda {

// Thread-safe; Apply has one caller at a time.
//
// 1. When an Apply that names a slot has returned, the slot's old stamp is invalid.
// 2. When a content's ticket has ended, the one worker thread stamps it: it computes the checksum
// of the slot's bytes, writes the stamp's body, and publishes the stamp. It stops if the slot was
// named again meanwhile.
// 3. A block is stamped only if the content of its parent was reported before, because a content's
// digest is made from its parent's.
//
// A content that waits for its copies delays no other.
class SlotStamper final : public SlotChangeSink {
 public:
  // The steps of the work on a slot. Tests end the process at one of them.
  enum class Step : uint8_t {
    kInvalidated,     // Inside Apply: the slot's stamp does not count any more.
    kBeforeChecksum,  // Before the checksum of the slot's bytes.
    kBodyWritten,     // The stamp's body is written, its checksum is not.
    kBeforePublish,
    kPublished,
  };
  static constexpr size_t kNumSteps = 5;

  struct Options {
    // Bound for all waiting changes together. Contents of a call that would exceed it are not
    // stamped, and cannot be recovered.
    uint64_t max_queued_bytes = 64 << 20;
    std::function<void(Step, uint32_t window_index, SlotRef)> at_step;  // May be empty.
  };

  struct Stats {
    uint64_t stamped = 0;   // Published.
    uint64_t kept = 0;      // Found with a valid stamp, or a hole's content.
    uint64_t outdated = 0;  // The slot was named again before it was stamped.
    uint64_t dropped = 0;   // The queue was full, or the content is larger than a stamp.
    uint64_t orphaned = 0;  // The parent's content was not reported.
    uint64_t pending = 0;   // Now: reported, and none of the above yet.
  };

  // `pools` and `stamps` outlive this.
  SlotStamper(PoolSet* pools, StampSet* stamps, Options options);
  SlotStamper(PoolSet* pools, StampSet* stamps) : SlotStamper(pools, stamps, Options{}) {}
  ~SlotStamper() override { Stop(); }

  // OK, or why the worker is missing (Thread::Start). Nothing may be applied then.
  const absl::Status& started() const { return started_; }

  // A found content keeps its stamp; the worker takes its digest from there. A change with kNoSlot
  // reports the content of a hole. Cost: an atomic store for each change, and one lock a call.
  void Apply(std::vector<SlotChange> changes) override ABSL_LOCKS_EXCLUDED(mutex_);
  void CopiesDone(Ticket completed) override ABSL_LOCKS_EXCLUDED(mutex_);

  // Waits until every reported content whose copies have ended is stamped.
  void Flush() ABSL_LOCKS_EXCLUDED(mutex_);
  // Ends the worker. Pending and later contents are not stamped any more, but Apply still
  // invalidates. A second call does nothing. REQUIRES: one caller at a time.
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);
  Stats stats() const;

 private:
  // The changes of one call.
  struct Batch {
    std::vector<SlotChange> changes;
    std::vector<SlotStamps::Version> versions;  // The slots' versions, index for index.
    uint64_t bytes = 0;                         // Its part of queued_bytes_, without the contents.
  };
  struct Item {
    SlotChange change;  // With content.
    SlotStamps::Version version = 0;
    uint64_t bytes = 0;            // Its part of queued_bytes_.
    ContentDigest parent, digest;  // Set once it is deferred.
  };
  struct Known {
    Generation generation;
    ContentDigest digest;
  };

  static uint64_t BytesOf(const SlotContent& content);
  // The slot's stamps; null for kNoSlot.
  SlotStamps* StampsOf(const SlotChange& change) const;
  // Invalidates the slot's stamp, unless it is the stamp of this found content. Returns the slot's
  // version.
  SlotStamps::Version Open(const SlotChange& change);

  void RunWorker() ABSL_LOCKS_EXCLUDED(mutex_);
  bool HasWorkOrEnds() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !queue_.empty() || next_deferred_ <= completed_ || stopping_;
  }
  bool Idle() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return queue_.empty() && next_deferred_ > completed_ && !working_;
  }
  // On the worker's thread.
  void Take(Batch batch, Ticket completed);
  void Take(Item item, Ticket completed);
  void TakeDeferred(Ticket completed);
  bool Learn(Item& item);
  bool LearnFromStamp(const Item& item);
  void Stamp(Item item);
  void Ended(const Item& item, std::atomic<uint64_t>& counter);
  void AtStep(Step step, const SlotChange& change) const {
    if (options_.at_step) options_.at_step(step, change.window_index, change.slot);
  }

  PoolSet* const pools_;
  StampSet* const stamps_;
  const Options options_;

  mutable absl::Mutex mutex_;  // A leaf: nothing is called under it.
  std::vector<Batch> queue_ ABSL_GUARDED_BY(mutex_);
  Ticket completed_ ABSL_GUARDED_BY(mutex_);
  Ticket next_deferred_ ABSL_GUARDED_BY(mutex_);  // First key of deferred_; kNever if empty.
  bool working_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;

  std::atomic<uint64_t> queued_bytes_ = 0;
  std::atomic<uint64_t> pending_ = 0;
  std::atomic<uint64_t> stamped_ = 0, kept_ = 0, outdated_ = 0, dropped_ = 0, orphaned_ = 0;
  std::atomic<bool> ends_ = false;  // A copy of stopping_ that is read without the lock.

  // Only the worker uses these.
  ContentDigester digester_;
  std::multimap<Ticket, Item> deferred_;  // By the ticket for which they wait.
  // By window and block: the block's last reported content. At most one entry for each id.
  std::vector<absl::flat_hash_map<BlockId, Known>> known_;

  absl::Status started_;
  Thread worker_;  // Last: it uses all of the above.
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_RESTART_SLOT_STAMPER_H_
