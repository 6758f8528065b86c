// Holding and releasing slots, entering and leaving the tree, statistics.
#include "manager/tiers/tier_residency.h"

#include <utility>

#include "base/check.h"
#include "pools/sizing.h"

namespace pagoda {

TierResidency::TierResidency(const Options& options, Policies policies,
                             const CoreServices& services, BlockStore* store, PrefixTree* tree,
                             CacheExit* exit)
    : options_(options),
      services_(services),
      store_(*store),
      tree_(*tree),
      exit_(*exit),
      accounts_(options.tenants, store->num_ids()),
      deferred_(store->num_ids()) {
  size_t below = kNoTier;
  for (size_t t = kMaxTiers; t-- > 0;) {
    TierState& tier = tiers_[t];
    tier.capacity = options.tiers[t].blocks;
    tier.min_priority = options.tiers[t].min_priority;
    const uint32_t num_slots = options.tiers[t].num_slots(static_cast<Tier>(t));
    tier.slots = SlotTable(
        num_slots, below == kNoTier ? SlotTable::LowerCopies::kNo : SlotTable::LowerCopies::kYes);
    if (t != 0) tier.duplicates = SlotQueue(num_slots);
    tier.policies = std::move(policies[t]);
    if (!tier.policies.empty()) tier.default_tenant_policy = tier.policies.front().get();
    for (const auto& policy : tier.policies) {
      tier.follows_contents = tier.follows_contents || policy->follows_contents();
    }
    tier.first_staging = num_slots;
    if (options.tiers[t].on_disk && tier.capacity != 0) {
      disk_.tier = t;
      disk_.entries = BigArray<Disk::Entry>(store_.num_ids());
      disk_.listed.resize(num_slots);
    } else if (tier.capacity != 0) {
      tier.first_staging -= options.tiers[t].staging_slots;
      if (below != kNoTier && below == disk_.tier) disk_.above = t;
    }
    tier.below = below;
    if (tier.capacity != 0) below = t;
  }
  Claim({});
}

uint32_t TierResidency::held_blocks() const {
  uint32_t held = 0;
  for (const TierState& tier : tiers_) held += tier.held;
  return held;
}

uint32_t TierResidency::evictable_blocks() const {
  uint32_t evictable = 0;
  for (const TierState& tier : tiers_) evictable += tier.evictable;
  return evictable;
}

uint32_t TierResidency::pinned_blocks() const {
  uint32_t pinned = 0;
  for (const TierState& tier : tiers_) pinned += tier.pinned;
  return pinned;
}

// --- Holding ---

BlockId TierResidency::Take(OperationScope& op, BlockState state) {
  TierState& primary = tiers_[kPrimary];
  if (primary.slots.free() == 0 || accounts_.AtQuota(Tier::kPrimary, op.tenant)) {
    FreeOneSlot(op, op.tenant);
  }
  const SlotRef slot{Tier::kPrimary, primary.slots.Take()};
  if (!copies().idle()) {
    op.WaitFor(copies().LastTouch(options_.index, slot));
    copies().Overwrite(options_.index, slot);
  }
  const BlockId id = store_.TakeId(state);
  GiveSlot(id, slot);
  accounts_.SetOwner(id, op.tenant);
  accounts_.Hold(id, Tier::kPrimary, op.tenant, 0);
  ++primary.held;
  recorder().BlockTaken(options_.window, id, op.tenant);
  return id;
}

void TierResidency::Renew(OperationScope& op, BlockId id) {
  store_.Renew(id, BlockState::kPrivate);
  accounts_.SetOwner(id, op.tenant);
  accounts_.Hold(id, Tier::kPrimary, op.tenant, 0);
  ++tiers_[kPrimary].held;
  recorder().BlockTaken(options_.window, id, op.tenant);
}

bool TierResidency::IsCandidate(BlockId id) const {
  if (sliding()) return true;
  return !tree_.has_near_children(id, store_[id].tier());
}

bool TierResidency::Hold(OperationScope& op, BlockId id, TenantId tenant) {
  Block& block = store_[id];
  const Tier tier = block.tier();
  accounts_.Hold(id, tier, tenant, block.refs);
  if (block.refs++ != 0) return false;
  PAGODA_CHECK(block.state() == BlockState::kCached, "what nobody holds is free, cached or a hole");
  ++At(tier).held;
  CountEvictable(id, tier, -1);
  Unlist(op, id);
  return true;
}

TierResidency::AfterHold TierResidency::EndHold(OperationScope& op, BlockId id, TenantId tenant) {
  Block& block = store_[id];
  PAGODA_CHECK(block.refs > 0, "a block is let go by its holders");
  --block.refs;
  const Tier tier = block.tier();
  if (accounts_.any() && block.state() != BlockState::kAlias) {
    accounts_.EndHold(id, tier, tenant, block.refs);
  }
  if (block.refs != 0) return AfterHold::kHeld;
  switch (block.state()) {
    case BlockState::kCached:
      --At(tier).held;
      CountEvictable(id, tier, +1);
      List(op, id);
      if (has_disk()) [[unlikely]] {
        ReleasedAboveDisk(op, id);
      }
      return AfterHold::kEvictable;
    case BlockState::kAlias:
      recorder().BlockFreed(options_.window, id, accounts_.owner(id));
      Forget(id);
      return AfterHold::kForgotten;
    case BlockState::kPrivate:
    case BlockState::kRaw:
      --At(tier).held;
      recorder().BlockFreed(options_.window, id, accounts_.owner(id));
      Release(store_.slot(id));
      store_.ReleaseId(id);
      return AfterHold::kFreed;
    case BlockState::kFree:
    case BlockState::kHole:
      break;
  }
  PAGODA_CHECK(false, "what is held is raw, private, cached or an alias");
}

void TierResidency::AddDeferred(BlockId id) {
  Block& block = store_[id];
  if (!block.deferred) CountDeferred(id, +1);
  block.deferred = 1;
  deferred_.Add(id);
}

void TierResidency::RemoveDeferred(BlockId id) {
  if (deferred_.Remove(id) != 0) return;
  CountDeferred(id, -1);
  store_[id].deferred = 0;
}

void TierResidency::CountDeferred(BlockId id, int32_t sign) {
  const Block& block = store_[id];
  if (!OwnsSlot(block.state())) return;
  const auto change = static_cast<uint32_t>(sign);
  TierState& tier = At(block.tier());
  tier.deferred += change;
  if (block.pinned) tier.deferred_and_pinned += change;
}

void TierResidency::MarkPinned(BlockId id) {
  Block& block = store_[id];
  if (block.pinned) return;
  block.pinned = 1;
  ++At(block.tier()).pinned;
  if (block.deferred) ++At(block.tier()).deferred_and_pinned;
}

void TierResidency::UnmarkPinned(BlockId id) {
  Block& block = store_[id];
  block.pinned = 0;
  --At(block.tier()).pinned;
  if (block.deferred) --At(block.tier()).deferred_and_pinned;
}

// --- Into the tree and out of it ---

void TierResidency::Enter(OperationScope& op, BlockId id, TenantId owner) {
  tree_.MoveChild(id, PrefixTree::kNowhere, Tier::kPrimary);
  accounts_.SetOwner(id, owner);
  NotifyInserted(op, id);
}

void TierResidency::EnterRecovered(OperationScope& op, BlockId id, SlotRef slot, TenantId owner) {
  accounts_.SetOwner(id, owner);
  if (slot.slot == kNoSlot) return;
  GiveSlot(id, slot);
  CountEvictable(id, slot.tier, +1);
  tree_.MoveChild(id, PrefixTree::kNowhere, slot.tier);
  NotifyRecovered(op, id);
}

void TierResidency::OfferRecovered(OperationScope& op, BlockId id) {
  if (store_[id].state() != BlockState::kCached) return;
  List(op, id);
  if (has_disk()) ReleasedAboveDisk(op, id);
}

// The steps have this order: the disk, the duplicates, the policy, the journal, the accounts, the
// slot.
void TierResidency::Leave(OperationScope& op, BlockId id, SlotAfter after, RemovalReason reason) {
  const SlotRef slot = store_.slot(id);
  const bool is_held = store_[id].refs != 0;
  if (has_disk()) [[unlikely]] {
    LeaveDisk(op, id,
              reason == RemovalReason::kInvalidated ? Lost::kErased
              : tree_.IsCutOff(id)                  ? Lost::kForgotten
                                                    : Lost::kDropped);
  }
  if (has_lower()) DropDuplicates(id);
  tree_.MoveChild(id, slot.tier, PrefixTree::kNowhere);
  if (IsOnDisk(slot.tier)) {
    PAGODA_CHECK(!is_held, "what leaves the tree is held in memory");
    return CountEvictable(id, slot.tier, -1);
  }
  if (!is_held) policy(slot.tier, id).Withdrawn(Facts(op, id));
  NotifyRemoved(op, id, slot);
  NoteNothing(slot);
  if (!is_held) {
    CountEvictable(id, slot.tier, -1);
  } else if (slot.tier == Tier::kPrimary) {
    accounts_.GiveToHolder(id);
  }
  if (after == SlotAfter::kFree) Release(slot);
}

void TierResidency::ChildLeft(OperationScope& op, NodeRef parent, Tier tier) {
  if (sliding() || parent.is_root()) return;
  const BlockId above = parent.block();
  const Block& block = store_[above];
  if (block.refs == 0 && block.tier() == tier && !IsOnDisk(tier) && IsCandidate(above)) {
    policy(tier, above).Unparked(Facts(op, above));
  }
}

void TierResidency::GiveSlotOf(OperationScope& op, BlockId own, TenantId tenant,
                               BlockId canonical) {
  Block& block = store_[canonical];
  const SlotRef slot = store_.slot(own);
  store_[own].set_state(BlockState::kAlias);
  --tiers_[kPrimary].held;
  accounts_.EndHold(own, Tier::kPrimary, tenant, 0);
  if (block.state() == BlockState::kHole) {
    block.set_state(BlockState::kCached);
    block.set_priority(kDefaultPriority);
    block.uses = 0;
    GiveSlot(canonical, slot);
    tree_.MoveChild(canonical, PrefixTree::kNowhere, Tier::kPrimary);
    NotifyInserted(op, canonical);
    // As if a holder had released it.
    CountEvictable(canonical, Tier::kPrimary, +1);
    policy(Tier::kPrimary, canonical).Released(Facts(op, canonical));
    return;
  }
  const Tier from = block.tier();
  const bool evictable = block.refs == 0;
  if (evictable) Unlist(op, canonical);
  if (block.deferred) CountDeferred(canonical, -1);
  ChangeTier(op, canonical, slot, OldSlot::kDuplicate);
  if (block.deferred) CountDeferred(canonical, +1);
  if (!evictable) return MoveHeld(canonical, from, Tier::kPrimary);
  CountEvictable(canonical, from, -1);
  CountEvictable(canonical, Tier::kPrimary, +1);
  List(op, canonical);
}

// Counts a held block's slot in another tier.
void TierResidency::MoveHeld(BlockId id, Tier from, Tier to) {
  const uint32_t pinned = store_[id].pinned;
  --At(from).held;
  ++At(to).held;
  At(from).pinned -= pinned;
  At(to).pinned += pinned;
}

void TierResidency::SetPriority(OperationScope& op, BlockId id, Priority priority) {
  Block& block = store_[id];
  const bool evictable = block.refs == 0;
  if (has_disk()) UnlistOnDisk(op, id);
  if (evictable) Unlist(op, id);
  if (evictable) {
    PriorityCounts& counts = At(block.tier()).evictable_by_priority;
    --counts[block.priority_value];
    ++counts[priority.value()];
  }
  block.set_priority(priority);
  if (evictable) List(op, id);
  if (has_disk()) ListOnDisk(op, id);
}

// --- Copies and the journal ---

void TierResidency::CopyTokens(OperationScope& op, BlockId source, BlockId target,
                               uint32_t num_tokens) {
  op.WaitFor(copies().Order(options_.index, store_.slot(source), store_.slot(target),
                            store_.handle(target).ref(), num_tokens));
}

SlotContent TierResidency::ContentOf(BlockId id) const {
  const NodeRef parent = tree_.parent(id);
  const BlockKey key = store_.key(id);
  SlotContent content{.block = store_.handle(id).ref(),
                      .tokens = {key.tokens.begin(), key.tokens.end()},
                      .extras = {key.extras.begin(), key.extras.end()},
                      .priority = store_[id].priority(),
                      .keyed = key.keyed};
  if (parent.is_root()) {
    content.name_space = tree_.key(parent);
  } else {
    content.parent = store_.handle(parent.block()).ref();
  }
  return content;
}

void TierResidency::WriteContent(BlockId id) {
  const SlotRef slot = store_.slot(id);
  services_.slot_changes->push_back({.window_index = options_.index,
                                     .slot = slot,
                                     .ready = copies().Arrival(options_.index, slot),
                                     .content = ContentOf(id)});
}

void TierResidency::WriteNothing(SlotRef slot) {
  services_.slot_changes->push_back(
      {.window_index = options_.index, .slot = slot, .ready = {}, .content = std::nullopt});
}

void TierResidency::Claim(const std::array<std::vector<SlotIndex>, kMaxTiers>& slots) {
  for (size_t t = 0; t < kMaxTiers; ++t) {
    TierState& tier = tiers_[t];
    if (t == disk_.tier) continue;
    if (tier.spare != kNoSlot) tier.slots.Release(std::exchange(tier.spare, kNoSlot));
    std::vector<SlotIndex> claimed = slots[t];
    for (uint32_t i = tier.first_staging; i < tier.slots.size(); ++i) {
      const SlotIndex staging{i};
      if (!tier.slots.is_free(staging)) tier.slots.Release(staging);
      claimed.push_back(staging);
    }
    if (t == disk_.above) disk_.staging.assign(claimed.begin() + slots[t].size(), claimed.end());
    if (!claimed.empty()) tier.slots.Claim(claimed);
    if (tier.first_staging != tier.capacity) tier.spare = tier.slots.Take();
  }
}

// --- Statistics ---

void TierResidency::AddStats(WindowStats* stats) const {
  stats->pinned_blocks = pinned_blocks();
  stats->counters.offloaded_blocks = offloaded_blocks_;
  stats->counters.onboarded_blocks = onboarded_blocks_;
  for (size_t t = 0; t < kMaxTiers; ++t) {
    const TierState& tier = tiers_[t];
    stats->counters.freely_evicted_blocks += tier.freely_evicted_blocks;
    stats->freely_evicted_blocks[t] = tier.freely_evicted_blocks;
    stats->cached_by_priority[t] = tier.evictable_by_priority;
    stats->tiers[t] = {
        .capacity = tier.capacity,
        .free = tier.slots.free(),
        .cached = tier.evictable + tier.duplicates.size(),
        .duplicates = tier.duplicates.size(),
        .active = tier.held - tier.pinned - (tier.deferred - tier.deferred_and_pinned),
        .pinned = tier.pinned - tier.deferred_and_pinned,
        .in_flight = tier.deferred + tier.in_transit};
  }
  if (has_disk()) {
    stats->disk = disk_.stats;
    stats->disk.waiting_backups = disk_.queue.size();
  }
  // A slot in flight counts only as that. Slots with deferred releases are counted already.
  for (const SlotRef slot : copies().SlotsInFlight(options_.index)) {
    const BlockId owner = OwnerOf(slot);
    if (owner == kNoBlock && !At(slot.tier).slots.is_free(slot.slot)) continue;
    TierOccupancy& tier = stats->tiers[static_cast<size_t>(slot.tier)];
    const bool is_duplicate = owner != kNoBlock && store_.slot(owner) != slot;
    if (owner != kNoBlock && !is_duplicate && store_[owner].deferred) continue;
    if (owner == kNoBlock) {
      --tier.free;
    } else if (is_duplicate) {
      --tier.cached;
      --tier.duplicates;
    } else if (store_[owner].pinned) {
      --tier.pinned;
    } else if (store_[owner].refs != 0) {
      --tier.active;
    } else {
      --tier.cached;
      const Block& block = store_[owner];
      --stats->cached_by_priority[block.tier_value][block.priority_value];
    }
    ++tier.in_flight;
  }
}

void TierResidency::AddUses(TenantId tenant, std::vector<TenantUsage::Use>* uses) const {
  for (size_t t = 0; t < kMaxTiers; ++t) {
    const auto tier = static_cast<Tier>(t);
    const TierState& all = tiers_[t];
    if (all.capacity == 0) continue;
    TenantUsage::Use& use = uses->emplace_back();
    use.window = options_.window;
    use.tier = tier;
    use.used_blocks = accounts_.any() ? accounts_.used(tier, tenant) : all.evictable + all.held;
    use.cached_blocks = accounts_.any() ? accounts_.cached(tier, tenant) : all.evictable;
    use.quota_blocks = accounts_.QuotaOf(tier, tenant);
  }
}

SlotState TierResidency::StateOf(SlotRef slot) const {
  const TierState& tier = At(slot.tier);
  if (slot.slot == tier.spare || slot.slot.value() >= tier.first_staging) return SlotState::kSpare;
  if (copies().LastTouch(options_.index, slot) != Ticket{}) return SlotState::kInFlight;
  const BlockId owner = OwnerOf(slot);
  if (owner == kNoBlock) {
    return tier.slots.is_free(slot.slot) ? SlotState::kFree : SlotState::kInFlight;
  }
  const Block& block = store_[owner];
  if (store_.slot(owner) != slot) return SlotState::kCached;
  if (block.deferred) return SlotState::kInFlight;
  if (block.pinned) return SlotState::kPinned;
  return block.refs != 0 ? SlotState::kActive : SlotState::kCached;
}

void TierResidency::SlotStates(Tier tier, uint32_t from, absl::Span<SlotState> states) const {
  for (SlotState& state : states) state = StateOf({tier, SlotIndex{from++}});
}

void TierResidency::CheckAccounting() const {
  for (size_t t = 0; t < kMaxTiers; ++t) {
    const TierState& tier = tiers_[t];
    const uint32_t taken = tier.evictable + tier.held + tier.duplicates.size() + tier.in_transit;
    PAGODA_CHECK(tier.slots.free() + taken == tier.capacity,
                 "rule 5: free + cached + active + pinned + in flight = capacity");
  }
}

}  // namespace pagoda
