// The core: who holds which block, what is cached, who goes next. A deterministic state machine
// without I/O, threads or clocks.
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
#include "events/shadow_tree.h"
#include "events/snapshot.h"
#include "manager/cache_client.h"
#include "manager/file_orders.h"
#include "manager/ids.h"
#include "manager/lists.h"
#include "manager/manager_options.h"
#include "manager/operation.h"
#include "manager/prefix_uses.h"
#include "manager/recovered_block.h"
#include "manager/retention.h"
#include "manager/sequence_calls.h"
#include "manager/session_calls.h"
#include "manager/slot_journal.h"
#include "manager/stats.h"
#include "pools/copy_order.h"
#include "pools/sizing.h"
#include "pools/types.h"

namespace pagoda {

class TenantTable;  // manager/tenants.h

// Thread-compatible: the owner holds one lock around it (SharedManager does). Time comes in with
// every call and never goes back. The same calls with the same arguments give the same results, the
// same events and the same copies.
//
// A call either succeeds or fails without a trace. After every call:
// 1. free + cached + active + pinned + in flight = capacity, by window and tier (rule 5).
// 2. A tree that applies the events in order equals the prefix tree (the events' law).
// 3. A block's reference count is the number of its holders. Under full attention a held block's
// path to the root is held, and no block lies in a nearer tier than the block above it (rule 13).
class BlockManager final {
 public:
  using Options = ManagerOptions;

  // Errors: INVALID_ARGUMENT for tiers that CheckTiers() refuses, for a disk that is not the last
  // tier below one in host memory, and for a policy that does not exist.
  static absl::StatusOr<std::unique_ptr<BlockManager>> Create(Options options);
  ~BlockManager();

  // --- Sessions ---

  struct OpenedSession {
    SessionRef ref;
    absl::Duration lease;
  };
  // The session lives until CloseSession, or until `lease` passes without a sign of life.
  // InfiniteDuration never passes. Execute confines the session to the tenant's namespace; one of
  // the default tenant is trusted to name any, and works for whose namespace it names. `token` is
  // the session's from then on; it comes in with the call, because the core has no source of what
  // nobody can guess (SharedManager has). Errors: TOO_MANY_SESSIONS.
  absl::StatusOr<OpenedSession> OpenSession(std::string client_name, absl::Duration lease,
                                            absl::Time now, TenantId tenant = kDefaultTenant,
                                            SessionToken token = SessionToken());
  // Unless `ref` names a living session: UNKNOWN_SESSION where there was none, STALE_SESSION where
  // it is over or the token is another.
  absl::Status CheckSession(SessionRef ref) const;
  // Starts the lease again. Errors: those of CheckSession.
  absl::StatusOr<absl::Duration> KeepAlive(SessionRef ref, absl::Time now);
  // While a stream is attached the lease does not run; when the last one is detached it starts.
  // Errors: those of CheckSession.
  absl::Status AttachStream(SessionRef ref);
  void DetachStream(SessionId session, absl::Time now);
  // Frees the session's sequences and raw blocks; committed blocks stay cached. The client says
  // that nothing of it touches them any more: of a session that is over and quarantined this is the
  // acknowledgement, and ends the quarantine. The session is over at once: no call of it is taken
  // any more. Errors: those of CheckSession.
  absl::Status CloseSession(SessionRef ref, absl::Time now, EndIn how = EndIn::kOneCall);
  // Closes the sessions whose lease has run out. Returns how many. O(sessions).
  size_t ExpireSessions(absl::Time now, EndIn how = EndIn::kOneCall);
  // Frees what the oldest session that is over still has, or what the oldest released quarantine
  // still holds: about `max_blocks` blocks, but at least one whole sequence. One call does one kind
  // of work: drains, then sequences, then raw blocks. Returns whether anything is left to free.
  bool ContinueEndings(absl::Time now, uint32_t max_blocks);
  // How many sessions and quarantines have begun to end, and have ended. The oldest ends first.
  uint64_t endings_begun() const;
  uint64_t endings_ended() const;
  // A process of the session can write the pools from now on. Where the session ends without its
  // client, what it could write (its raw blocks, what its sequences had not published, what was
  // draining) is quarantined: in flight, until somebody knows that nothing writes it any more.
  // Errors: those of CheckSession.
  absl::Status NoteWriter(SessionRef ref);
  // Whoever could write for the session is known to do so no more.
  void NoteWriterGone(SessionId session);
  // Ends a session as if its lease had run out, for an operator. Errors: UNKNOWN_SESSION.
  absl::Status EndSession(SessionId session, absl::Time now, EndIn how = EndIn::kOneCall);
  // Whether something of the session is quarantined. Cost: O(log quarantines), as the next one and
  // the number of those that it returns.
  bool IsQuarantined(SessionId session) const;
  // Whether the session is over and still has blocks.
  bool IsEnding(SessionId session) const;
  // At most `limit` sessions that have something in quarantine, ascending, from the id `from` on.
  std::vector<SessionId> QuarantinedSessions(SessionId from, size_t limit) const;
  // What is quarantined, ascending by session. Cost: O(quarantines).
  std::vector<QuarantineInfo> Quarantines() const;
  // Ends a quarantine. Returns its blocks. Errors: UNKNOWN_QUARANTINE.
  absl::StatusOr<uint32_t> ReleaseQuarantine(SessionId session, absl::Time now,
                                             EndIn how = EndIn::kOneCall);

