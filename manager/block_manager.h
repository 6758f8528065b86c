// The core decides which block each sequence holds, which blocks are cached, and which block is
// evicted next. It is a deterministic state machine without I/O, threads or clocks.
#ifndef PAGODA_MANAGER_BLOCK_MANAGER_H_
#define PAGODA_MANAGER_BLOCK_MANAGER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "events/block_key.h"
#include "events/event.h"
#include "events/event_batch.h"
#include "events/snapshot.h"
#include "events/tree_entry.h"
#include "manager/api/cache_client.h"
#include "manager/api/manager_options.h"
#include "manager/api/operation.h"
#include "manager/api/sequence_calls.h"
#include "manager/api/session_calls.h"
#include "manager/api/stats.h"
#include "manager/tree/prefix_uses.h"
#include "manager/words/file_orders.h"
#include "manager/words/ids.h"
#include "manager/words/lists.h"
#include "manager/words/publishable_prefix.h"
#include "manager/words/recovered_block.h"
#include "manager/words/retention.h"
#include "manager/words/slot_journal.h"
#include "pools/copy_order.h"
#include "pools/sizing.h"
#include "pools/types.h"

namespace pagoda {

class TenantTable;  // manager/accounts/tenants.h

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
  // The session exists until CloseSession, or until `lease` passes without a call that renews it.
  // InfiniteDuration never passes. Execute confines the session to the tenant's namespace. A
  // session of the default tenant is trusted: it can name any namespace, and then acts for the
  // namespace's tenant. `token` becomes the session's secret. The caller passes it in, because the
  // core has no source of randomness (SharedManager has). Errors: TOO_MANY_SESSIONS.
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
  // Frees the session's sequences and raw blocks. Committed blocks stay cached. With this call the
  // client states that nothing of it touches the blocks any more. If the session is already over
  // and quarantined, the call is this acknowledgement and ends the quarantine. The session is over
  // at once: no further call of it is accepted. Errors: as CheckSession.
  absl::Status CloseSession(SessionRef ref, absl::Time now, EndIn how = EndIn::kOneCall);
  // Closes the sessions whose lease has run out. Returns how many. Cost: O(sessions). `pause`: a
  // time before `now` in which the caller could hear no renewal. No lease ran in it.
  size_t ExpireSessions(absl::Time now, EndIn how = EndIn::kOneCall,
                        absl::Duration pause = absl::ZeroDuration());
  // Frees blocks of the oldest session that is over, or of the oldest released quarantine: about
  // `max_blocks` blocks, but at least one whole sequence. One call does one kind of work: first
  // deferred releases, then sequences, then raw blocks. Returns whether anything is left to free.
  bool ContinueEndings(absl::Time now, uint32_t max_blocks);
  // The sessions and quarantines that have begun to end, and that have ended. The oldest ends
  // first.
  uint64_t endings_begun() const;
  uint64_t endings_ended() const;
  // A process of the session can write the pools from now on. If the session ends without its
  // client, the blocks that this process could write are quarantined: the session's raw blocks, the
  // unpublished blocks of its sequences, and its blocks with deferred releases. They stay in flight
  // until it is known that no process writes them any more. Errors: as CheckSession.
  absl::Status NoteWriter(SessionRef ref);
  // Every process that could write for the session is known to have stopped.
  void NoteWriterGone(SessionId session);
  // Ends a session as if its lease had run out, for an operator. Errors: UNKNOWN_SESSION.
  absl::Status EndSession(SessionId session, absl::Time now, EndIn how = EndIn::kOneCall);
  // Whether blocks of the session are quarantined. Cost: O(log quarantines). QuarantinedSessions()
  // costs the same, plus the number of sessions that it returns.
  bool IsQuarantined(SessionId session) const;
  // Whether the session is over and still has blocks.
  bool IsEnding(SessionId session) const;
  // At most `limit` sessions with quarantined blocks, ascending, starting at the id `from`.
  std::vector<SessionId> QuarantinedSessions(SessionId from, size_t limit) const;
  // All quarantines, ascending by session. Cost: O(quarantines).
  std::vector<QuarantineInfo> Quarantines() const;
  // Ends a quarantine. Returns the number of its blocks. Errors: UNKNOWN_QUARANTINE.
  absl::StatusOr<uint32_t> ReleaseQuarantine(SessionId session, absl::Time now,
                                             EndIn how = EndIn::kOneCall);

