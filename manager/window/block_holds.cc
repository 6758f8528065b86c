#include "manager/window/block_holds.h"

#include <cstdint>

#include "absl/time/time.h"
#include "events/event.h"
#include "pools/types.h"

namespace pagoda {

BlockHolds::BlockHolds(const WindowFloor& floor, WindowCounts& counts)
    : WindowPart(floor), counts_(counts), passed_(sliding() ? store_.num_ids() : 0) {}

// --- Holding and releasing ---

void BlockHolds::Hold(OperationScope& op, BlockId id, TenantId tenant) {
  const bool is_first = residency_.Hold(op, id, tenant);
  if (is_first && store_[id].timed) expiries_.Stop(id);
  if (is_first) counts_.Held(id);
}

void BlockHolds::EndHold(OperationScope& op, BlockId id, TenantId tenant) {
  switch (residency_.EndHold(op, id, tenant)) {
    case TierResidency::AfterHold::kEvictable:
      if (sliding() && passed_.IsPassed(id)) residency_.candidates().Passed(op, id);
      if (store_[id].timed) StartClock(op, id);
      counts_.Released(op, id);
      return;
    case TierResidency::AfterHold::kFreed:
      ++counts_.counters().freed_blocks;
      return;
    case TierResidency::AfterHold::kHeld:
    case TierResidency::AfterHold::kForgotten:
      return;
  }
}

void BlockHolds::Release(OperationScope& op, BlockId id, TenantId tenant) {
  Session* session = op.deferring;
  if (session == nullptr) return EndHold(op, id, tenant);
  DeferRelease(id, tenant, *session);
}

void BlockHolds::HoldUntilStep(BlockId id, TenantId tenant, Session& session) {
  residency_.HoldAgain(id, tenant);
  DeferRelease(id, tenant, session);
}

// The deferred release takes over the hold.
void BlockHolds::DeferRelease(BlockId id, TenantId tenant, Session& session) {
  session.deferred.push_back({.step = session.step,
                              .window = static_cast<uint16_t>(index()),
                              .tenant = tenant,
                              .block = id});
  residency_.counts().AddDeferred(id);
}

void BlockHolds::EndDeferredRelease(OperationScope& op, BlockId id, TenantId tenant) {
  residency_.counts().RemoveDeferred(id);
  EndHold(op, id, tenant);
}

void BlockHolds::HoldFree(OperationScope& op, std::deque<DeferredRelease>& deferred) {
  const uint32_t free = residency_.slots().free_slots(kPrimaryTier);
  counts_.Allocated(op, free);
  for (uint32_t i = 0; i < free; ++i) {
    const BlockId id = residency_.Take(op, BlockState::kPrivate);
    deferred.push_back(
        {.step = 0, .window = static_cast<uint16_t>(index()), .tenant = op.tenant, .block = id});
    residency_.counts().AddDeferred(id);
  }
}

// --- Retention ---

BlockRetention BlockHolds::RetentionAt(BlockId id) const {
  const Block& block = store_[id];
  return {.priority = block.priority(),
          .duration = block.timed ? expiries_.duration(id) : absl::InfiniteDuration()};
}

void BlockHolds::SetPriority(OperationScope& op, BlockId id, Priority priority) {
  const Priority old = store_[id].priority();
  if (old == priority) return;
  if (!tree_.IsCutOff(id)) {
    recorder().PriorityChanged(window(), tree_.Named(id), {old, priority}, accounts().owner(id));
  }
  residency_.SetPriority(op, id, priority);
}

void BlockHolds::SetRetention(OperationScope& op, BlockId id, const BlockRetention& retention) {
  SetPriority(op, id, retention.priority);
  Block& block = store_[id];
  // A block at the default priority has nothing to fall to.
  const bool timed =
      retention.duration != absl::InfiniteDuration() && retention.priority != kDefaultPriority;
  if (block.timed || timed) {
    expiries_.SetDuration(id, timed ? retention.duration : absl::InfiniteDuration());
  }
  block.timed = timed;
  if (timed && block.refs == 0) StartClock(op, id);
}

bool BlockHolds::ApplyRetention(OperationScope& op, BlockId id, const BlockRetention& wish,
                                TenantId tenant) {
  const bool counts = MayLower(id, tenant) || KeepsAtLeast(wish, RetentionAt(id));
  if (counts) SetRetention(op, id, wish);
  return counts;
}

void BlockHolds::RaiseRetention(OperationScope& op, BlockId id,
                                const std::optional<BlockRetention>& had) {
  if (had.has_value() && had->priority > store_[id].priority()) SetRetention(op, id, *had);
}

void BlockHolds::StartClock(OperationScope& op, BlockId id) {
  expiries_.Start(id, op.now);
  services_.deadlines->EndsAt(expiries_.next());
}

void BlockHolds::ExpirePriorities(OperationScope& op) {
  for (const BlockId id : expiries_.TakeExpired(op.now, kMaxEndsByTime)) {
    store_[id].timed = 0;
    ++counts_.counters().expired_priorities;
    SetPriority(op, id, kDefaultPriority);
  }
  services_.deadlines->EndsAt(expiries_.next());
}

}  // namespace pagoda