  // --- A warm restart: before anything else happens ---

  // Caches blocks of an earlier run, whose bytes are in their slots; all or nothing. Returns how
  // many. Errors: INVALID_ARGUMENT (windows that are not the cache's; what does not fit together).
  absl::StatusOr<uint64_t> Restore(absl::Span<const RecoveredWindow> windows, absl::Time now);
  // Takes back what was found in the files of a tier on disk: blocks, and copies of blocks that
  // Restore() took back. What cannot be taken back is dropped. Returns the copies. REQUIRES:
  // nothing but Restore() has happened yet. Errors: INVALID_ARGUMENT (no tier on disk; windows,
  // slots or parents that do not fit); then the cache is to be thrown away.
  absl::StatusOr<uint64_t> RestoreDisk(absl::Span<const RecoveredWindow> windows, absl::Time now);
  // A client of the earlier run may still write: every primary slot that is free now is quarantined
  // as session 0.
  void QuarantineFree(absl::Time now);

  // --- Operations ---

  // What the session (the caller has checked it) asks for from now on is of this batch: its
  // releases drain until `steps.completed_step` reaches this batch's step, and what was released up
  // to completed_step is let go now. Errors: STEP_BACKWARDS.
  absl::Status BeginBatch(SessionId session, StepRange steps, absl::Time now);
  // As BeginBatch, to go on with a batch that was begun with these steps, after later batches of
  // the session: what it still releases drains with the session's latest step.
  void ResumeBatch(SessionId session, StepRange steps);
  // The session's sequences whose losses no commit has named yet.
  std::vector<ShortenedSequence> Shortened(SessionId session);

  // The tenant of a living session.
  TenantId TenantOf(SessionId session) const;
  // The namespace that the session means by `asked`. Errors: PERMISSION_DENIED (another tenant's).
  absl::StatusOr<NamespaceKey> Confine(SessionId session, const NamespaceKey& asked) const;
  // Runs one operation for a living session (the caller has checked it). WaitForTicket does not
  // wait: it fails with WAIT_TIMEOUT while the copies run. `content_check`, where given, is
  // CheckContent(operation): a caller with a lock makes it before it takes the lock.
  absl::StatusOr<OperationResult> Execute(SessionId session, const Operation& operation,
                                          absl::Time now,
                                          const absl::Status* content_check = nullptr);

  // The operations by name, without the cost of a variant. Spans and tables are valid until the
  // next call. `ready` in a result is the ticket that the slots it hands out wait for.

