// The core with its lock, its clock and its event log. The threads of a process share it.
#ifndef PAGODA_MANAGER_SHARED_MANAGER_H_
#define PAGODA_MANAGER_SHARED_MANAGER_H_

#include <array>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/fair_mutex.h"
#include "events/event_log.h"
#include "manager/api/cache_client.h"
#include "manager/block_manager.h"
#include "manager/tree/prefix_uses.h"
#include "manager/words/lists.h"
#include "manager/words/publishable_prefix.h"
#include "pools/carrier.h"
#include "pools/order.h"
#include "pools/pool.h"

namespace pagoda {

class TenantTable;  // manager/accounts/tenants.h

// Thread-safe. Takes its lock once for each batch. Between two operations of a long batch it lets
// other threads in. Events reach the log before the batch's answer reaches the caller.
class SharedManager {
 public:
  using Clock = std::function<absl::Time()>;
  using TokenSource = std::function<SessionToken()>;
  static constexpr absl::Duration kLockTurn = absl::Microseconds(50);

  // The wall clock's time at the process's first call, plus the time that a steady clock has
  // counted since. People can read it, and a jump of the system clock neither ends leases nor
  // prolongs them.
  static absl::Time Now();
  // 128 bits from the system's generator. Earlier tokens tell nothing about them.
  static SessionToken DrawToken();

  // `log` outlives the manager. The manager calls `tokens` once for each session that it opens,
  // without the lock and on several threads at once.
  SharedManager(std::unique_ptr<BlockManager> core, EventLog* log, Clock clock = Now,
                TokenSource tokens = DrawToken);

  // `carrier` carries out the orders of these lanes from now on. It calls Complete for each, on a
  // thread of its own. It outlives the manager's last call, or the owner takes it away with
  // nullptr. Without a carrier the orders of kMemory succeed at once, which is for a cache without
  // memory, and those of the other lanes are cancelled.
  void SetCarrier(std::initializer_list<Lane> lanes, Carrier* carrier);
  // `sink` writes down which slots get or lose content, from now on. It hears of a change before a
  // copy begins and before any caller is answered. Earlier changes are told at once. Lifetime as
  // for SetCarrier.
  void SetSlotSink(SlotChangeSink* sink);
  // An order has ended; see BlockManager::Complete.
  void Complete(Lane lane, Ticket ticket, const absl::Status& status);
  // Calls `done` once, without a lock, when everything in the lane up to `ticket` has ended. If it
  // has ended already, calls `done` at once on the caller's thread. `done` does not block, and owns
  // all that it touches.
  void NotifyWhenDone(Lane lane, Ticket ticket, std::function<void()> done);
  void NotifyWhenDone(Ticket ticket, std::function<void()> done) {
    NotifyWhenDone(Lane::kMemory, ticket, std::move(done));
  }

  // Runs `fn(const BlockManager&)` under the lock and returns its result by value. `fn` can be a
  // const method: Read(&BlockManager::Stats). All that one `fn` reads is of the same moment, and
  // the log has the events up to it. `fn` does a bounded amount of work, does not block, and calls
  // nothing of this class but now(). Its result refers to nothing of the core. Copy what you need,
  // and convert it after the call.
  template <class Fn>
  auto Read(Fn&& fn) const {
    FairMutexLock lock(&mutex_);
    return std::invoke(std::forward<Fn>(fn), std::as_const(*core_));
  }
  // The clock's time.
  absl::Time now() const { return clock_(); }

  // These methods call those of the same name in BlockManager and SessionEndings, with the clock's
  // time.
  absl::StatusOr<BlockManager::OpenedSession> OpenSession(std::string client_name,
                                                          absl::Duration lease,
                                                          TenantId tenant = kDefaultTenant);
  // The tenant of an open session. Errors: those of BlockManager::CheckSession.
  absl::StatusOr<TenantId> TenantOf(SessionRef session) const;
  absl::Status NoteWriter(SessionRef session);
  void NoteWriterGone(SessionId session);
  absl::Status EndSession(SessionId session);
  // Whether the session is open or still has blocks (quarantined ones count).
  bool Remembers(SessionRef session) const { return Remembers({&session, 1}).front(); }
  // The same for each session, under one hold of the lock.
  std::vector<bool> Remembers(absl::Span<const SessionRef> sessions) const;
  // All of them, ascending. Reads kQuarantinePiece sessions at a time and releases the lock in
  // between. A session that changes meanwhile appears in its old or its new state.
  std::vector<SessionId> QuarantinedSessions() const;
  static constexpr size_t kQuarantinePiece = 1024;
  absl::StatusOr<uint32_t> ReleaseQuarantine(SessionId session);
  absl::StatusOr<absl::Duration> KeepAlive(SessionRef session);
  absl::Status AttachStream(SessionRef session);
  void DetachStream(SessionId session);
  absl::Status CloseSession(SessionRef session);
  // Call this at short intervals. A lease runs for at most `most` between two calls. If the clock
  // shows more, the process stood still, for example in the migration of a virtual machine, and no
  // sign of life could be heard.
  size_t ExpireSessions(absl::Duration most = absl::InfiniteDuration());
  // Releases the lock after each step of kResetPiece blocks: see BlockManager::StepReset. A second
  // reset waits for the first one to end. A reset does not wait for a disk. After it,
  // the completed ticket of Lane::kBackup has to pass the last ticket ordered until then; from that
  // moment on a restart takes no old block back from disk.
  uint64_t ResetPrefixCache();
  static constexpr uint32_t kResetPiece = 1024;
  void RemovePools();

