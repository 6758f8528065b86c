// How blocks leave: dropped, moved down, cut out of the tree; and how they come up again.
#include <utility>
#include <vector>

#include "manager/window_block_manager.h"
#include "pools/check.h"

namespace pagoda {

// --- Making room ---

BlockId WindowBlockManager::Victim(Tier tier, TenantId tenant) const {
  if (!accounts_.any()) return commons_policies_[static_cast<size_t>(tier)]->Victim();
  const auto& policies = policies_[static_cast<size_t>(tier)];
  if (accounts_.AtQuota(tier, tenant)) return policies[tenant.value()]->Victim();
  BlockId victim = kNoBlock;
  TenantId gives;
  for (uint16_t i = 0; i < policies.size(); ++i) {
    // The accounts first: they lie side by side, and few tenants get past them.
    if (victim != kNoBlock && !accounts_.GivesBefore(tier, TenantId{i}, gives)) continue;
    const BlockId own = policies[i]->Victim();
    if (own == kNoBlock) continue;
    victim = own;
    gives = TenantId{i};
  }
  return victim;
}

// Frees at least one primary slot that `tenant` may have. REQUIRES: there is a candidate.
void WindowBlockManager::MakeRoom(OperationScope& op, TenantId tenant) {
  const BlockId victim = Victim(Tier::kPrimary, tenant);
  PAGODA_CHECK(victim != kNoBlock, "rule 6: room was checked before it is taken");
  if (WantsDown(victim)) {
    const bool room_below = MakeRoomBelow(op, victim);
    // In a sliding window that may have taken the victim, too: it was below what left.
    if (store_[victim].state() != BlockState::kCached) return;
    // What was displaced may have been all that the victim had below it.
    if (room_below && WantsDown(victim)) {
      return MoveDown(victim, store_.TakeSlot(Tier::kSecondary));
    }
  }
  Drop(op, victim, RemovalReason::kEvicted);
}

// Rule 14. Under full attention a candidate's children are all below.
bool WindowBlockManager::WantsDown(BlockId victim) const {
  if (!has_secondary()) return false;
  if (IsCutOff(victim)) return MustGoDown(victim);
  if (accounts_.any() && accounts_.QuotaOf(Tier::kSecondary, accounts_.owner(victim)) == 0) {
    return MustGoDown(victim);
  }
  return store_[victim].priority() >= options_.offload_min_priority || MustGoDown(victim);
}

// What is below it would be unreachable without it.
bool WindowBlockManager::MustGoDown(BlockId victim) const {
  return !sliding() && tree_.has_children(victim);
}

// Whether there is a free secondary slot afterwards. A block of higher priority goes only for one
// that must come down.
bool WindowBlockManager::MakeRoomBelow(OperationScope& op, BlockId comes) {
  const TenantId owner = accounts_.owner(comes);
  if (store_.free_slots(Tier::kSecondary) > 0 && !accounts_.AtQuota(Tier::kSecondary, owner)) {
    return true;
  }
  const BlockId displaced = Victim(Tier::kSecondary, owner);
  if (displaced == kNoBlock) return false;
  if (store_[displaced].priority() > store_[comes].priority() && !MustGoDown(comes) &&
      !IsCutOff(displaced)) {
    return false;
  }
  Drop(op, displaced, RemovalReason::kDisplaced);
  return true;
}

// --- Moving ---

// The block's bytes go to `slot` of another tier by a copy; its old slot is nobody's then.
void WindowBlockManager::ChangeTier(BlockId id, SlotRef slot) {
  Block& block = store_[id];
  const SlotRef old = store_.slot(id);
  store_.ReleaseSlot(old);
  store_.GiveSlot(id, slot);
  if (block.refs != 0) accounts_.Move(id, old.tier, slot.tier);
  if (block.state() != BlockState::kCached) return;
  NoteNothing(old);
  if (!IsCutOff(id)) NoteContent(id);
  tree_.MoveChild(id, old.tier, slot.tier);
  policy(old.tier, id).Removed(id, tree_.hash(id));
  policy(slot.tier, id).Inserted(id, tree_.hash(id));
  if (IsCutOff(id)) return;
  recorder().TierChanged(window(), id, tree_.hash(id), {old.tier, slot.tier}, accounts_.owner(id));
}

void WindowBlockManager::OrderMoveDown(BlockId victim, SlotRef from, SlotRef to) {
  services_.copies->Order(options_.index, from, to, store_.handle(victim).ref(),
                          store_[victim].token_count);
}

void WindowBlockManager::MoveDown(BlockId victim, SlotIndex target) {
  const SlotRef from = store_.slot(victim);
  const SlotRef to{Tier::kSecondary, target};
  policy(Tier::kPrimary, victim).Withdrawn(victim);
  // What a reset has cut off nobody reads again: it changes its slot and nothing else.
  if (!IsCutOff(victim)) {
    OrderMoveDown(victim, from, to);
    ++counters_.offloaded_blocks;
  }
  ChangeTier(victim, to);
  CountUnheld(victim, Tier::kPrimary, -1);
  CountUnheld(victim, Tier::kSecondary, +1);
  if (IsCandidate(victim)) {
    policy(Tier::kSecondary, victim).Released(victim, store_[victim].priority());
  }
  ChildLeft(tree_.parent(victim), Tier::kPrimary);
}

// Brings a held block up. Where its place below is the only one for the primary tier's victim, the
// two swap through the spare slot.
void WindowBlockManager::Onboard(OperationScope& op, BlockId id) {
  const SlotRef from = store_.slot(id);
  bool swaps = false;
  const TenantId owner = accounts_.owner(id);
  if (store_.free_slots(Tier::kPrimary) == 0 || accounts_.AtQuota(Tier::kPrimary, owner)) {
    const BlockId victim = Victim(Tier::kPrimary, owner);
    PAGODA_CHECK(victim != kNoBlock, "rule 6: room was checked before it is taken");
    swaps = WantsDown(victim) && store_.free_slots(Tier::kSecondary) == 0 &&
            (accounts_.owner(victim) == owner ||
             !accounts_.AtQuota(Tier::kSecondary, accounts_.owner(victim)));
    swaps ? MoveDown(victim, spare_) : MakeRoom(op, owner);
  }
  const SlotRef to{Tier::kPrimary, store_.TakeSlot(Tier::kPrimary)};
  Block& block = store_[id];
  op.WaitFor(services_.copies->Order(options_.index, from, to, store_.handle(id).ref(),
                                     block.token_count));
  const bool cached = block.state() == BlockState::kCached;
  const uint32_t pinned = block.pinned;
  if (block.drains) CountDrained(id, -1);
  ChangeTier(id, to);
  if (block.drains) CountDrained(id, +1);
  // It left the tree while it lay below, and waited until all its holders are charged here.
  if (!cached) accounts_.GiveToHolder(id);
  // The slot that was released last is the next one taken.
  if (swaps) spare_ = store_.TakeSlot(Tier::kSecondary);
  PAGODA_CHECK(block.refs > 0 && cached == (block.state() == BlockState::kCached),
               "a block that comes up is held");
  --held_[kSecondary];
  ++held_[kPrimary];
  pinned_[kSecondary] -= pinned;
  pinned_[kPrimary] += pinned;
  ++counters_.onboarded_blocks;
}

uint32_t WindowBlockManager::OffloadAhead(OperationScope& op, uint32_t free_target,
                                          uint32_t max_blocks) {
  uint32_t moved = 0;
  while (has_secondary() && moved < max_blocks && store_.free_slots(Tier::kPrimary) < free_target) {
    const BlockId victim = Victim(Tier::kPrimary, kCommons);
    // To drop a block ahead of need gains nothing; nor does it to move what a reset will free.
    if (victim == kNoBlock || IsCutOff(victim)) break;
    if (!WantsDown(victim) || !MakeRoomBelow(op, victim)) break;
    if (store_[victim].state() != BlockState::kCached || !WantsDown(victim)) continue;
    MoveDown(victim, store_.TakeSlot(Tier::kSecondary));
    ++moved;
  }
  return moved;
}

// --- Leaving ---

// Takes a candidate out of the cache, or makes it a hole where it has children. Where no more holes
// may be, what is below it goes with it.
void WindowBlockManager::Drop(OperationScope& op, BlockId victim, RemovalReason reason) {
  if (!tree_.has_children(victim)) return LeaveTree(op, victim, reason, Remains::kNothing);
  PAGODA_CHECK(sliding(), "rule 13: nothing cached becomes unreachable");
  if (holes_ == options_.max_holes) {
    CutSubtree(op, victim, reason);
    return;
  }
  LeaveTree(op, victim, reason, Remains::kHole);
}

// The one way out of the tree. The order of its effects is the same whatever remains: the event,
// the clock, the tree's count of children, the policy, the journal, the accounts, the slot, the
// node, the holes above. REQUIRES: the block is cached, and no pin holds it. With kNothing and
// kHole nobody holds it; with kNothing and kSlot it has no children.
void WindowBlockManager::LeaveTree(OperationScope& op, BlockId id, RemovalReason reason,
                                   Remains remains) {
  Block& block = store_[id];
  PAGODA_CHECK(block.state() == BlockState::kCached, "what leaves the tree was cached");
  const Tier tier = block.tier();
  const SlotRef slot = store_.slot(id);
  const bool is_held = block.refs != 0;
  RecordRemoval(op, id, reason);
  // Few blocks are timed. Writing the bit always would delay the count's read of the priority,
  // which lies in the same word.
  if (block.timed) {
    expiries_.Forget(id);
    block.timed = 0;
  }
  tree_.MoveChild(id, tier, PrefixTree::kNowhere);
  if (!is_held) policy(tier, id).Withdrawn(id);
  policy(tier, id).Removed(id, tree_.hash(id));
  NoteNothing(slot);
  if (!is_held) {
    CountUnheld(id, tier, -1);
  } else if (tier == Tier::kPrimary) {
    accounts_.GiveToHolder(id);
  }
  if (remains != Remains::kSlot) store_.ReleaseSlot(slot);
  if (remains == Remains::kHole) {
    block.set_state(BlockState::kHole);
    ++holes_;
    return;
  }
  const NodeRef parent = tree_.parent(id);
  EraseFromTree(id);
  if (remains == Remains::kSlot) {
    block.set_state(BlockState::kPrivate);
  } else {
    store_.ReleaseId(id);
  }
  if (sliding()) return EraseHoles(parent);
  ChildLeft(parent, tier);
}

// A child of `node` left: erases the node if it is a hole without children now, and then likewise
// the holes above it.
void WindowBlockManager::EraseHoles(NodeRef node) {
  while (!node.is_root() && store_[node.block()].state() == BlockState::kHole &&
         !tree_.has_children(node)) {
    const BlockId hole = node.block();
    node = tree_.parent(hole);
    EraseFromTree(hole);
    store_.ReleaseId(hole);
    --holes_;
  }
}

// A child that was cached in `tier` is gone or was moved: the parent may be a candidate now.
void WindowBlockManager::ChildLeft(NodeRef parent, Tier tier) {
  if (sliding() || parent.is_root()) return;
  const BlockId above = parent.block();
  const Block& block = store_[above];
  if (block.refs == 0 && block.tier() == tier && IsCandidate(above)) {
    policy(tier, above).Unparked(above, block.priority());
  }
}

// Takes a block and all below it out of the tree: what is held becomes private, the rest is free.
// Returns how many cached blocks left.
uint64_t WindowBlockManager::CutSubtree(OperationScope& op, BlockId top, RemovalReason reason) {
  std::vector<BlockId> nodes = {top};  // Parents before children.
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (const BlockId child : tree_.Children(NodeRef::Block(nodes[i]))) nodes.push_back(child);
  }
  if (pinned_blocks() != 0) {
    for (const BlockId id : nodes) EndPinsOf(op, id, reason);
  }
  uint64_t left = 0;
  for (size_t i = nodes.size(); i-- > 0;) {
    if (!store_[nodes[i]].in_tree()) continue;  // A hole that went with its last child.
    CutLeaf(op, nodes[i], reason);
    ++left;
  }
  return left;
}