  // Takes out.size() blocks that belong to no sequence. Fresh pools hand out slots in ascending
  // order. Returns the ticket that they wait for. Errors: UNKNOWN_WINDOW, INVALID_COUNT (none, or
  // more than the capacity or the tenant's quota), BLOCKS_EXHAUSTED, TENANT_QUOTA_EXCEEDED.
  absl::StatusOr<Ticket> AllocateBlocks(SessionId session, WindowSize window,
                                        absl::Span<BlockHandle> out, absl::Time now);

  // Gives raw blocks back.
  // Errors: UNKNOWN_WINDOW, INVALID_COUNT (none), UNKNOWN_BLOCK (no such id), DOUBLE_FREE (free
  // already, or twice in `blocks`), STALE_HANDLE (an earlier life), FOREIGN_BLOCK (another
  // session's, a sequence's or the cache's).
  absl::Status FreeBlocks(SessionId session, WindowSize window, absl::Span<const BlockRef> blocks,
                          absl::Time now);

  // Whether the session may write the block's bytes: a raw block of its own, or a block of one of
  // its sequences that is not published yet. Cost: O(blocks of the session). Errors:
  // UNKNOWN_WINDOW, UNKNOWN_BLOCK, STALE_HANDLE, BLOCK_FINALIZED, FOREIGN_BLOCK.
  absl::Status CheckWritable(SessionId session, WindowSize window, const BlockRef& block) const;

  using Prompt = SequencePrompt;

  // Opens a sequence: matches the longest cached prefix that is valid in every window, at most all
  // but the last token, and takes room. What matched in the secondary tier moves up; of a block
  // that matches in part the first tokens are copied into a fresh one, or, where it is a tail that
  // matches whole or there is no room for a copy, it is taken over in place (rule 8), and keeps its
  // retention unless the prompt's names it. In a keyed namespace the prompt has keys of whole
  // blocks, all of which may match; every length of such a sequence is a whole number of blocks
  // (WHOLE_BLOCKS_ONLY), here and in what follows. Cost: O(tokens). Errors: SEQUENCE_EXISTS,
  // KEYS_AND_TOKENS, INVALID_ARGUMENT (a salt or tenant that is too long; extra ids or items that
  // do not fit the tokens; a retention that CheckRetention refuses), INVALID_COUNT (no tokens, or
  // room that the capacity, the quota or SequenceAccounts can never give), BLOCKS_EXHAUSTED,
  // TENANT_QUOTA_EXCEEDED, TOO_MANY_SEQUENCES, SEQUENCE_BYTES_EXHAUSTED; TenantTable::Charged's.
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

  // Takes room for `count` more tokens. A tail that a fork shares is copied first. Cost: O(1), and
  // O(new blocks). Errors: UNKNOWN_SEQUENCE, INVALID_COUNT (0, or room that the capacity or the
  // tenant's quota can never give), BLOCKS_EXHAUSTED, TENANT_QUOTA_EXCEEDED,
  // SEQUENCE_BYTES_EXHAUSTED.
  absl::StatusOr<Growth> ReserveTokens(SessionId session, SequenceId sequence, uint32_t count,
                                       absl::Time now);

  // Names the next tokens, which need room, and declares the KV of the first `computed_tokens`
  // tokens complete and visible (0: as it was). Blocks that became full and computed are in the
  // tree afterwards, and a sliding window has let go of those it passed (rule 9), but for the last
  // published block. Of a keyed sequence `keys` name the next blocks. Returns the sequence's
  // tokens. Cost: O(tokens + committed blocks). Errors: UNKNOWN_SEQUENCE, RESERVATION_EXCEEDED,
  // COMPUTED_BACKWARDS, COMPUTED_BEYOND_TOKENS, KEYS_AND_TOKENS (tokens for a keyed sequence, or
  // keys for another), WHOLE_BLOCKS_ONLY, KV_LOST (fewer `known_losses` than there are, see
  // ShortenedSequence; or it can only be freed), INVALID_ARGUMENT (more).
  absl::StatusOr<uint32_t> CommitTokens(SessionId session, SequenceId sequence,
                                        absl::Span<const TokenId> tokens, uint32_t computed_tokens,
                                        absl::Time now, uint32_t known_losses = 0,
                                        absl::Span<const ClientKey> keys = {});

