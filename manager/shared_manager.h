// The core with its lock, its clock and its event log: what the threads of a process share.
#ifndef PAGODA_MANAGER_SHARED_MANAGER_H_
#define PAGODA_MANAGER_SHARED_MANAGER_H_

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "events/event_log.h"
#include "manager/block_manager.h"
#include "manager/cache_client.h"
#include "manager/fair_mutex.h"
#include "manager/file_orders.h"
#include "pools/copy_order.h"
#include "pools/pool.h"
#include "pools/transfers.h"

namespace pagoda {

class TenantTable;  // manager/tenants.h

// Thread-safe. Takes its lock once a batch, and lets others in between two operations of one that
// is long; events reach the log before the batch's answer reaches the caller.
class SharedManager {
 public:
  using Clock = std::function<absl::Time()>;
  using TokenSource = std::function<SessionToken()>;
  static constexpr absl::Duration kLockTurn = absl::Microseconds(50);

  // The wall clock's time at the process's first look, plus what a steady clock has counted since:
  // right for people, and a step of the system's clock neither ends leases nor makes them eternal.
  static absl::Time Now();
  // 128 bits from the system's generator, of which those that were drawn before tell nothing.
  static SessionToken DrawToken();

  // `log` outlives the manager. Until SetTransfers, copies count as done when they are ordered: for
  // a cache without memory. `tokens` is called once for each session to be opened, without the
  // lock and on several threads at once.
  SharedManager(std::unique_ptr<BlockManager> core, EventLog* log, Clock clock = Now,
                TokenSource tokens = DrawToken);

  // Who carries out the copies from now on, and tells CompleteCopy of each, on a thread of its own.
  // Outlives the manager's last call, or is taken away with nullptr.
  void SetTransfers(Transfers* transfers);
  // Who writes down which slots got or lost content, from now on: hears of each change before a
  // copy begins or anybody is answered. As SetTransfers. What has changed before is told at once.
  void SetSlotSink(SlotChangeSink* sink);
  // Who carries out what the core orders of a disk, from now on, and tells CompleteFile of each
  // order. As SetTransfers. Without one, what is ordered of a disk fails.
  void SetDisk(FileCommandSink* disk);
  // A copy has ended; see BlockManager::CompleteCopy.
  void CompleteCopy(Ticket ticket, const absl::Status& status);
  // An order of a disk has ended; see BlockManager::CompleteFile.
  void CompleteFile(Lane lane, Ticket ticket, const absl::Status& status);
  // Everything in the lane up to this one has ended.
  Ticket completed_ticket(Lane lane = Lane::kMemory) const;
  // Calls `done` once, without a lock, when everything in the lane up to `ticket` has ended: at
  // once, on the caller's thread, where it has. `done` does not block, and owns what it touches.
  void NotifyWhenDone(Lane lane, Ticket ticket, std::function<void()> done);
  void NotifyWhenDone(Ticket ticket, std::function<void()> done) {
    NotifyWhenDone(Lane::kMemory, ticket, std::move(done));
  }

  // As BlockManager's methods of the same name, at the clock's time.
  absl::StatusOr<BlockManager::OpenedSession> OpenSession(std::string client_name,
                                                          absl::Duration lease,
                                                          TenantId tenant = kDefaultTenant);
  absl::Status CheckSession(SessionRef session) const;
  // The tenant of a living session. Errors: those of CheckSession.
  absl::StatusOr<TenantId> TenantOf(SessionRef session) const;
  absl::Status NoteWriter(SessionRef session);
  void NoteWriterGone(SessionId session);
  absl::Status EndSession(SessionId session);
  // Whether the session is open or still has blocks, quarantined ones too.
  bool Remembers(SessionRef session) const { return Remembers({&session, 1}).front(); }
  // Likewise of each, under one hold of the lock.
  std::vector<bool> Remembers(absl::Span<const SessionRef> sessions) const;
  bool IsQuarantined(SessionId session) const;
  // All of them, ascending. Lets others in between kQuarantinePiece and the next ones; what changes
  // meanwhile is as it was or as it is.
  std::vector<SessionId> QuarantinedSessions() const;
  static constexpr size_t kQuarantinePiece = 1024;
  std::vector<QuarantineInfo> Quarantines() const;
  absl::StatusOr<uint32_t> ReleaseQuarantine(SessionId session);
  std::vector<TenantUsage> TenantUses() const;
  absl::StatusOr<absl::Duration> KeepAlive(SessionRef session);
  absl::Status AttachStream(SessionRef session);
  void DetachStream(SessionId session);
  absl::Status CloseSession(SessionRef session);
  size_t ExpireSessions();
  // Lets others in between steps of kResetPiece blocks: see BlockManager::StepReset. A second reset
  // waits for the first one to be done. It does not wait for a disk: nothing comes back from there
  // after a restart once completed_ticket(Lane::kBackup) has passed what was ordered until then.
  uint64_t ResetPrefixCache();
  static constexpr uint32_t kResetPiece = 1024;
  ManagerStats Stats() const;
  Revision revision() const;
  void RemovePools();

  // --- Lists ---

  std::vector<SessionRow> Sessions(SessionId from, size_t limit) const;
  std::vector<SequenceRow> Sequences(std::optional<SessionId> only, SequenceKey from,
                                     size_t limit) const;
  absl::StatusOr<InspectedPrefix> InspectPrefix(const BlockManager::Prompt& prompt) const;
  absl::StatusOr<InspectedPrefix> InspectPrefix(const NamespaceKey& name_space,
                                                absl::Span<const TokenId> tokens) const {
    return InspectPrefix({.name_space = name_space, .tokens = tokens});
  }

