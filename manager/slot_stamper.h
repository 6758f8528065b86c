// Writes down what the slots hold, beside the core and behind its back.
#ifndef PAGODA_MANAGER_SLOT_STAMPER_H_
#define PAGODA_MANAGER_SLOT_STAMPER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "manager/content_digest.h"
#include "manager/slot_journal.h"
#include "manager/slot_stamps.h"
#include "manager/stamp_set.h"
#include "pools/copy_order.h"
#include "pools/pool.h"
#include "pools/types.h"

namespace pagoda {

// Thread-safe; Apply has one caller at a time.
//
// 1. A slot's stamp is invalid when the Apply that names the slot has returned.
// 2. A stamp is written when its ticket has ended, by the one worker thread: first the checksum of
// the slot's bytes, then the stamp's body, then it is published, unless the slot was named again
// meanwhile.
// 3. A block is stamped only if the content of its parent has been told before: the digest of a
// content is made from its parent's.
//
// A content that waits for its copies holds up no other.
class SlotStamper final : public SlotChangeSink {
 public:
  // Where the work on a slot stands, for tests that end the process there.
  enum class Step : uint8_t {
    kInvalidated,     // Inside Apply: the slot's stamp does not count any more.
    kBeforeChecksum,  // Of the slot's bytes.
    kBodyWritten,     // The stamp's body, and not yet its checksum.
    kBeforePublish,
    kPublished,
  };
  static constexpr size_t kNumSteps = 5;

  struct Options {
    // What waits, together. The contents of a call that comes above it are not stamped, and cannot
    // be recovered.
    uint64_t max_queued_bytes = 64 << 20;
    std::function<void(Step, uint32_t window_index, SlotRef)> at_step;  // May be empty.
  };

  struct Stats {
    uint64_t stamped = 0;   // Published.
    uint64_t kept = 0;      // Found, and stamped already; or of a hole.
    uint64_t outdated = 0;  // Named again before they were stamped.
    uint64_t dropped = 0;   // No room in the queue, or larger than a stamp may be.
    uint64_t orphaned = 0;  // The content of the parent was not told.
    uint64_t pending = 0;   // Now: told, and not yet one of the above.
  };

  // `pools` and `stamps` outlive this.
  SlotStamper(PoolSet* pools, StampSet* stamps, Options options);
  SlotStamper(PoolSet* pools, StampSet* stamps) : SlotStamper(pools, stamps, Options{}) {}
  ~SlotStamper() override { Stop(); }

  // A content that was found keeps its stamp, from which its digest is learnt. A change whose slot
  // is kNoSlot tells the content of a hole. Cost: an atomic store a change, and one lock a call.
  void Apply(std::vector<SlotChange> changes) override ABSL_LOCKS_EXCLUDED(mutex_);
  void CopiesDone(Ticket completed) override ABSL_LOCKS_EXCLUDED(mutex_);

  // Waits until everything told whose copies have ended is stamped.
  void Flush() ABSL_LOCKS_EXCLUDED(mutex_);
  // Ends the worker: what is pending or comes later is not stamped any more, but Apply still
  // invalidates. A second call does nothing. REQUIRES: one caller at a time.
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);
  Stats stats() const;

 private:
  // What one call told.
  struct Batch {
    std::vector<SlotChange> changes;
    std::vector<SlotStamps::Version> versions;  // Of the slots of these, index for index.
    uint64_t bytes = 0;                         // Of queued_bytes_, but for the contents.
  };
  struct Item {
    SlotChange change;  // With content.
    SlotStamps::Version version = 0;
    uint64_t bytes = 0;            // Of queued_bytes_.
    ContentDigest parent, digest;  // Once it is deferred.
  };
  struct Known {
    Generation generation;
    ContentDigest digest;
  };

  static uint64_t BytesOf(const SlotContent& content);
  // The slot's stamps; null for kNoSlot.
  SlotStamps* StampsOf(const SlotChange& change) const;
  // Makes the slot's stamp invalid, unless it is that of the content, which was found. Returns the
  // slot's version.
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
  Ticket next_deferred_ ABSL_GUARDED_BY(mutex_);  // The first of deferred_; kNever without any.
  bool working_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;

  std::atomic<uint64_t> queued_bytes_ = 0;
  std::atomic<uint64_t> pending_ = 0;
  std::atomic<uint64_t> stamped_ = 0, kept_ = 0, outdated_ = 0, dropped_ = 0, orphaned_ = 0;
  std::atomic<bool> ends_ = false;  // As stopping_, to be read without the lock.

  // Of the worker.
  ContentDigester digester_;
  std::multimap<Ticket, Item> deferred_;  // By the ticket they wait for.
  // By window and block: of its last life whose content was told. As many as there are ids.
  std::vector<absl::flat_hash_map<BlockId, Known>> known_;

  std::thread worker_;  // Last: it uses all of the above.
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_SLOT_STAMPER_H_