  // ReserveTokens for what is missing, then CommitTokens, all or nothing. Errors: those of the two.
  absl::StatusOr<Growth> AppendTokens(SessionId session, SequenceId sequence,
                                      absl::Span<const TokenId> tokens, uint32_t computed_tokens,
                                      absl::Time now, uint32_t known_losses = 0,
                                      absl::Span<const ClientKey> keys = {});

  // AppendTokens for each sequence of a decode step. Cost: as theirs, without what an operation
  // costs by itself. Errors: INVALID_ARGUMENT (no sequence, or too many; arrays that do not go
  // together), and nothing changed.
  absl::StatusOr<AppendedStep> AppendStep(SessionId session, const pagoda::AppendStep& step,
                                          absl::Time now);

  // Opens `new_sequence` with the tokens and computed tokens of `sequence` and all its blocks with
  // computed tokens, which the two share; room for more is taken by ReserveTokens, which copies a
  // shared tail (beams, parallel samples). What the two have beside their tables is shared and does
  // not change, so only the first fork costs anything for each token that is not computed. Cost:
  // O(blocks). Errors: UNKNOWN_SEQUENCE, SEQUENCE_EXISTS, KV_LOST (it can only be freed),
  // INVALID_COUNT (more than SequenceAccounts can ever give), TOO_MANY_SEQUENCES,
  // SEQUENCE_BYTES_EXHAUSTED.
  absl::StatusOr<SequenceForked> ForkSequence(SessionId session, SequenceId sequence,
                                              SequenceId new_sequence, absl::Time now);

  // Drops all tokens but the first `token_count`, and the room behind them. What was published
  // stays cached; a block that is cut and in use elsewhere is copied first. One that only this
  // sequence uses goes on in place, and leaves the cache (Removed, truncated). Errors:
  // UNKNOWN_SEQUENCE, INVALID_COUNT (0, or above the sequence's tokens), WINDOW_PASSED,
  // BLOCKS_EXHAUSTED, TENANT_QUOTA_EXCEEDED.
  absl::StatusOr<Growth> TruncateSequence(SessionId session, SequenceId sequence,
                                          uint32_t token_count, absl::Time now);

  // Ends a sequence. Its computed tail is cached too, unless a block of the primary tier begins
  // with it: that block is then as recent as the sequence's own, and is kept at the higher priority
  // of the two. The rest of its room is free. Whenever a block enters the tree, tails that it
  // begins with and that nobody holds leave (Removed, taken over); unless the sequence's own
  // retention names the block, it is kept at the highest priority of theirs and its own. Errors:
  // UNKNOWN_SEQUENCE.
  absl::Status FreeSequence(SessionId session, SequenceId sequence, absl::Time now);

  // The running sequence, until the next call. Errors: UNKNOWN_SEQUENCE.
  absl::StatusOr<const Sequence*> FindSequence(SessionId session, SequenceId sequence) const;
  // The ticket that its slots wait for; 0: nothing. Cost: O(blocks) while copies run.
  Ticket ReadyOf(const Sequence& sequence) const;

  // --- Prefixes ---

  // How many tokens an AddSequence would match; `blocks`, where given, becomes those of the largest
  // window. Cost: O(matched tokens) and, unless the content was checked before, O(items).
  uint32_t MatchPrefix(const Prompt& prompt, std::vector<BlockHandle>* blocks) const;
  uint32_t MatchPrefix(const NamespaceKey& name_space, absl::Span<const TokenId> tokens,
                       std::vector<BlockHandle>* blocks = nullptr) const {
    return MatchPrefix(Prompt{.name_space = name_space, .tokens = tokens}, blocks);
  }

  // Likewise, with what is cached in all tiers. REQUIRES: CheckPrompt(prompt) is OK.
  MatchedPrefix DescribeMatch(const Prompt& prompt) const;

