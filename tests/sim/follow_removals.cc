// Follow: blocks that leave the tree.
#include <optional>

#include "tests/sim/follow.h"

namespace pagoda::sim {

void Follow::Apply(uint32_t window, const RemovedEvent& removed) {
  const RemovalReason reason = removed.reason;
  const bool all_lives = world_.config.lifecycle == LifecycleEvents::kAll;
  const bool listed = removed.scope == RemovedEvent::Scope::kBlocks;
  if (reason == RemovalReason::kReleased && listed && all_lives) {
    SIM_CHECK(removed.hashes.empty(), "law: what was not cached has no hash");
    world_.coverage.Add(Met::kReleased, removed.blocks.size());
    return;
  }
  SIM_CHECK((scope_.reasons & Bit(reason)) != 0,
            "blocks leave by an operation that does not do that: ", RemovalReasonName(reason));
  if (reason == RemovalReason::kReleased && listed) return;
  if (removed.scope == RemovedEvent::Scope::kPools) {
    world_.on_order.AllLeft(window);
    return world_.shadows[window].Clear();
  }
  if (removed.scope == RemovedEvent::Scope::kWindow) {
    SIM_CHECK(reason == RemovalReason::kCleared, "only a reset removes everything");
    return ClearWindow(window);
  }
  SIM_CHECK(!removed.blocks.empty() && removed.blocks.size() == removed.hashes.size() &&
                removed.blocks.size() == removed.end_tokens.size(),
            "law: ids, hashes and end tokens of a removal differ in number");
  for (size_t i = 0; i < removed.blocks.size(); ++i) RemoveBlock(window, removed, i);
}

// By a reset.
void Follow::ClearWindow(uint32_t window) {
  Shadow& shadow = world_.shadows[window];
  world_.coverage.Add(Met::kCleared);
  for (uint32_t id = 0; id < shadow.num_ids(); ++id) {
    if (shadow.node(id).cached()) DropDuplicatesOf(window, id);
  }
  shadow.Clear();
  world_.on_order.AllLeft(window);
  for (SimSession& session : world_.sessions) {
    for (SimSequence& sequence : session.sequences) {
      SimTable& table = sequence.tables[window];
      table.detached = table.detached || sequence.running;
    }
  }
}

// The removal's block of that index.
void Follow::RemoveBlock(uint32_t window, const RemovedEvent& removed, size_t index) {
  Shadow& shadow = world_.shadows[window];
  const uint32_t id = removed.blocks[index].value();
  const Node& node = shadow.node(id);
  SIM_CHECK(node.cached(), "law: block ", id, " removed but not cached");
  if (Bit(removed.reason) & kForSpace) NoteLeftForSpace(window, id, removed.reason);
  if (removed.reason == RemovalReason::kTakenOver) {
    SIM_CHECK(world_.ledgers[window][id].refs == 0, "block ", id, " is taken over while held");
    world_.taken_over.push_back(
        {{window, BlockId{id}}, node, world_.ledgers[window][id].retention()});
    std::erase(stored_, HeldBlock{window, BlockId{id}});
  }
  CountRemoval(removed.reason, node.tier);
  DropDuplicatesOf(window, id);
  world_.on_order.BlockLeft(window, id);
  const uint32_t holes = shadow.holes();
  shadow.Remove(removed.blocks[index], removed.hashes[index], removed.end_tokens[index]);
  if (shadow.holes() > holes) world_.coverage.Add(Met::kHole);
  // A hole that the same call fills again gets other bytes.
  if (scope_.publisher != nullptr && (world_.ledgers[window][id].refs == 0 || LetGo(window, id))) {
    world_.ledgers[window].Unplace(id);
  }
}

// A block that leaves to free a slot is a victim, or leaves with a block above it.
void Follow::NoteLeftForSpace(uint32_t window, uint32_t id, RemovalReason reason) {
  const Shadow& shadow = world_.shadows[window];
  const Node& node = shadow.node(id);
  // In a sliding window the blocks below a victim can have to leave with it.
  uint32_t above = node.parent;
  while (above != kNone && !shadow.node(above).cached()) above = shadow.node(above).parent;
  // Under full attention, blocks that are only on disk leave with a block above them.
  const bool on_disk = world_.config.IsOnDisk(node.tier);
  const bool with_parent = (!world_.full(window) || on_disk) && IsAmong(for_space_, window, above);
  SIM_CHECK(with_parent || on_disk || !world_.config.tenants.empty() || !world_.config.has_disk ||
                !node.lower.contains(world_.config.disk()),
            "block ", id, " is evicted, though it has a copy on disk to fall to");
  if (with_parent) return;
  SIM_CHECK((node.tier == kPrimaryTier) == (reason == RemovalReason::kEvicted), "block ", id,
            " of the ", DefaultTierName(node.tier), " tier is ", RemovalReasonName(reason));
  NoteVictim(window, node.tier, id, {.priority = node.priority, .to = std::nullopt});
}

void Follow::CountRemoval(RemovalReason reason, Tier tier) {
  Coverage& coverage = world_.coverage;
  if (reason == RemovalReason::kTruncated) coverage.Add(Met::kCutInPlace);
  if (reason == RemovalReason::kLost) coverage.Add(Met::kLost);
  if (reason == RemovalReason::kEvicted) coverage.Add(Met::kEvicted);
  if (reason == RemovalReason::kDisplaced) {
    coverage.Add(world_.config.IsOnDisk(tier) ? Met::kDiskDisplaced : Met::kDisplaced);
  }
  if (reason == RemovalReason::kTakenOver) coverage.Add(Met::kTakenOver);
  if (reason == RemovalReason::kInvalidated) coverage.Add(Met::kInvalidated);
}

}  // namespace pagoda::sim