  // --- A warm restart: before anything else happens ---

  // Caches blocks of an earlier run, whose bytes are in their slots; all or nothing. Returns how
  // many. Errors: INVALID_ARGUMENT (windows that the cache does not have, or blocks that do not fit
  // together).
  absl::StatusOr<uint64_t> Restore(absl::Span<const RecoveredWindow> windows, absl::Time now);
  // Takes back the content that was found in the files of a disk tier: blocks, and copies of blocks
  // that Restore() took back. Drops the rest. Returns the number of copies. REQUIRES: nothing but
  // Restore() has happened yet. Errors: INVALID_ARGUMENT (no disk tier, or windows, slots or
  // parents that do not fit). After an error the cache is unusable: discard it.
  absl::StatusOr<uint64_t> RestoreDisk(absl::Span<const RecoveredWindow> windows, absl::Time now);
  // What the eviction policies of a window have learned from requests, for another run; empty: they
  // learn nothing. `window_index`: an index into info().windows. Cost: a few microseconds.
  std::vector<std::byte> Learned(uint32_t window_index) const;
  // Takes over what policies of the same name had learned. REQUIRES: nothing has happened yet, not
  // even Restore(). Errors: those of EvictionPolicy::RestoreLearned.
  absl::Status RestoreLearned(uint32_t window_index, absl::Span<const std::byte> learned);
  // A client of the earlier run may still write. So every primary slot that is free now is
  // quarantined, as session 0.
  void QuarantineFree(absl::Time now);

  // --- Operations ---

  // The following operations of the session belong to this batch. Their releases are deferred until
  // `steps.completed_step` reaches this batch's step. Releases up to completed_step end now. The
  // caller has checked the session. Errors: STEP_BACKWARDS.
  absl::Status BeginBatch(SessionId session, StepRange steps, absl::Time now);
  // As BeginBatch, but continues a batch that began with these steps before later batches of the
  // session. Its further releases are deferred until the session's latest step.
  void ResumeBatch(SessionId session, StepRange steps);
  // The session's sequences with losses that no commit has named yet.
  std::vector<ShortenedSequence> Shortened(SessionId session);

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

  // The operations by name, without the cost of a variant. Spans and tables are valid until the
  // next call. `ready` in a result is the ticket that the result's slots wait for.

  // Takes out.size() blocks that belong to no sequence. Fresh pools hand out slots in ascending
  // order. Returns the ticket that the slots wait for. Errors: UNKNOWN_WINDOW, INVALID_COUNT (none,
  // or more than the capacity or the tenant's quota), BLOCKS_EXHAUSTED, TENANT_QUOTA_EXCEEDED.
  absl::StatusOr<Ticket> AllocateBlocks(SessionId session, WindowSize window,
                                        absl::Span<BlockHandle> out, absl::Time now);

  // Gives raw blocks back.
  // Errors: UNKNOWN_WINDOW, INVALID_COUNT (none), UNKNOWN_BLOCK (no such id), DOUBLE_FREE (already
  // free, or twice in `blocks`), STALE_HANDLE (an earlier generation), FOREIGN_BLOCK (it belongs to
  // another session, to a sequence or to the cache).
  absl::Status FreeBlocks(SessionId session, WindowSize window, absl::Span<const BlockRef> blocks,
                          absl::Time now);

  // Notes how many tokens the client has written into raw blocks, and which of these are finalised;
  // all or nothing. Applies no expiries. Errors: those of FreeBlocks; BLOCK_FINALIZED (finalised
  // earlier), INVALID_COUNT (more tokens than a block holds), COMPUTED_BACKWARDS (fewer than
  // before).
  absl::Status FillBlocks(SessionId session, WindowSize window, absl::Span<const BlockFill> fills);

