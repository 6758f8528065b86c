// What the simulated clients and operators do.
#ifndef PAGODA_TESTS_SIM_OPERATIONS_H_
#define PAGODA_TESTS_SIM_OPERATIONS_H_

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "manager/operation.h"
#include "tests/sim/world.h"

namespace pagoda::sim {

// By kind, in the order of the table in operations.cc.
std::vector<uint32_t> OperationWeights();
// Draws one and runs it.
void RunOperation(World& world);

// --- Sequences (sequence_operations.cc, growth_operations.cc) ---
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
// Frees the next thing that the oldest ending has.
void ContinueEnding(World& world);

// --- What they share (client_steps.cc) ---

// A living session, in a batch of its own or the one that runs; nullptr where there is none. For a
// call about a sequence mostly one that has any.
enum class About : uint8_t { kAnything, kSequence };
SimSession* EnterSession(World& world, About about = About::kAnything);
// One of the session's running sequences; where there is none, any of them.
SimSequence& PickSequence(World& world, SimSession& session);
// A random wish, as often as the configuration says.
SequenceRetention DrawRetention(World& world, uint32_t tokens);
// Whether this call is to have a wrong argument.
bool Wrong(World& world);

// Runs an operation by value, follows its events.
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

// The client's table becomes what an answer says from `first_block` on. Entries that are new must
// be blocks that nobody has.
void AdoptTable(World& world, SimTable& table, uint32_t window, uint32_t first_block,
                const std::vector<BlockHandle>& blocks);
// A block that a client gets fresh: nobody holds it, and no cached block lies in its slot.
void AdoptFresh(World& world, uint32_t window, const BlockHandle& handle);
// The engine writes what it computes for tokens [computed, end).
void WriteTokens(World& world, SimSequence& sequence, uint32_t end);
// Whether a sequence has, in every window, the blocks that its next token sees: after a failed copy
// it may need what a window has passed, and can only be freed.
bool CanGoOn(const World& world, const SimSequence& sequence, uint32_t computed);
// Whether the engine can go on from the computed tokens: nothing that it reads is missing or on its
// way.
bool CanCompute(const World& world, const SimSequence& sequence);
// After more tokens are computed: what must be in the tree now, and what a window has passed.
void FollowCommit(World& world, SimSession& session, SimSequence& sequence);
// After a sequence has ended: its computed tail is cached, too; its blocks are let go.
enum class ComputedTail { kPublished, kDropped };
void FollowEnd(World& world, SimSession& session, SimSequence& sequence,
               ComputedTail tail = ComputedTail::kPublished);
// How many blocks have fallen from the first tier.
inline uint64_t CountFirstFalls(const World& world) {
  return world.coverage.count(Met::kOffloaded) - world.coverage.count(Met::kMiddleFell);
}
// What the sequences' wishes allow.
Scope PublishScope(SimSequence& sequence, Reasons reasons);
// Whether what it publishes may change priorities.
bool SetsPriorities(const SimSequence& sequence);

}  // namespace pagoda::sim

#endif  // PAGODA_TESTS_SIM_OPERATIONS_H_