  // --- All of a cache (shared_manager_scans.cc): in pieces, between which others come in; what
  // changes meanwhile is as it was or as it is ---

  // Blocks that are looked at before others are let in: some 50 us, and a few times that where
  // nothing of them is in the processor's caches.
  static constexpr uint32_t kScanPiece = 4096;
  // Blocks of an ended session that are freed before others are let in.
  static constexpr uint32_t kEndPiece = 512;

  // The state of each slot of a tier, the spare's too. `window_index`: of info().windows. Cost:
  // O(slots); a byte a slot.
  std::vector<SlotState> SlotStates(uint32_t window_index, Tier tier) const;
  // The cached prefixes of the largest window that saved most, at most `limit`: see TopPrefixes in
  // prefix_uses.h. Cost: O(blocks), most of it without the lock; for as long some 50 bytes a block.
  std::vector<PrefixUse> TopPrefixes(size_t limit) const;

  // BlockManager::Maintain, until nothing is left that has expired; lets others in between its
  // calls. Returns the blocks moved.
  uint32_t Maintain(uint32_t max_blocks);

  // Runs a batch and renews the session's lease. An operation after kMaxBatchHandles handles of
  // answers fails with BATCH_TOO_LARGE. Waits for tickets, at most kMaxTicketWait for all of the
  // batch together. Errors of the whole: UNKNOWN_SESSION, STALE_SESSION, BATCH_TOO_LARGE,
  // STEP_BACKWARDS. Behind a wait such an error is that of each operation that is left, and the
  // batch is OK; the session's lease does not run while its batch waits.
  // Others wait for about kLockTurn of a batch that takes longer; then they come between two of its
  // operations. What is left fails with STALE_SESSION where one of them ended the session.
  absl::StatusOr<BatchResult> Execute(SessionRef session, absl::Span<const Operation> operations,
                                      StepRange steps = {});
  // As Execute, but never waits: it stops before a WaitForTicket whose copies are not done. Then
  // there are fewer results than operations, and the caller goes on with the rest, that one first,
  // when the ticket is done, or behind that one. `handles_before`: block handles in the answers of
  // the batch's earlier parts.
  absl::StatusOr<BatchResult> ExecuteUntilWait(SessionRef session,
                                               absl::Span<const Operation> operations,
                                               StepRange steps, size_t handles_before = 0);

  // The next piece of a snapshot; see BlockManager. The events up to its revision are in the log.
  SnapshotPiece ReadSnapshot(const SnapshotPosition& from, size_t max_blocks,
                             size_t max_tokens) const;

  // Stops the process if an invariant is broken.
  void CheckInvariants() const;

  const CacheInfo& info() const { return info_; }
  // Does not change.
  const TenantTable& tenants() const { return tenants_; }
  Epoch epoch() const { return epoch_; }
  EventLog& log() const { return *log_; }

 private:
  // Hands the log what the core recorded, and Transfers what it ordered, in order: still under the
  // lock.
  void Publish() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Hands the carrier what the core ordered of a disk. Without one it fails.
  void PublishFiles() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Those whose tickets are done; they wait no more.
  std::vector<std::function<void()>> TakeDone() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Frees what the sessions and quarantines have that have begun to end. Gives up the lock between
  // chunks of kEndPiece blocks if others wait for it.
  void FinishEndings() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void NoteCompleted(BatchResult& batch) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // In a batch of the session: lets in those that wait, and goes on. Errors: STALE_SESSION.
  absl::Status LetOthersIn(SessionRef session, StepRange steps)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Clock clock_;
  const TokenSource tokens_;
  EventLog* const log_;
  absl::Mutex reset_mutex_;  // Held by a reset, and taken before the core's lock.
  // The core's lock. The log's and the transfers' own locks are taken under it; nothing else is.
  mutable FairMutex mutex_;
  std::unique_ptr<BlockManager> core_ ABSL_GUARDED_BY(mutex_);
  Transfers* transfers_ ABSL_GUARDED_BY(mutex_) = nullptr;
  SlotChangeSink* slot_sink_ ABSL_GUARDED_BY(mutex_) = nullptr;
  FileCommandSink* disk_ ABSL_GUARDED_BY(mutex_) = nullptr;
  std::array<std::multimap<Ticket, std::function<void()>>, kNumLanes> waiters_
      ABSL_GUARDED_BY(mutex_);  // By lane.
  const CacheInfo info_;
  const TenantTable& tenants_;  // The core's.
  const uint32_t num_prefix_nodes_;
  const Epoch epoch_;
};

// A CacheClient in the process of the manager: a session without a lease that ends with the object.
// `pools` owns the manager's pool_mappings. Without it the client maps them by their names, which
// memory on a device and in huge pages has not. Errors: TOO_MANY_SESSIONS. `manager` and
// `pools` outlive the client.
absl::StatusOr<std::unique_ptr<CacheClient>> OpenLocalCacheClient(SharedManager* manager,
                                                                  std::string client_name,
                                                                  const PoolSet* pools = nullptr);

}  // namespace pagoda

#endif  // PAGODA_MANAGER_SHARED_MANAGER_H_