  // What is known of raw blocks of the session and of blocks in tables of its sequences, in this
  // order. A block may be named twice. Changes nothing. Cost: O(blocks), and O(entries of the
  // session's tables) if one is a sequence's. Errors: UNKNOWN_WINDOW, INVALID_COUNT (none, or more
  // than kMaxBatchHandles), UNKNOWN_BLOCK, STALE_HANDLE (an earlier generation, or freed),
  // FOREIGN_BLOCK.
  absl::StatusOr<std::vector<BlockMetadata>> DescribeBlocks(
      SessionId session, WindowSize window, absl::Span<const BlockRef> blocks) const;

  using Prompt = SequencePrompt;

  // Opens a sequence: matches the longest cached prefix that is valid in every window, and reserves
  // capacity. At least the last token is not matched. Matched blocks in the secondary tier are
  // onboarded. If a block matches in part, its first tokens are copied into a fresh block. The
  // sequence takes the block over in place (rule 8) if it is a tail that matches whole, or if there
  // is no space for a copy. A block taken over keeps its retention unless the prompt's retention
  // names it.
  //
  // In a keyed namespace the prompt has keys of whole blocks, and all of them can match. Every
  // length of such a sequence is a whole number of blocks (WHOLE_BLOCKS_ONLY), here and in the
  // calls below.
  //
  // Cost: O(tokens). Errors: SEQUENCE_EXISTS, KEYS_AND_TOKENS, INVALID_ARGUMENT (a salt or tenant
  // that is too long; extra ids or items that do not fit the tokens; a retention that
  // CheckRetention refuses), INVALID_COUNT (no tokens, or more than the capacity, the quota or
  // SequenceAccounts can ever give), BLOCKS_EXHAUSTED, TENANT_QUOTA_EXCEEDED, TOO_MANY_SEQUENCES,
  // SEQUENCE_BYTES_EXHAUSTED; those of TenantTable::Charged.
  absl::StatusOr<SequenceAdded> AddSequence(SessionId session, SequenceId sequence,
                                            const Prompt& prompt, absl::Time now);
  absl::StatusOr<SequenceAdded> AddSequence(SessionId session, SequenceId sequence,
                                            const NamespaceKey& name_space,
                                            absl::Span<const TokenId> tokens,
                                            uint32_t reserved_tokens, absl::Time now) {
    return AddSequence(
        session, sequence,
        Prompt{.name_space = name_space, .tokens = tokens, .reserved_tokens = reserved_tokens},
        now);
  }

  using Growth = SequenceGrowth;

  // Reserves capacity for `count` more tokens. A tail that a fork shares is copied first. Cost: O(1
  // + new blocks). Errors: UNKNOWN_SEQUENCE, INVALID_COUNT (0, or more than the capacity or the
  // tenant's quota can ever give), BLOCKS_EXHAUSTED, TENANT_QUOTA_EXCEEDED,
  // SEQUENCE_BYTES_EXHAUSTED.
  absl::StatusOr<Growth> ReserveTokens(SessionId session, SequenceId sequence, uint32_t count,
                                       absl::Time now);

  // Names the next tokens, for which capacity must be reserved. Declares the KV of the first
  // `computed_tokens` tokens complete and visible (0: unchanged). Afterwards the blocks that became
  // full and computed are in the tree. A sliding window has released the blocks that it passed
  // (rule 9), except the last published one. In a keyed sequence `keys` name the next blocks.
  // Returns the sequence's tokens. Cost: O(tokens + committed blocks). Errors: UNKNOWN_SEQUENCE,
  // RESERVATION_EXCEEDED, COMPUTED_BACKWARDS, COMPUTED_BEYOND_TOKENS, KEYS_AND_TOKENS (tokens for a
  // keyed sequence, or keys for another), WHOLE_BLOCKS_ONLY, KV_LOST (fewer `known_losses` than
  // there are, see ShortenedSequence; or the sequence can only be freed), INVALID_ARGUMENT (more
  // `known_losses` than there are).
  absl::StatusOr<uint32_t> CommitTokens(SessionId session, SequenceId sequence,
                                        absl::Span<const TokenId> tokens, uint32_t computed_tokens,
                                        absl::Time now, uint32_t known_losses = 0,
                                        absl::Span<const ClientKey> keys = {});

