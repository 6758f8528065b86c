// The core decides which block each sequence holds, which blocks are cached, and which block is
// evicted next. It is a deterministic state machine without I/O, threads or clocks.
#ifndef PAGODA_MANAGER_BLOCK_MANAGER_H_
#define PAGODA_MANAGER_BLOCK_MANAGER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "events/block_key.h"
#include "events/event.h"
#include "events/event_batch.h"
#include "events/snapshot.h"
#include "events/tree_entry.h"
#include "manager/api/cache_client.h"
#include "manager/api/manager_options.h"
#include "manager/api/operation.h"
#include "manager/api/stats.h"
#include "manager/words/ids.h"
#include "manager/words/slot_journal.h"
#include "pools/order.h"
#include "pools/sizing.h"
#include "pools/types.h"

namespace pagoda {

class CacheLists;
class CachedPrefixes;
class RawBlocks;
class RunningSequences;
class SessionEndings;
class TenantTable;  // manager/accounts/tenants.h
class WarmRestart;

// Thread-compatible: the owner holds one lock around it (SharedManager does). Each call brings the
// current time, which never goes back. The same calls with the same arguments give the same
// results, the same events and the same copies.
//
// A call either succeeds or fails without a trace. After every call:
// 1. free + cached + active + pinned + in flight = capacity, in each window and tier (rule 5).
// 2. A tree that applies the events in order equals the prefix tree (the events' law).
// 3. A block's reference count is the number of its holders. Under full attention, the path from a
// held block to the root is held (rule 13), and no block lies in a nearer tier than its parent
// (rule 14).
class BlockManager final {
 public:
  using Options = ManagerOptions;

  // Errors: INVALID_ARGUMENT if CheckTiers() refuses the tiers, if a disk is not the last tier
  // below one in host memory, or if the policy does not exist.
  static absl::StatusOr<std::unique_ptr<BlockManager>> Create(Options options);
  ~BlockManager();

  // --- Sessions ---

  struct OpenedSession {
    SessionRef ref;
    absl::Duration lease;
  };
  // The session exists until SessionEndings::CloseSession, or until `lease` passes without a call
  // that renews it. InfiniteDuration never passes. Execute confines the session to the tenant's
  // namespace. A session of the default tenant is trusted: it can name any namespace, and then acts
  // for the namespace's tenant. `token` becomes the session's secret. The caller passes it in,
  // because the core has no source of randomness (SharedManager has). Errors: TOO_MANY_SESSIONS.
  absl::StatusOr<OpenedSession> OpenSession(std::string client_name, absl::Duration lease,
                                            absl::Time now, TenantId tenant = kDefaultTenant,
                                            SessionToken token = SessionToken());
  // OK if `ref` names a session that is open. Errors: UNKNOWN_SESSION (there was none),
  // STALE_SESSION (it is over, or the token is another).
  absl::Status CheckSession(SessionRef ref) const;
  // Starts the lease again. Errors: as CheckSession.
  absl::StatusOr<absl::Duration> KeepAlive(SessionRef ref, absl::Time now);
  // While a stream is attached, the lease does not run. It starts when the last one is detached.
  // Errors: as CheckSession.
  absl::Status AttachStream(SessionRef ref);
  void DetachStream(SessionId session, absl::Time now);
  // A process of the session can write the pools from now on. If the session ends without its
  // client, the blocks that this process could write are quarantined: the session's raw blocks, the
  // unpublished blocks of its sequences, and its blocks with deferred releases. They stay in flight
  // until it is known that no process writes them any more. Errors: as CheckSession.
  absl::Status NoteWriter(SessionRef ref);
  // Every process that could write for the session is known to have stopped.
  void NoteWriterGone(SessionId session);
  // Whether a process of the session can write the pools. False if there is no such session.
  bool HasWriter(SessionId session) const;

  // --- Operations ---

  // The following operations of the session belong to this batch. Their releases are deferred until
  // `steps.completed_step` reaches this batch's step. Releases up to completed_step end now. The
  // caller has checked the session. Errors: STEP_BACKWARDS.
  absl::Status BeginBatch(SessionId session, StepRange steps, absl::Time now);
  // Continues a batch that began with these steps before later batches of the session. Its further
  // releases are deferred until the session's latest step.
  void ResumeBatch(SessionId session, StepRange steps);
  // The tenant of an open session.
  TenantId TenantOf(SessionId session) const;
  // The namespace that the session means by `asked`. Errors: PERMISSION_DENIED (it is another
  // tenant's).
  absl::StatusOr<NamespaceKey> Confine(SessionId session, const NamespaceKey& asked) const;
  // Runs one operation of an open session, which the caller has checked. WaitForTicket does not
  // wait: it fails with WAIT_TIMEOUT while the copies run. `content_check`, if given, is
  // CheckContent(operation): a caller with a lock computes it before it takes the lock.
  absl::StatusOr<OperationResult> Execute(SessionId session, const Operation& operation,
                                          absl::Time now,
                                          const absl::Status* content_check = nullptr);

  // --- The operations by name, without the cost of a variant ---
  // Each part's header is the contract of its operations. Spans and tables are valid until the next
  // call. `ready` in a result is the ticket that the result's slots wait for.

  // manager/sequences/running_sequences.h
  RunningSequences& sequences() { return sequences_; }
  const RunningSequences& sequences() const { return sequences_; }
  // manager/sequences/raw_blocks.h
  RawBlocks& raw_blocks() { return raw_blocks_; }
  const RawBlocks& raw_blocks() const { return raw_blocks_; }
  // manager/sequences/cached_prefixes.h
  CachedPrefixes& prefixes() { return prefixes_; }
  const CachedPrefixes& prefixes() const { return prefixes_; }