  // Errors: INVALID_COUNT (no tokens), UNKNOWN_SEQUENCE; those of TenantTable::Charged.
  absl::StatusOr<CapacityAnswer> QueryCapacity(SessionId session,
                                               const struct QueryCapacity& query) const {
    return QueryCapacity(session, query, query.name_space);
  }
  // In `name_space` instead of the query's own. `content_check`: see Prompt.
  absl::StatusOr<CapacityAnswer> QueryCapacity(SessionId session, const struct QueryCapacity& query,
                                               const NamespaceKey& name_space,
                                               const absl::Status* content_check = nullptr) const;

  // INVALID_ARGUMENT: `prompt` has a salt or tenant that is too long, or what CheckContent refuses.
  // KEYS_AND_TOKENS: it has both, or those that its namespace has not.
  absl::Status CheckPrompt(const Prompt& prompt) const;

  // Operations name a prefix by all that a block's identity has: the name space, the tokens, the
  // extra ids and the items. Of a Prompt they read these alone. Where blocks are moved, pinned or
  // kept, the prefix is what an AddSequence would match without its limit of one token less, cut at
  // its end to whole blocks and a tail that is cached as it is. Errors of all: INVALID_COUNT (no
  // tokens and no keys), INVALID_ARGUMENT and KEYS_AND_TOKENS (CheckPrompt).

  // Moves the prefix's blocks that nobody holds down to the secondary tier, from the end up to the
  // first that is held; others of no higher priority are displaced for it.
  absl::StatusOr<OffloadedPrefix> OffloadPrefix(const Prompt& prefix, absl::Time now);
  absl::StatusOr<OffloadedPrefix> OffloadPrefix(const NamespaceKey& name_space,
                                                absl::Span<const TokenId> tokens, absl::Time now) {
    return OffloadPrefix(Prompt{.name_space = name_space, .tokens = tokens}, now);
  }
  struct PrefetchOptions {
    PrefetchTarget target = PrefetchTarget::kPrimary;
    absl::Time deadline = absl::InfiniteFuture();  // Of the fetches.
  };
  // Moves the prefix's blocks in memory up, from the beginning, as far as room can be made, and
  // orders fetches of those that lie on disk alone into the last tier in memory, at most a quarter
  // of it at a time. A block that is fetched becomes matchable when all above it have.
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
  // Keeps the prefix's blocks from being evicted, in whichever tier, until UnpinPrefix or until
  // `lease` is over; in a sliding window only those that its end needs. The session's end does not
  // end it. It ends as a whole when one of its blocks leaves the tree: by ResetPrefixCache or
  // InvalidatePrefix, by a copy that fails, or in a sliding window because a block above it goes
  // and there may be no more holes. Each end is an Updated event. Where nothing is cached there is
  // no pin: PinnedPrefix::pin is 0. Errors also: INVALID_ARGUMENT (a lease that is not positive, or
  // a tenant's above max_pin_lease), PIN_BUDGET_EXCEEDED (blocks, or PinTable's limits, of all or
  // of the session's tenant), TENANT_QUOTA_EXCEEDED, INVALID_COUNT (more of the default tenant than
  // the tenant's quota).
  static constexpr size_t kMaxPins = 65'536;
  absl::StatusOr<PinnedPrefix> PinPrefix(SessionId session, const Prompt& prefix,
                                         absl::Duration lease, absl::Time now);
  absl::StatusOr<PinnedPrefix> PinPrefix(SessionId session, const NamespaceKey& name_space,
                                         absl::Span<const TokenId> tokens, absl::Duration lease,
                                         absl::Time now) {
    return PinPrefix(session, Prompt{.name_space = name_space, .tokens = tokens}, lease, now);
  }
  // A tenant ends the pins that its own sessions made; the default tenant end any. Errors:
  // UNKNOWN_PIN.
  absl::Status UnpinPrefix(PinId pin, absl::Time now, TenantId tenant = kDefaultTenant);
  // Those that the tenant's own sessions made; for the default tenant all.
  ListedPins ListPins(TenantId tenant = kDefaultTenant) const;
  // Forgets every cached block whose content, from the root on, begins with the prefix; without
  // tokens the whole namespace. What sequences hold leaves the tree and is theirs alone from then
  // on. Returns the blocks that left. Cost: O(those). Errors: INVALID_ARGUMENT (CheckPrompt).
  // `durable`, where given: when this ticket of the backup lane is done, none of it comes back from
  // a disk after a restart, also of what the disk had dropped before.
  absl::StatusOr<uint64_t> InvalidatePrefix(const Prompt& prefix, absl::Time now,
                                            Ticket* durable = nullptr);
  absl::StatusOr<uint64_t> InvalidatePrefix(const NamespaceKey& name_space,
                                            absl::Span<const TokenId> tokens, absl::Time now) {
    return InvalidatePrefix(Prompt{.name_space = name_space, .tokens = tokens}, now);
  }
  // Gives the prefix's blocks the priority and duration of the range that holds their first token;
  // a running clock starts again. For a block of another tenant than `tenant` a wish counts only
  // where KeepsAtLeast() holds. Errors also: INVALID_ARGUMENT (CheckRetention).
  absl::StatusOr<uint32_t> SetRetention(const Prompt& prefix, const SequenceRetention& retention,
                                        absl::Time now, TenantId tenant = kDefaultTenant);
  absl::StatusOr<uint32_t> SetRetention(const NamespaceKey& name_space,
                                        absl::Span<const TokenId> tokens,
                                        const SequenceRetention& retention, absl::Time now) {
    return SetRetention(Prompt{.name_space = name_space, .tokens = tokens, .retention = &retention},
                        retention, now);
  }