  // ReserveTokens for the missing tokens, then CommitTokens; all or nothing. Errors: those of the
  // two.
  absl::StatusOr<Growth> AppendTokens(SessionId session, SequenceId sequence,
                                      absl::Span<const TokenId> tokens, uint32_t computed_tokens,
                                      absl::Time now, uint32_t known_losses = 0,
                                      absl::Span<const ClientKey> keys = {});

  // AppendTokens for each sequence of a decode step. Cost: as AppendTokens, without the fixed cost
  // of an operation. Errors, after which nothing has changed: INVALID_ARGUMENT (no sequence, too
  // many, or arrays that do not fit together).
  absl::StatusOr<AppendedStep> AppendStep(SessionId session, const pagoda::AppendStep& step,
                                          absl::Time now);

  // Opens `new_sequence` with the tokens and computed tokens of `sequence` (beams, parallel
  // samples). The two share all blocks with computed tokens. ReserveTokens takes capacity for more,
  // and copies a shared tail. The data beside the tables is shared and immutable, so only the first
  // fork costs anything for each token that is not computed. Cost: O(blocks). Errors:
  // UNKNOWN_SEQUENCE, SEQUENCE_EXISTS, KV_LOST (it can only be freed), INVALID_COUNT (more than
  // SequenceAccounts can ever give), TOO_MANY_SEQUENCES, SEQUENCE_BYTES_EXHAUSTED.
  absl::StatusOr<SequenceForked> ForkSequence(SessionId session, SequenceId sequence,
                                              SequenceId new_sequence, absl::Time now);

  // Drops all tokens but the first `token_count`, and the capacity reserved behind them. Published
  // blocks stay cached. If the cut goes through a block that something else uses, the block is
  // copied first. A block that only this sequence uses is reused in place, and leaves the cache
  // (Removed, truncated). Errors: UNKNOWN_SEQUENCE, INVALID_COUNT (0, or above the sequence's
  // tokens), WINDOW_PASSED, BLOCKS_EXHAUSTED, TENANT_QUOTA_EXCEEDED.
  absl::StatusOr<Growth> TruncateSequence(SessionId session, SequenceId sequence,
                                          uint32_t token_count, absl::Time now);

  // Ends a sequence and frees its reserved capacity. Its computed tail is cached too, unless a
  // block of the primary tier begins with it. That block then becomes as recent as the sequence's
  // own blocks, and keeps the higher priority of the two.
  //
  // Whenever a block enters the tree, the evictable tails that it begins with leave (Removed, taken
  // over). The block keeps the highest of their priorities and its own, unless the retention of its
  // sequence names it. Errors: UNKNOWN_SEQUENCE.
  absl::Status FreeSequence(SessionId session, SequenceId sequence, absl::Time now);

  // The running sequence; valid until the next call. Errors: UNKNOWN_SEQUENCE.
  absl::StatusOr<const Sequence*> FindSequence(SessionId session, SequenceId sequence) const;
  // The entries [first_block, first_block + max_blocks) of its table in the window with this index,
  // for a reader of its KV. Cost: O(max_blocks). Errors: UNKNOWN_SEQUENCE.
  absl::StatusOr<SequenceKv> ReadSequence(SessionId session, SequenceId sequence,
                                          uint32_t window_index, uint32_t first_block,
                                          uint32_t max_blocks) const;
  // The ticket that its slots wait for; 0: none. Cost: O(blocks) while copies run.
  Ticket ReadyOf(const Sequence& sequence) const;

