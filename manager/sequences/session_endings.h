// How sessions and quarantines end. Their blocks are freed in chunks, so that a large session does
// not make other calls wait long for the lock.
#ifndef PAGODA_MANAGER_SEQUENCES_SESSION_ENDINGS_H_
#define PAGODA_MANAGER_SEQUENCES_SESSION_ENDINGS_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "manager/accounts/sequence_accounts.h"
#include "manager/accounts/session_table.h"
#include "manager/api/session_calls.h"
#include "manager/api/stats.h"
#include "manager/sequences/deferred_releases.h"
#include "manager/sequences/operation_runner.h"
#include "manager/sequences/raw_blocks.h"
#include "manager/sequences/running_sequences.h"
#include "manager/sequences/session_ending.h"
#include "manager/services/operation_scope.h"
#include "manager/window/window_block_manager.h"
#include "manager/window/window_set.h"
#include "manager/words/ids.h"

namespace pagoda {

// Owns the endings and the quarantines. Thread-compatible.
//
// Invariants
// 1. A session is over at once. Its blocks are freed later, those of the oldest ending first.
// 2. If a session ends without its client, the blocks that it could write are quarantined. A
// quarantine counts each block once.
class SessionEndings {
 public:
  // All references outlive the endings.
  SessionEndings(const WindowSet& windows, SequenceAccounts& accounts, SessionTable& sessions,
                 DeferredReleases& deferred, OperationRunner& runner, RawBlocks& raw_blocks,
                 RunningSequences& sequences)
      : windows_(windows),
        accounts_(accounts),
        sessions_(sessions),
        deferred_(deferred),
        runner_(runner),
        raw_blocks_(raw_blocks),
        sequences_(sequences) {}
  SessionEndings(const SessionEndings&) = delete;
  SessionEndings& operator=(const SessionEndings&) = delete;

  // --- Ends ---

  // Frees the session's sequences and raw blocks. Committed blocks stay cached. With this call the
  // client states that nothing of it touches the blocks any more. If the session is already over
  // and quarantined, the call is this acknowledgement and ends the quarantine. The session is over
  // at once: no further call of it is accepted. Errors: as BlockManager::CheckSession.
  absl::Status CloseSession(SessionRef ref, absl::Time now, EndIn how = EndIn::kOneCall);
  // Closes the sessions whose lease has run out. Returns how many. Cost: O(sessions). `pause`: a
  // time before `now` in which the caller could hear no renewal. No lease ran in it.
  size_t ExpireSessions(absl::Time now, EndIn how = EndIn::kOneCall,
                        absl::Duration pause = absl::ZeroDuration());
  // Ends a session as if its lease had run out, for an operator. Errors: UNKNOWN_SESSION.
  absl::Status EndSession(SessionId session, absl::Time now, EndIn how = EndIn::kOneCall);
  // Frees blocks of the oldest session that is over, or of the oldest released quarantine: about
  // `max_blocks` blocks, but at least one whole sequence. One call does one kind of work: first
  // deferred releases, then sequences, then raw blocks. Returns whether anything is left to free.
  bool ContinueEndings(absl::Time now, uint32_t max_blocks);
  // Whether the session is over and still has blocks.
  bool IsEnding(SessionId session) const;
  // The sessions and quarantines that have begun to end, and that have ended. The oldest ends
  // first.
  uint64_t begun() const { return begun_; }
  uint64_t ended() const { return begun_ - endings_.size(); }

  // --- Quarantines ---

  // Whether blocks of the session are quarantined. Cost: O(log quarantines). QuarantinedSessions()
  // costs the same, plus the number of sessions that it returns.
  bool IsQuarantined(SessionId session) const { return quarantines_.contains(session); }
  // At most `limit` sessions with quarantined blocks, ascending, starting at the id `from`.
  std::vector<SessionId> QuarantinedSessions(SessionId from, size_t limit) const;
  // All quarantines, ascending by session. Cost: O(quarantines).
  std::vector<QuarantineInfo> Quarantines() const;
  // Ends a quarantine. Returns the number of its blocks. Errors: UNKNOWN_QUARANTINE.
  absl::StatusOr<uint32_t> ReleaseQuarantine(SessionId session, absl::Time now,
                                             EndIn how = EndIn::kOneCall);
  // After a warm restart a client of the earlier run may still write. So every primary slot that is
  // free now is quarantined, as session 0. REQUIRES: nothing but a restore has happened yet.
  void QuarantineFree(absl::Time now);

  void AddStats(ManagerStats* stats) const;
  const SessionCounters& counters() const { return counters_; }

  // --- For tests ---

  // Adds the holders of the window with this index.
  void AddHolders(size_t window_index, WindowBlockManager::Holders* holders) const;
  // Adds the bytes of the deferred releases, by TenantId.
  void AddDeferredBytes(std::vector<uint64_t>* bytes) const;
  // The number of deferred releases in the endings that are charged to their sessions.
  std::map<SessionId, size_t> DeferredOfSessions() const;
  void CheckQuarantines() const;

 private:
  void Begin(SessionId id, SessionEnd how);
  void Finish(absl::Time now, EndIn how);
  void EndSequences(OperationScope& op, const Ending& ending, uint32_t max_blocks);
  void FreeRawBlocks(OperationScope& op, Ending& ending, uint32_t max_blocks);
  void CountQuarantined(Ending& ending, uint32_t max_blocks);
  // Closes a session whose only blocks left are those to be quarantined.
  void CloseEnded(Ending& ending, absl::Time now);

  const WindowSet& windows_;
  SequenceAccounts& accounts_;
  SessionTable& sessions_;
  DeferredReleases& deferred_;
  OperationRunner& runner_;
  RawBlocks& raw_blocks_;
  RunningSequences& sequences_;
  std::map<SessionId, Quarantine> quarantines_;
  std::deque<Ending> endings_;  // The oldest first.
  uint64_t begun_ = 0;
  uint64_t quarantined_blocks_ = 0;  // In all quarantines.
  SessionCounters counters_;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_SEQUENCES_SESSION_ENDINGS_H_
