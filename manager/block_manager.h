// The core: who holds which block, what is cached, who goes next. A deterministic state machine
// without I/O, threads or clocks.
#ifndef PAGODA_MANAGER_BLOCK_MANAGER_H_
#define PAGODA_MANAGER_BLOCK_MANAGER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "events/event.h"
#include "manager/cache_client.h"
#include "manager/event_recorder.h"
#include "manager/ids.h"
#include "manager/operation.h"
#include "manager/sequence.h"
#include "manager/session_table.h"
#include "manager/stats.h"
#include "manager/window_block_manager.h"
#include "pools/layout.h"
#include "pools/pool.h"
#include "pools/types.h"

namespace pagoda {

// Which raw block calls are events too.
enum class LifecycleEvents : uint8_t { kOff, kRaw };

// Thread-compatible: the owner holds one lock around it (SharedManager does). Time comes in with
// every call and never goes back. The same calls with the same arguments give the same results and
// the same events.
//
// A call either succeeds or fails without a trace. After every call:
// 1. free + cached + active + pinned + in flight = capacity, by window and tier (rule 5).
// 2. A tree that applies the events in order equals the prefix tree (the events' law).
// 3. A block's reference count is the number of its holders; a held block's path to the root is
// held (rule 13).
class BlockManager {
 public:
  struct Options {
    CacheLayout layout;
    // Slots of the primary tier, one entry for each of layout.windows().
    std::vector<uint32_t> primary_blocks;
    // Handed to clients as they are; the core never touches memory.
    std::vector<PoolMapping> pool_mappings;
    LifecycleEvents lifecycle_events = LifecycleEvents::kRaw;
    RecordEvents record_events = RecordEvents::kYes;
    Epoch epoch;
    uint64_t seed = 0;  // For session tokens.
    uint32_t max_sessions = 4096;
    absl::Time start_time = absl::UnixEpoch();
  };

  // Errors: INVALID_ARGUMENT for a window without blocks, and for what this version does not serve:
  // more than one window, a window other than full attention.
  static absl::StatusOr<std::unique_ptr<BlockManager>> Create(Options options);

  // --- Sessions ---

  struct OpenedSession {
    SessionRef ref;
    absl::Duration lease;
  };
  // The session lives until CloseSession, or until `lease` passes without a sign of life.
  // InfiniteDuration never passes. Errors: TOO_MANY_SESSIONS.
  absl::StatusOr<OpenedSession> OpenSession(std::string client_name, absl::Duration lease,
                                            absl::Time now);
  // UNKNOWN_SESSION or STALE_SESSION unless `ref` names a living session.
  absl::Status CheckSession(SessionRef ref) const;
  // Starts the lease again. Errors: those of CheckSession.
  absl::StatusOr<absl::Duration> KeepAlive(SessionRef ref, absl::Time now);
  // While a stream is attached the lease does not run; when the last one is detached it starts.
  // Errors: those of CheckSession.
  absl::Status AttachStream(SessionRef ref);
  void DetachStream(SessionId session, absl::Time now);
  // Frees the session's sequences and raw blocks; committed blocks stay cached. Errors: those of
  // CheckSession.
  absl::Status CloseSession(SessionRef ref, absl::Time now);
  // Closes the sessions whose lease has run out. Returns how many. O(sessions).
  size_t ExpireSessions(absl::Time now);

  // --- Operations ---

  // Runs one operation for a living session (the caller has checked it).
  absl::StatusOr<OperationResult> Execute(SessionId session, const Operation& operation,
                                          absl::Time now);

  // The operations by name, without the cost of a variant. Spans and tables are valid until the
  // next call.

  // Takes out.size() blocks that belong to no sequence. Fresh pools hand out slots in ascending
  // order. Errors: UNKNOWN_WINDOW, INVALID_COUNT (none, or more than the capacity),
  // BLOCKS_EXHAUSTED.
  absl::Status AllocateBlocks(SessionId session, WindowSize window, absl::Span<BlockHandle> out,
                              absl::Time now);

  // Gives raw blocks back.
  // Errors: UNKNOWN_WINDOW, INVALID_COUNT (none), UNKNOWN_BLOCK (no such id), DOUBLE_FREE (free
  // already, or twice in `blocks`), STALE_HANDLE (an earlier life), FOREIGN_BLOCK (another
  // session's, a sequence's or the cache's).
  absl::Status FreeBlocks(SessionId session, WindowSize window, absl::Span<const BlockRef> blocks,
                          absl::Time now);

  // Opens a sequence: matches the longest cached prefix of `tokens`, at most all but the last one,
  // and takes room for `room_tokens` tokens (0: all of them; less than the match: as many as
  // matched). Cost: O(tokens). Returns the matched tokens. Errors: SEQUENCE_EXISTS,
  // INVALID_ARGUMENT (a salt above kMaxCacheSaltBytes), INVALID_COUNT (no tokens, or room that the
  // capacity can never hold), BLOCKS_EXHAUSTED.
  absl::StatusOr<uint32_t> AddSequence(SessionId session, SequenceId sequence,
                                       const NamespaceKey& name_space,
                                       absl::Span<const TokenId> tokens, uint32_t room_tokens,
                                       absl::Time now);