  // --- Prefixes ---

  // How many tokens an AddSequence would match. `blocks`, if given, receives the matched blocks of
  // the largest window. Cost: O(matched tokens), and O(items) unless the content was checked
  // before.
  uint32_t MatchPrefix(const Prompt& prompt, std::vector<BlockHandle>* blocks) const;
  uint32_t MatchPrefix(const NamespaceKey& name_space, absl::Span<const TokenId> tokens,
                       std::vector<BlockHandle>* blocks = nullptr) const {
    return MatchPrefix(Prompt{.name_space = name_space, .tokens = tokens}, blocks);
  }

  // The same, and how much is cached in each tier. REQUIRES: CheckPrompt(prompt) is OK.
  MatchedPrefix DescribeMatch(const Prompt& prompt) const;

  // Errors: INVALID_COUNT (no tokens), UNKNOWN_SEQUENCE; those of TenantTable::Charged.
  absl::StatusOr<CapacityAnswer> QueryCapacity(SessionId session,
                                               const struct QueryCapacity& query) const {
    return QueryCapacity(session, query, query.name_space);
  }
  // For `name_space` instead of the query's own. `content_check`: see Prompt.
  absl::StatusOr<CapacityAnswer> QueryCapacity(SessionId session, const struct QueryCapacity& query,
                                               const NamespaceKey& name_space,
                                               const absl::Status* content_check = nullptr) const;

  // Errors: INVALID_ARGUMENT (a salt or tenant that is too long, or content that CheckContent
  // refuses), KEYS_AND_TOKENS (it has both, or the kind that its namespace does not have).
  absl::Status CheckPrompt(const Prompt& prompt) const;

  // These operations name a prefix by everything that a block's identity has: the namespace, the
  // tokens, the extra ids and the items. They read nothing else of a Prompt. The calls that move,
  // pin or retain blocks take the prefix that AddSequence would match, with two differences: the
  // last token can match too, and the end is cut to whole blocks and a tail that is cached as it
  // is. Errors of all: INVALID_COUNT (no tokens and no keys), INVALID_ARGUMENT and KEYS_AND_TOKENS
  // (CheckPrompt).