bool WindowBlockManager::Owns(BlockRef block, SlotRef slot) const {
  return store_[block.id].generation == block.generation && OwnsSlot(store_[block.id].state()) &&
         store_.slot(block.id) == slot;
}

void WindowBlockManager::Lose(OperationScope& op, BlockId id) {
  CutSubtree(op, id, RemovalReason::kLost);
}

// --- Priorities ---

void WindowBlockManager::SetPriority(BlockId id, Priority priority) {
  Block& block = store_[id];
  const Priority old = block.priority();
  if (old == priority) return;
  if (!IsCutOff(id)) {
    recorder().PriorityChanged(window(), id, tree_.hash(id), {old, priority}, accounts_.owner(id));
  }
  const bool unheld = block.refs == 0;
  const bool listed = unheld && IsCandidate(id);
  if (listed) policy(block.tier(), id).Withdrawn(id);
  if (unheld) {
    PriorityCounts& counts = unheld_by_priority_[block.tier_value];
    --counts[old.value()];
    ++counts[priority.value()];
  }
  block.set_priority(priority);
  if (listed) policy(block.tier(), id).Released(id, priority);
}

void WindowBlockManager::SetBlockRetention(OperationScope& op, BlockId id,
                                           const BlockRetention& retention) {
  SetPriority(id, retention.priority);
  Block& block = store_[id];
  // What is at the default already has nothing to fall to.
  const bool timed =
      retention.duration != absl::InfiniteDuration() && retention.priority != kDefaultPriority;
  if (block.timed || timed) {
    expiries_.SetDuration(id, timed ? retention.duration : absl::InfiniteDuration());
  }
  block.timed = timed;
  if (timed && block.refs == 0) StartClock(op, id);
}

void WindowBlockManager::StartClock(OperationScope& op, BlockId id) {
  expiries_.Start(id, op.now);
  services_.deadlines->EndsAt(expiries_.next());
}

void WindowBlockManager::Expire(OperationScope& op) {
  for (const BlockId id : expiries_.TakeExpired(op.now, kMaxEndsByTime)) {
    store_[id].timed = 0;
    ++counters_.expired_priorities;
    SetPriority(id, kDefaultPriority);
  }
  services_.deadlines->EndsAt(expiries_.next());
}

}  // namespace pagoda