  // --- Scans of a whole cache (shared_manager_scans.cc) ---
  // They release the lock between chunks. A block that changes during a scan appears in its old or
  // its new state.

  // Blocks in a chunk: some 50 us under the lock, and a few times that if none of them is in the
  // processor's caches.
  static constexpr uint32_t kScanPiece = 4096;
  // Blocks of an ended session that are freed in a chunk.
  static constexpr uint32_t kEndPiece = 512;

  // The state of each slot of a tier, with the spare. `window_index`: an index into info().windows.
  // Cost: O(slots), and a byte for each slot.
  std::vector<SlotState> SlotStates(uint32_t window_index, Tier tier) const;
  // The cached prefixes of the largest window that saved most, at most `limit`: see TopPrefixes in
  // prefix_uses.h. Cost: O(blocks), mostly without the lock, and about 50 bytes a block during the
  // call.
  std::vector<PrefixUse> TopPrefixes(size_t limit) const;

  // See CacheLists::TakePublishable. Releases the lock after each prefix, or kPublishPiece blocks
  // without one, if other threads wait for it. Holds it as long as an AddSequence of the longest
  // prefix does.
  std::vector<PublishablePrefix> TakePublishable(uint32_t max_prefixes);
  static constexpr uint32_t kPublishPiece = 1024;

  // Runs BlockManager::Maintain until nothing that has expired is left. Releases the lock between
  // its calls. Returns the number of blocks moved.
  uint32_t Maintain(uint32_t max_blocks);

  // Runs a batch and renews the session's lease. Waits for tickets, at most kMaxTicketWait for the
  // whole batch. The lease does not run while the batch waits.
  // An operation fails with BATCH_TOO_LARGE once the batch's answer holds kMaxBatchHandles block
  // handles.
  // A batch holds the lock for about kLockTurn while other threads wait, and no longer than its
  // thread's turn on the processor (base/processor_turn.h). Then others run between two of its
  // operations. If one of them ends the session, the rest of the batch fails with
  // STALE_SESSION.
  // Errors of the whole batch: UNKNOWN_SESSION, STALE_SESSION, BATCH_TOO_LARGE, STEP_BACKWARDS.
  // After a wait, each remaining operation gets such an error and the batch is OK.
  absl::StatusOr<BatchResult> Execute(SessionRef session, absl::Span<const Operation> operations,
                                      StepRange steps = {});
  // Executes a batch like Execute, but never waits. It stops before a WaitForTicket whose copies
  // are not done, and returns fewer results than operations. When the ticket is done, the caller
  // continues with that operation, or with the next one. `handles_before`: block handles in the
  // answers of the batch's earlier parts.
  absl::StatusOr<BatchResult> ExecuteUntilWait(SessionRef session,
                                               absl::Span<const Operation> operations,
                                               StepRange steps, size_t handles_before = 0);

  const CacheInfo& info() const { return info_; }
  // Constant.
  const TenantTable& tenants() const { return tenants_; }
  Epoch epoch() const { return epoch_; }
  EventLog& log() const { return *log_; }

 private:
  // Under the lock, hands over in order: the recorded slot changes to the sink, the orders to their
  // carriers, and the events to the log.
  void Publish() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void HandOver(absl::Span<const Order> orders) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Carrier* CarrierOf(Lane lane) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return carriers_[static_cast<size_t>(lane)];
  }
  // Tells which copies of Lane::kMemory have ended.
  void TellCopiesDone() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Removes the waiters whose tickets are done, and returns them.
  std::vector<std::function<void()>> TakeDone() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Frees the blocks of the sessions and quarantines that have begun to end. Releases the lock
  // after each chunk of kEndPiece blocks if other threads wait for it.
  void FinishEndings() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void NoteCompleted(BatchResult& batch) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Called in a batch of the session: lets waiting threads run, then continues. Errors:
  // STALE_SESSION.
  absl::Status LetOthersIn(SessionRef session, StepRange steps)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Clock clock_;
  const TokenSource tokens_;
  EventLog* const log_;
  absl::Mutex reset_mutex_;  // Held by a reset, and taken before the core's lock.
  // The core's lock. Only the own locks of the log, the carriers and the slot sink are taken under
  // it.
  mutable FairMutex mutex_;
  std::unique_ptr<BlockManager> core_ ABSL_GUARDED_BY(mutex_);
  std::array<Carrier*, kNumLanes> carriers_ ABSL_GUARDED_BY(mutex_) = {};  // By lane.
  SlotChangeSink* slot_sink_ ABSL_GUARDED_BY(mutex_) = nullptr;
  std::array<std::multimap<Ticket, std::function<void()>>, kNumLanes> waiters_
      ABSL_GUARDED_BY(mutex_);                        // By lane.
  absl::Time leases_ran_to_ ABSL_GUARDED_BY(mutex_);  // The time of the last ExpireSessions.
  const CacheInfo info_;
  const TenantTable& tenants_;  // The core's.
  const uint32_t num_prefix_nodes_;
  const Epoch epoch_;
};

// A CacheClient in the manager's process: a session without a lease, which ends with the object.
// `pools` owns the memory of the manager's pool_mappings. Without it the client maps pools by name;
// memory on a device and in huge pages has no name. Errors: TOO_MANY_SESSIONS. `manager` and
// `pools` outlive the client.
absl::StatusOr<std::unique_ptr<CacheClient>> OpenLocalCacheClient(SharedManager* manager,
                                                                  std::string client_name,
                                                                  const PoolSet* pools = nullptr);

}  // namespace pagoda

#endif  // PAGODA_MANAGER_SHARED_MANAGER_H_