  // Offloads the prefix's evictable blocks to the secondary tier, from the end back to the first
  // block that is held. Blocks there of no higher priority are evicted for them.
  absl::StatusOr<OffloadedPrefix> OffloadPrefix(const Prompt& prefix, absl::Time now);
  absl::StatusOr<OffloadedPrefix> OffloadPrefix(const NamespaceKey& name_space,
                                                absl::Span<const TokenId> tokens, absl::Time now) {
    return OffloadPrefix(Prompt{.name_space = name_space, .tokens = tokens}, now);
  }
  struct PrefetchOptions {
    PrefetchTarget target = PrefetchTarget::kPrimary;
    absl::Time deadline = absl::InfiniteFuture();  // For the fetches.
  };
  // Onboards the prefix's blocks that lie in memory, from the beginning, as far as slots can be
  // freed. Orders fetches of the blocks that lie on disk alone into the last tier in memory;
  // running fetches take at most a quarter of it. A fetched block becomes matchable when all blocks
  // above it are.
  absl::StatusOr<PrefetchedPrefix> PrefetchPrefix(const Prompt& prefix, absl::Time now,
                                                  const PrefetchOptions& options);
  absl::StatusOr<PrefetchedPrefix> PrefetchPrefix(const Prompt& prefix, absl::Time now) {
    return PrefetchPrefix(prefix, now, PrefetchOptions());
  }
  absl::StatusOr<PrefetchedPrefix> PrefetchPrefix(const NamespaceKey& name_space,
                                                  absl::Span<const TokenId> tokens,
                                                  absl::Time now) {
    return PrefetchPrefix(Prompt{.name_space = name_space, .tokens = tokens}, now);
  }
  // Keeps the prefix's blocks from being evicted, in any tier, until UnpinPrefix or the end of
  // `lease`. In a sliding window it pins only the blocks that the prefix's end needs. The pin
  // outlasts the session. It ends as a whole when one of its blocks leaves the tree: by
  // ResetPrefixCache, InvalidatePrefix or a failed copy, or in a sliding window because a block
  // above it leaves and no more holes are possible. Each end is an Updated event. If nothing of the
  // prefix is cached there is no pin, and PinnedPrefix::pin is 0. Further errors: INVALID_ARGUMENT
  // (a lease that is not positive, or a tenant's above max_pin_lease), PIN_BUDGET_EXCEEDED (blocks,
  // or PinTable's limits, in total or for the session's tenant), TENANT_QUOTA_EXCEEDED,
  // INVALID_COUNT (more blocks of the default tenant than the tenant's quota).
  static constexpr size_t kMaxPins = 65'536;
  absl::StatusOr<PinnedPrefix> PinPrefix(SessionId session, const Prompt& prefix,
                                         absl::Duration lease, absl::Time now);
  absl::StatusOr<PinnedPrefix> PinPrefix(SessionId session, const NamespaceKey& name_space,
                                         absl::Span<const TokenId> tokens, absl::Duration lease,
                                         absl::Time now) {
    return PinPrefix(session, Prompt{.name_space = name_space, .tokens = tokens}, lease, now);
  }
  // A tenant can end the pins that its own sessions made; the default tenant can end any. Errors:
  // UNKNOWN_PIN.
  absl::Status UnpinPrefix(PinId pin, absl::Time now, TenantId tenant = kDefaultTenant);
  // The pins that the tenant's own sessions made; all pins for the default tenant.
  ListedPins ListPins(TenantId tenant = kDefaultTenant) const;
  // Forgets every cached block whose content, from the root on, begins with the prefix. Without
  // tokens it forgets the whole namespace. Blocks that sequences hold leave the tree and become
  // private. Returns the number of blocks that left. Cost: O(that number). Errors: INVALID_ARGUMENT
  // (CheckPrompt). `durable`, if given, receives a ticket of the backup lane: when it is done, no
  // such content comes back from a disk after a restart. That includes content that the disk had
  // dropped before.
  absl::StatusOr<uint64_t> InvalidatePrefix(const Prompt& prefix, absl::Time now,
                                            Ticket* durable = nullptr);
  absl::StatusOr<uint64_t> InvalidatePrefix(const NamespaceKey& name_space,
                                            absl::Span<const TokenId> tokens, absl::Time now) {
    return InvalidatePrefix(Prompt{.name_space = name_space, .tokens = tokens}, now);
  }
  // Gives each of the prefix's blocks the priority and duration of the range that holds its first
  // token. A running clock starts again. For a block of another tenant than `tenant` the range
  // applies only if KeepsAtLeast() holds. Further errors: INVALID_ARGUMENT (CheckRetention).
  absl::StatusOr<uint32_t> SetRetention(const Prompt& prefix, const SequenceRetention& retention,
                                        absl::Time now, TenantId tenant = kDefaultTenant);
  absl::StatusOr<uint32_t> SetRetention(const NamespaceKey& name_space,
                                        absl::Span<const TokenId> tokens,
                                        const SequenceRetention& retention, absl::Time now) {
    return SetRetention(Prompt{.name_space = name_space, .tokens = tokens, .retention = &retention},
                        retention, now);
  }

  // --- Copies ---

  // The copies ordered since the last call, by ticket. The caller carries them out and reports each
  // with CompleteCopy.
  std::vector<CopyOrder> TakeCopies();
  // A copy has ended. If it failed, its block is lost (Removed, lost) with all blocks below it, and
  // sequences that hold it have fewer computed tokens. Copies can end in any order that
  // CopyOrder::after allows. An unknown ticket is ignored.
  void CompleteCopy(Ticket ticket, const absl::Status& status, absl::Time now);
  Ticket completed_ticket(Lane lane = Lane::kMemory) const;  // All up to it have ended.
  Ticket last_ticket(Lane lane = Lane::kMemory) const;       // The highest one given.

