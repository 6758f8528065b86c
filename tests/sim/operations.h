// The operations of the simulated clients and operators.
#ifndef PAGODA_TESTS_SIM_OPERATIONS_H_
#define PAGODA_TESTS_SIM_OPERATIONS_H_

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "manager/api/operation.h"
#include "tests/sim/world.h"

namespace pagoda::sim {

// By kind, in the order of the table in operations.cc.
std::vector<uint32_t> OperationWeights();
// Draws one and runs it.
void RunOperation(World& world);

// --- Sequences (add_sequence.cc, sequence_operations.cc, growth_operations.cc) ---
void AddSequenceOp(World& world);
void AppendOp(World& world);
void ReserveOp(World& world);
void CommitOp(World& world);
void ForkOp(World& world);
void TruncateOp(World& world);
void FreeSequenceOp(World& world);
void DescribeOp(World& world);

// --- Raw blocks (raw_operations.cc) ---
void AllocateOp(World& world);
void FreeBlocksOp(World& world);

// --- What is known of blocks (block_operations.cc) ---
void FillBlocksOp(World& world);
void DescribeBlocksOp(World& world);

// --- Prefixes (prefix_operations.cc) ---
void MatchOp(World& world);
void CapacityOp(World& world);
void OffloadOp(World& world);
void PrefetchOp(World& world);
void PinOp(World& world);
void UnpinOp(World& world);
void InvalidateOp(World& world);
void RetentionOp(World& world);
void UnpinOne(World& world, PinId pin);

// --- Sessions, time and operators (session_operations.cc) ---
void OpenSessionOp(World& world);
void CloseSessionOp(World& world);
void LeaseOp(World& world);
void ExpireSessionsOp(World& world);
void QuarantineOp(World& world);
void CopiesOp(World& world);
void WaitOp(World& world);
void ClockJumpOp(World& world);
void MaintainOp(World& world);
void ResetOp(World& world);
void RestartOp(World& world);

// --- Endings (ending_operations.cc) ---
void EndSession(World& world, SimSession& session);
void EndQuarantine(World& world, size_t index);
// Frees the next part of the oldest ending.
void ContinueEnding(World& world);

// --- Shared parts (client_steps.cc) ---

// An open session, in a new batch or in the running one; nullptr if there is none. For a call about
// a sequence, usually a session that has one.
enum class About : uint8_t { kAnything, kSequence };
SimSession* EnterSession(World& world, About about = About::kAnything);
// One of the session's running sequences. If it has none, any sequence.
SimSequence& PickSequence(World& world, SimSession& session);
// A random wish, as often as the configuration says.
SequenceRetention DrawRetention(World& world, uint32_t tokens);
// Whether this call is to have a wrong argument.
bool Wrong(World& world);

// Runs an operation by value and follows its events.
template <class Result>
absl::StatusOr<Result> Call(World& world, SimSession& session, Operation operation,
                            const Scope& scope) {
  world.ApplyTime();
  absl::StatusOr<OperationResult> result =
      world.core->Execute(session.ref.id, operation, world.now);
  world.Absorb(scope);
  if (!result.ok()) return result.status();
  return std::get<Result>(*std::move(result));
}

// Sets the client's table to the answer's entries from `first_block` on. New entries must be blocks
// without a holder.
void AdoptTable(World& world, SimTable& table, uint32_t window, uint32_t first_block,
                const std::vector<BlockHandle>& blocks);
// Checks a fresh block for a client: nothing holds it, and no cached block lies in its slot.
void AdoptFresh(World& world, uint32_t window, const BlockHandle& handle);
// The engine writes the values that it computes for tokens [computed, end).
void WriteTokens(World& world, SimSequence& sequence, uint32_t end);
// Whether a sequence has, in every window, the blocks that its next token sees. After a failed copy
// it may need blocks that a window has passed. Then it can only be freed.
bool CanGoOn(const World& world, const SimSequence& sequence, uint32_t computed);
// Whether the engine can continue after the computed tokens: all that it reads is there, and no
// copy is bringing it.
bool CanCompute(const World& world, const SimSequence& sequence);
// After more tokens were computed: checks the blocks that must be in the tree now, and those that a
// window has passed.
void FollowCommit(World& world, SimSession& session, SimSequence& sequence);
// After a sequence has ended: its computed tail is cached too, and its blocks are released.
enum class ComputedTail { kPublished, kDropped };
void FollowEnd(World& world, SimSession& session, SimSequence& sequence,
               ComputedTail tail = ComputedTail::kPublished);
// How many blocks have fallen from the first tier.
inline uint64_t CountFirstFalls(const World& world) {
  return world.coverage.count(Met::kOffloaded) - world.coverage.count(Met::kMiddleFell);
}
// What the sequences' wishes allow.
Scope PublishScope(SimSequence& sequence, Reasons reasons);
// Whether the sequence's publishing can change priorities.
bool SetsPriorities(const SimSequence& sequence);

}  // namespace pagoda::sim

#endif  // PAGODA_TESTS_SIM_OPERATIONS_H_