  // Takes room for `count` more tokens. Cost: O(1), and O(new blocks). Returns how many blocks each
  // table grew by. Errors: UNKNOWN_SEQUENCE, INVALID_COUNT (0, or room that the capacity can never
  // hold), BLOCKS_EXHAUSTED.
  absl::StatusOr<uint32_t> ReserveTokens(SessionId session, SequenceId sequence, uint32_t count,
                                         absl::Time now);

  // Names the next tokens, which need room, and declares the KV of the first `computed_tokens`
  // tokens complete and visible (0: as it was). Blocks that became full and computed are in the
  // tree afterwards. Returns the sequence's tokens. Cost: O(tokens + committed blocks). Errors:
  // UNKNOWN_SEQUENCE, ROOM_EXCEEDED, COMPUTED_BACKWARDS, COMPUTED_BEYOND_TOKENS.
  absl::StatusOr<uint32_t> CommitTokens(SessionId session, SequenceId sequence,
                                        absl::Span<const TokenId> tokens, uint32_t computed_tokens,
                                        absl::Time now);

  // ReserveTokens for what is missing, then CommitTokens, all or nothing. Returns how many blocks
  // each table grew by. Errors: those of the two.
  absl::StatusOr<uint32_t> AppendTokens(SessionId session, SequenceId sequence,
                                        absl::Span<const TokenId> tokens, uint32_t computed_tokens,
                                        absl::Time now);

  // Ends a sequence: its computed tail block is cached too, where its content is new; the rest of
  // its room is free. Errors: UNKNOWN_SEQUENCE.
  absl::Status FreeSequence(SessionId session, SequenceId sequence, absl::Time now);

  // How much of `tokens` is cached, at most all but the last one; `blocks`, if given, gets the
  // blocks. Changes nothing.
  uint32_t MatchPrefix(const NamespaceKey& name_space, absl::Span<const TokenId> tokens,
                       std::vector<BlockHandle>* blocks = nullptr) const;

  // A sequence's state. Errors: UNKNOWN_SEQUENCE.
  absl::StatusOr<const Sequence*> FindSequence(SessionId session, SequenceId sequence) const;

  // --- Operators ---

  // Forgets every cached prefix. Blocks that sequences hold become theirs alone. Returns the blocks
  // that left the tree. Cost: O(capacity).
  uint64_t ResetPrefixCache(absl::Time now);

  ManagerStats Stats() const;
  const CacheInfo& info() const { return info_; }
  Epoch epoch() const { return options_.epoch; }

  // --- Events ---

  // The events since the last call, in order. The first call gives one Created event a window.
  std::vector<Event> TakeEvents() { return recorder_.Take(); }
  // The revision of the last event.
  Revision revision() const { return recorder_.last(); }

  // --- For tests ---

  // Checks every invariant from scratch; a broken one stops the process. Cost: O(capacity + tokens
  // held).
  void CheckInvariants() const;
  // The prefix tree of a window, ascending by block id, to compare with a shadow.
  std::vector<TreeEntry> DumpTree(WindowSize window) const;

 private:
  explicit BlockManager(Options options);

  absl::StatusOr<WindowBlockManager*> RequireWindow(WindowSize window);
  absl::StatusOr<Sequence*> RequireSequence(SessionId session, SequenceId sequence);
  Session& RequireSession(SessionId session);

  // The matched tokens that hold in every window.
  std::vector<WindowBlockManager::Match> FindPrefixes(const NamespaceKey& name_space,
                                                      absl::Span<const TokenId> tokens) const;
  // Whether every window can give `sequence` room up to `room_tokens`.
  absl::Status CheckRoom(uint64_t room_tokens) const;
  absl::Status CheckGrowth(uint32_t window_index, uint32_t new_blocks, uint32_t available) const;
  absl::Status CheckGrowth(const Sequence& sequence, uint64_t room_tokens) const;
  absl::Status CheckCommit(const Sequence& sequence, uint64_t token_count, uint64_t room_tokens,
                           uint32_t computed_tokens) const;
  uint32_t Grow(Sequence& sequence, uint32_t room_tokens);
  void Place(Sequence& sequence, absl::Span<const TokenId> tokens);
  void PlaceWaiting(Sequence& sequence);
  void WriteTokens(Sequence& sequence, uint32_t position, absl::Span<const TokenId> tokens);
  void Commit(Sequence& sequence, absl::Span<const TokenId> tokens, uint32_t computed_tokens);
  void EndSequence(SequenceKey key);
  void EndSession(SessionId id, absl::Time now);
  void CheckAccounting() const;

  const Options options_;
  CacheInfo info_;
  const TokensPerBlock tokens_per_block_;
  EventRecorder recorder_;
  std::vector<std::unique_ptr<WindowBlockManager>> windows_;  // Ascending by window.
  SessionTable sessions_;
  absl::flat_hash_map<SequenceKey, std::unique_ptr<Sequence>> sequences_;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_BLOCK_MANAGER_H_