  // --- Copies ---

  // The copies ordered since the last call, by ticket. Whoever takes them carries them out and
  // reports each with CompleteCopy.
  std::vector<CopyOrder> TakeCopies();
  // A copy has ended. If it failed, the block it was for is lost (Removed, lost), with all below
  // it, and sequences that hold it have fewer computed tokens. Copies end in any order that
  // CopyOrder::after allows; an unknown ticket is ignored.
  void CompleteCopy(Ticket ticket, const absl::Status& status, absl::Time now);
  Ticket completed_ticket(Lane lane = Lane::kMemory) const;  // Up to it all have ended.
  Ticket last_ticket(Lane lane = Lane::kMemory) const;       // None has a higher one.

  // --- A tier on disk (block_manager_disk.cc) ---

  // What the calls since the last one have for the carrier, in order. Whoever takes them reports
  // each order and each erase with CompleteFile.
  FileCommands TakeFileCommands();
  // An order or an erase has ended. Of a backup that succeeded the block has one more copy; of a
  // fetch its nearest copy is in memory, unless it left meanwhile, its deadline is over or the
  // block above it is not in memory. A fetch that fails loses the copy on disk: a block without
  // another one leaves (Removed, lost), with all below it. A ticket that is not known is ignored.
  void CompleteFile(Lane lane, Ticket ticket, const absl::Status& status, absl::Time now);

  // The slots that got or lost content since the last call, in order: to be written down before the
  // copies begin and before anybody is answered.
  std::vector<SlotChange> TakeSlotChanges();

  // --- Time ---

  // Does what time brings: expired priorities and pins, at most kMaxEndsByTime blocks of each (and
  // one pin at least), and at most `max_blocks` moves down for the watermark. Every other call
  // applies as many expiries first, too, the earliest ones. Returns the blocks moved.
  uint32_t Maintain(absl::Time now, uint32_t max_blocks);
  // Whether something has expired and not ended yet, because that was more than one call ends.
  bool HasExpired(absl::Time now) const;

  // --- Operators ---

  // Forgets every cached prefix. Blocks that sequences hold become theirs alone. Returns the blocks
  // that left the tree. Cost: O(capacity).
  uint64_t ResetPrefixCache(absl::Time now);
  // The same in steps of at most about `max_blocks` blocks, between which other calls may come: the
  // first ones end the pins that there were when it began, the next one takes all that is cached
  // out of the tree, and the rest let go of it, block by block. Until its turn comes a block that
  // nobody holds is evictable, and no prefix is found there. A step begins a reset where none is
  // under way.
  struct ResetStep {
    uint64_t removed_blocks = 0;  // That left the tree in this step.
    bool done = false;
  };
  ResetStep StepReset(uint32_t max_blocks, absl::Time now);
  // Whether there are blocks that a reset is still to let go; whether this is one of them.
  bool resetting() const;
  bool IsCutOff(WindowSize window, BlockId id) const;