  // --- Other parts with calls of their own ---

  // How sessions and quarantines end: manager/sequences/session_endings.h
  SessionEndings& endings() { return endings_; }
  const SessionEndings& endings() const { return endings_; }
  // Lists for operators, and what is worth publishing: manager/cache_lists.h
  CacheLists& lists() { return lists_; }
  const CacheLists& lists() const { return lists_; }
  // What an earlier run had: manager/warm_restart.h
  WarmRestart& restart() { return restart_; }
  const WarmRestart& restart() const { return restart_; }

  // --- Orders for carriers (block_manager_orders.cc) ---

  // The orders since the last call. The caller has them carried out, and reports each that has a
  // ticket with Complete.
  std::vector<Order> TakeOrders();
  // An order has ended. Orders can end in any order that Order::after allows. An unknown ticket
  // changes nothing.
  // kMemory: if the copy failed, its block is lost (Removed, lost) with all blocks below it, and
  // sequences that hold it have fewer computed tokens.
  // kBackup: after a successful backup the block has one more copy.
  // kFetch: after a successful fetch the block's nearest copy is in memory, unless the block left
  // meanwhile, the deadline is over or its parent is not in memory. A failed fetch loses the copy
  // on disk: a block without another copy leaves (Removed, lost) with all blocks below it.
  void Complete(Lane lane, Ticket ticket, const absl::Status& status, absl::Time now);
  Ticket completed_ticket(Lane lane = Lane::kMemory) const;  // All up to it have ended.
  Ticket last_ticket(Lane lane = Lane::kMemory) const;       // The highest one given.

  // The slots that got or lost content since the last call, in order. The caller writes them down
  // before the copies begin and before it answers any client.
  std::vector<SlotChange> TakeSlotChanges();

  // --- Time ---

  // Ends expired priorities and pins, at most kMaxEndsByTime blocks of each (and at least one pin),
  // and offloads at most `max_blocks` blocks for the watermark. Returns the number of offloaded
  // blocks. Every other call also begins with that many expiries, the earliest first.
  uint32_t Maintain(absl::Time now, uint32_t max_blocks);
  // Whether anything has expired and not ended yet, because one call ends only so many.
  bool HasExpired(absl::Time now) const;

  // --- Operators ---

  // Forgets every cached prefix. Blocks that sequences hold become private. Returns the number of
  // blocks that left the tree. Cost: O(capacity).
  uint64_t ResetPrefixCache(absl::Time now);
  // The same in steps of about `max_blocks` blocks at most. Other calls can come between the steps.
  // A step begins a reset if none is under way. The first steps end the pins that existed at the
  // beginning. The next step takes the whole cache out of the tree. The remaining steps release
  // these blocks one by one; until then such a block is evictable unless it is held, and no prefix
  // is found there.
  struct ResetStep {
    uint64_t removed_blocks = 0;  // Left the tree in this step.
    bool done = false;
  };
  ResetStep StepReset(uint32_t max_blocks, absl::Time now);
  // Whether a reset still has blocks to release.
  bool resetting() const;

  ManagerStats Stats() const;
  const TenantTable& tenants() const;
  const CacheInfo& info() const { return info_; }
  Epoch epoch() const;

  // --- Events ---

  // The events since the last call, in order. The first call gives one Created event for each
  // window.
  EventBatch TakeEvents();
  Revision revision() const;  // The revision of the last event.
  // The pools are about to be removed: one Removed event for each window says so, and no event is
  // recorded after these. The cache goes on as before. A second call does nothing.
  void RemovePools(absl::Time now);

  // The next chunk of a snapshot (events/snapshot.h): at most `max_blocks` ids, and about
  // `max_tokens` tokens. REQUIRES: the events so far were taken, and the position is of this
  // manager. Cost: O(max_blocks + max_tokens).
  SnapshotPiece ReadSnapshot(const SnapshotPosition& from, size_t max_blocks, size_t max_tokens,
                             absl::Time now) const;

  // --- For tests ---

  // Checks every invariant from scratch. A broken one stops the process. Cost: O(capacity + tokens
  // held).
  void CheckInvariants() const;
  // The prefix tree of a window, ascending by block id, to compare with a shadow.
  std::vector<TreeEntry> DumpTree(WindowSize window) const;
  // The blocks of a window that are taken and not in its tree, ascending: raw blocks, private
  // blocks, and aliases. With LifecycleEvents::kAll the events tell which these are
  // (tests/events/shadow_allocations.h).
  std::vector<BlockId> DumpAllocated(WindowSize window) const;
  // Whether a reset still has to release the block.
  bool IsCutOff(WindowSize window, BlockId id) const;

 private:
  // In block_manager_parts.h, so that a change in a part does not recompile all callers.
  struct Parts;

  BlockManager(CacheInfo info, std::unique_ptr<Parts> parts);

  // Const methods change no part.
  Parts& parts() { return *parts_; }
  const Parts& parts() const { return *parts_; }

  const CacheInfo info_;
  const std::unique_ptr<Parts> parts_;
  // Parts that callers use by name. An access costs no call.
  RunningSequences& sequences_;
  RawBlocks& raw_blocks_;
  CachedPrefixes& prefixes_;
  SessionEndings& endings_;
  CacheLists& lists_;
  WarmRestart& restart_;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_BLOCK_MANAGER_H_