  // --- A tier on disk (block_manager_disk.cc) ---

  // The commands for the disk's carrier since the last call, in order. The caller reports each
  // order and each erase with CompleteFile.
  FileCommands TakeFileCommands();
  // An order or an erase has ended. After a successful backup the block has one more copy. After a
  // successful fetch the block's nearest copy is in memory, unless the block left meanwhile, the
  // deadline is over or its parent is not in memory. A failed fetch loses the copy on disk: a block
  // without another copy leaves (Removed, lost) with all blocks below it. An unknown ticket is
  // ignored.
  void CompleteFile(Lane lane, Ticket ticket, const absl::Status& status, absl::Time now);

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
  std::vector<TenantUsage> TenantUses() const;  // By tenant.
  const CacheInfo& info() const { return info_; }
  Epoch epoch() const;

  // --- Lists (block_manager_lists.cc) ---

  // At most `limit` sessions, ascending, starting at the id `from`.
  std::vector<SessionRow> Sessions(SessionId from, size_t limit, absl::Time now) const;
  // At most `limit` sequences, ascending by session and id, starting at `from`. `only`, if given,
  // restricts the list to one session. Cost: O(limit + sessions).
  std::vector<SequenceRow> Sequences(std::optional<SessionId> only, SequenceKey from,
                                     size_t limit) const;
  // How much of a prompt is cached. Cost: O(tokens). Errors: INVALID_COUNT (no tokens),
  // INVALID_ARGUMENT (CheckPrompt).
  absl::StatusOr<InspectedPrefix> InspectPrefix(const Prompt& prompt) const;
  absl::StatusOr<InspectedPrefix> InspectPrefix(const NamespaceKey& name_space,
                                                absl::Span<const TokenId> tokens) const {
    return InspectPrefix(Prompt{.name_space = name_space, .tokens = tokens});
  }

  // The states of the slots [from, from + states.size()) of one tier, in the window with this
  // index. Cost: O(states).
  void SlotStates(uint32_t window_index, Tier tier, uint32_t from,
                  absl::Span<SlotState> states) const;
  // The prefix tree of the largest window, by block id, starting at `from`. Ids are below
  // num_prefix_nodes(). Cost: O(nodes).
  uint32_t num_prefix_nodes() const;
  void PrefixNodes(uint32_t from, absl::Span<PrefixNode> nodes) const;
  // Where the bytes of blocks lie in host memory: for each block, its nearest copy there into which
  // no copy is in flight. Nothing holds the block there: its bytes can be overwritten as soon as it
  // leaves or moves. Unknown ids are not found. Cost: O(blocks).
  LocatedBlocks LocateBlocks(uint32_t window_index, absl::Span<const BlockId> blocks) const;
  // A prefix of the largest window; nothing if it is no longer cached. Cost: O(1).
  std::optional<PrefixUse> DescribePrefix(const UsedPrefix& prefix) const;

  // --- Publishing to a store (block_manager_lists.cc) ---

  // With ManagerOptions::publish_min_uses, a whole block of the largest window is queued once in
  // its life in the cache, when it has become worth publishing. TakePublishable takes queued
  // blocks, the newest first, and appends the prefix that ends at each. A prefix also stands for
  // the queued blocks above its end. Blocks that have left memory meanwhile are skipped, and in a
  // sliding window also those below a hole. Appends `max_prefixes` prefixes at most. Stops after
  // about `max_blocks` blocks, those above the ends included, but not within a prefix. Cost:
  // O(blocks looked at + tokens appended).
  void TakePublishable(uint32_t max_prefixes, uint32_t max_blocks,
                       std::vector<PublishablePrefix>* out);
  PublishableBlocks publishable() const;

  // --- Events ---

  // The events since the last call, in order. The first call gives one Created event for each
  // window.
  EventBatch TakeEvents();
  Revision revision() const;  // Of the last event.
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
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_BLOCK_MANAGER_H_