  ManagerStats Stats() const;
  const TenantTable& tenants() const;
  std::vector<TenantUsage> TenantUses() const;  // By tenant.
  const CacheInfo& info() const { return info_; }
  Epoch epoch() const;

  // --- Lists (block_manager_lists.cc) ---

  // At most `limit` sessions, ascending, from the id `from` on.
  std::vector<SessionRow> Sessions(SessionId from, size_t limit, absl::Time now) const;
  // At most `limit` sequences, ascending by session and id, from `from` on; those of session `only`
  // where it is given. Cost: O(limit + sessions).
  std::vector<SequenceRow> Sequences(std::optional<SessionId> only, SequenceKey from,
                                     size_t limit) const;
  // What is cached of a prompt. Cost: O(tokens). Errors: INVALID_COUNT (no tokens),
  // INVALID_ARGUMENT (CheckPrompt).
  absl::StatusOr<InspectedPrefix> InspectPrefix(const Prompt& prompt) const;
  absl::StatusOr<InspectedPrefix> InspectPrefix(const NamespaceKey& name_space,
                                                absl::Span<const TokenId> tokens) const {
    return InspectPrefix(Prompt{.name_space = name_space, .tokens = tokens});
  }

  // The states of the slots [from, from + states.size()) of a tier, of the window with this index.
  // Cost: O(states).
  void SlotStates(uint32_t window_index, Tier tier, uint32_t from,
                  absl::Span<SlotState> states) const;
  // The prefix tree of the largest window, by block id from `from` on; ids are below
  // num_prefix_nodes(). Cost: O(nodes).
  uint32_t num_prefix_nodes() const;
  void PrefixNodes(uint32_t from, absl::Span<PrefixNode> nodes) const;
  // Of the largest window; nothing where it is not cached any more. Cost: O(1).
  std::optional<PrefixUse> DescribePrefix(const UsedPrefix& prefix) const;

  // --- Events ---

  // The events since the last call, in order. The first call gives one Created event a window.
  EventBatch TakeEvents();
  Revision revision() const;  // Of the last event.
  // The pools are about to go: one Removed event a window says so, and nothing is recorded after
  // these. The cache goes on as before; a second call does nothing.
  void RemovePools(absl::Time now);

  // The next piece of a snapshot (events/snapshot.h): at most `max_blocks` ids, and about
  // `max_tokens` tokens. REQUIRES: the events so far were taken, and the position is of this
  // manager. Cost: O(max_blocks + max_tokens).
  SnapshotPiece ReadSnapshot(const SnapshotPosition& from, size_t max_blocks, size_t max_tokens,
                             absl::Time now) const;

  // --- For tests ---

  // Checks every invariant from scratch; a broken one stops the process. Cost: O(capacity + tokens
  // held).
  void CheckInvariants() const;
  // The prefix tree of a window, ascending by block id, to compare with a shadow.
  std::vector<TreeEntry> DumpTree(WindowSize window) const;
  // The blocks of a window that are taken and not in its tree, ascending: raw and private ones, and
  // those whose bytes lie in a cached block's slot. With LifecycleEvents::kAll the events say which
  // these are (events/shadow_allocations.h).
  std::vector<BlockId> DumpAllocated(WindowSize window) const;

 private:
  // In block_manager_parts.h, so that a change of a part does not compile all callers again.
  struct Parts;

  BlockManager(CacheInfo info, std::unique_ptr<Parts> parts);

  // A const method changes no part.
  Parts& parts() { return *parts_; }
  const Parts& parts() const { return *parts_; }

  const CacheInfo info_;
  const std::unique_ptr<Parts> parts_;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_BLOCK_MANAGER_H_
