// Holding blocks and letting them go; raw blocks; numbers.
#include "manager/window_block_manager.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "pools/check.h"
#include "pools/error.h"
#include "pools/sizing.h"

namespace pagoda {
namespace {

BlockStore::Options StoreOptions(const WindowBlockManager::Options& options) {
  constexpr auto kPrimary = static_cast<size_t>(Tier::kPrimary);
  constexpr auto kSecondary = static_cast<size_t>(Tier::kSecondary);
  const bool has_secondary = options.blocks[kSecondary] != 0;
  const bool sliding = options.window != kFullAttention;
  return {.tokens_per_block = options.tokens_per_block,
          .slots = {options.blocks[kPrimary],
                    has_secondary ? options.blocks[kSecondary] + kSecondarySpareSlots : 0},
          // An alias goes with a primary slot: there are never more of them.
          .spare_ids = (sliding ? options.max_holes : 0) +
                       (sliding || has_secondary ? options.blocks[kPrimary] : 0)};
}

void AddTo(WindowCounters& sum, const TenantCounters& tenant) {
  const auto removed = [&](RemovalReason reason) {
    uint64_t blocks = 0;
    for (const auto& by_reason : tenant.removed_blocks) {
      blocks += by_reason[static_cast<size_t>(reason)];
    }
    return blocks;
  };
  sum.allocated_blocks += tenant.allocated_blocks;
  sum.evicted_blocks += removed(RemovalReason::kEvicted);
  sum.displaced_blocks += removed(RemovalReason::kDisplaced);
  sum.lost_blocks += removed(RemovalReason::kLost);
  sum.prefix_lookup_tokens += tenant.prefix_lookup_tokens;
  for (size_t t = 0; t < kNumTiers; ++t) sum.prefix_hit_tokens += tenant.prefix_hit_tokens[t];
  sum.secondary_hit_tokens += tenant.prefix_hit_tokens[static_cast<size_t>(Tier::kSecondary)];
}

}  // namespace

uint32_t WindowBlockManager::NumIds(const Options& options) {
  const BlockStore::Options store = StoreOptions(options);
  return store.slots[kPrimary] + store.slots[kSecondary] + store.spare_ids;
}

WindowBlockManager::WindowBlockManager(const Options& options, Policies policies,
                                       const CoreServices& services)
    : options_(options),
      services_(services),
      store_(StoreOptions(options)),
      tree_(&store_),
      policies_(std::move(policies)),
      accounts_(options.tenants, store_.num_ids()),
      next_cut_off_(store_.num_ids()),
      tenant_pinned_(options.tenants->size()),
      drains_(store_.num_ids()),
      tenant_counters_(options.tenants->size()),
      lives_(options.lives_sample) {
  for (size_t t = 0; t < kNumTiers; ++t) {
    if (!policies_[t].empty()) commons_policies_[t] = policies_[t].front().get();
  }
  if (has_secondary()) spare_ = store_.TakeSlot(Tier::kSecondary);
}

// --- Holding and letting go ---

BlockId WindowBlockManager::TakeBlock(OperationScope& op, BlockState state) {
  if (store_.free_slots(Tier::kPrimary) == 0 || accounts_.AtQuota(Tier::kPrimary, op.tenant)) {
    MakeRoom(op, op.tenant);
  }
  const SlotRef slot{Tier::kPrimary, store_.TakeSlot(Tier::kPrimary)};
  if (!services_.copies->idle()) {
    op.WaitFor(services_.copies->LastTouch(options_.index, slot));
    services_.copies->Overwrite(options_.index, slot);
  }
  const BlockId id = store_.TakeId(state);
  store_.GiveSlot(id, slot);
  accounts_.SetOwner(id, op.tenant);
  accounts_.Hold(id, Tier::kPrimary, op.tenant, 0);
  ++held_[kPrimary];
  return id;
}

// Rule 13, and what a sliding window may do instead.
bool WindowBlockManager::IsCandidate(BlockId id) const {
  if (sliding()) return true;
  return store_[id].tier() == Tier::kPrimary ? tree_.primary_children(id) == 0
                                             : !tree_.has_children(id);
}

void WindowBlockManager::Hold(BlockId id, TenantId tenant) {
  Block& block = store_[id];
  accounts_.Hold(id, block.tier(), tenant, block.refs);
  if (block.refs++ != 0) return;
  PAGODA_CHECK(block.state() == BlockState::kCached, "what nobody holds is free, cached or a hole");
  const auto tier = static_cast<size_t>(block.tier());
  ++held_[tier];
  CountUnheld(id, block.tier(), -1);
  if (IsCandidate(id)) policy(block.tier(), id).Withdrawn(id);
  if (block.timed) expiries_.Stop(id);
}

void WindowBlockManager::LetGo(OperationScope& op, BlockId id, TenantId tenant) {
  Block& block = store_[id];
  PAGODA_CHECK(block.refs > 0, "a block is let go by its holders");
  --block.refs;
  if (accounts_.any() && block.state() != BlockState::kAlias) {
    accounts_.LetGo(id, block.tier(), tenant, block.refs);
  }
  if (block.refs != 0) return;
  const auto tier = static_cast<size_t>(block.tier());
  switch (block.state()) {
    case BlockState::kCached:
      --held_[tier];
      CountUnheld(id, block.tier(), +1);
      if (IsCandidate(id)) policy(block.tier(), id).Released(id, block.priority());
      if (block.timed) StartClock(op, id);
      if (block.followed) lives_.Released(id, op.now);
      return;
    case BlockState::kAlias:
      store_.ReleaseId(id);
      return;
    case BlockState::kPrivate:
    case BlockState::kRaw:
      --held_[tier];
      store_.ReleaseSlot(store_.slot(id));
      store_.ReleaseId(id);
      ++counters_.freed_blocks;
      return;
    case BlockState::kFree:
    case BlockState::kHole:
      break;
  }
  PAGODA_CHECK(false, "what is held is raw, private, cached or an alias");
}

void WindowBlockManager::Release(OperationScope& op, BlockId id, TenantId tenant) {
  Session* session = op.draining;
  if (session == nullptr) return LetGo(op, id, tenant);
  StartDrain(id, tenant, *session);
}

void WindowBlockManager::HoldByDrain(BlockId id, TenantId tenant, Session& session) {
  HoldAgain(id, tenant);
  StartDrain(id, tenant, session);
}

// The hold becomes the drain's.
void WindowBlockManager::StartDrain(BlockId id, TenantId tenant, Session& session) {
  session.drains.push_back({.step = session.step,
                            .window = static_cast<uint16_t>(options_.index),
                            .tenant = tenant,
                            .block = id});
  AddDrain(id);
}

void WindowBlockManager::AddDrain(BlockId id) {
  Block& block = store_[id];
  if (!block.drains) CountDrained(id, +1);
  block.drains = 1;
  drains_.Add(id);
}

void WindowBlockManager::CountDrained(BlockId id, int32_t sign) {
  const Block& block = store_[id];
  if (!OwnsSlot(block.state())) return;
  const auto tier = static_cast<size_t>(block.tier());
  const auto change = static_cast<uint32_t>(sign);
  drained_[tier] += change;
  if (block.pinned) drained_and_pinned_[tier] += change;
}

void WindowBlockManager::EndDrain(OperationScope& op, BlockId id, TenantId tenant) {
  if (drains_.Remove(id) == 0) {
    CountDrained(id, -1);
    store_[id].drains = 0;
  }
  LetGo(op, id, tenant);
}

// --- Pins ---

uint32_t WindowBlockManager::pin_budget_blocks(TenantId tenant) const {
  if (tenant == kCommons) return options_.pin_budget_blocks;
  return static_cast<uint32_t>(options_.tenants->ShareOf(tenant, options_.pin_budget_blocks));
}

absl::Status WindowBlockManager::CheckPinBudget(TenantId tenant,
                                                absl::Span<const BlockId> blocks) const {
  uint64_t pinned = pinned_blocks(), own = pinned_blocks(tenant);
  for (const BlockId id : blocks) {
    if (!store_[id].pinned) ++pinned;
    if (tenant != kCommons && !IsPinnedBy(id, tenant)) ++own;
  }
  if (tenant != kCommons && own > pin_budget_blocks(tenant)) {
    return MakeError(Reason::kPinBudgetExceeded,
                     absl::StrCat("the tenant's pins would hold ", own, " blocks in window ",
                                  WindowName(window()), "; its share is ",
                                  pin_budget_blocks(tenant), " of ", pin_budget_blocks()));
  }
  if (pinned > pin_budget_blocks()) {
    return MakeError(
        Reason::kPinBudgetExceeded,
        absl::StrCat(pinned, " blocks would be pinned in window ", WindowName(window()),
                     "; at most ", pin_budget_blocks(), " may be"));
  }
  return absl::OkStatus();
}

WindowBlockManager::Need WindowBlockManager::PinNeed(absl::Span<const BlockId> blocks,
                                                     TenantId tenant) const {
  Need need{.available = QuotaLeft(tenant)};
  for (const BlockId id : blocks) {
    // A pin of the tenant's own makes held of cached, within what it has.
    if (accounts_.owner(id) == tenant) continue;
    if (!accounts_.Holds(id, tenant, store_[id].refs)) ++need.blocks;
  }
  return need;
}

void WindowBlockManager::Pin(OperationScope& op, const PinHold& pin,
                             absl::Span<const BlockId> blocks) {
  for (const BlockId id : blocks) {
    Hold(id, pin.holder);
    Block& block = store_[id];
    if (!block.pinned) {
      const auto tier = static_cast<size_t>(block.tier());
      ++pinned_[tier];
      if (block.drains) ++drained_and_pinned_[tier];
    }
    block.pinned = 1;
    if (!IsPinnedBy(id, pin.tenant)) ++tenant_pinned_[pin.tenant.value()];
    pins_.insert({id, pin.tenant, pin.pin});
  }
  while (accounts_.AboveQuota(Tier::kPrimary, pin.holder)) MakeRoom(op, pin.holder);
}

// Last block first, as a sequence lets go.
void WindowBlockManager::Unpin(OperationScope& op, const PinHold& pin,
                               absl::Span<const BlockId> blocks) {
  for (size_t i = blocks.size(); i-- > 0;) {
    const BlockId id = blocks[i];
    const auto own = pins_.find({id, pin.tenant, pin.pin});
    PAGODA_CHECK(own != pins_.end(), "rule 15: pins are counted");
    // Other pins of the block stand beside it.
    const auto next = pins_.erase(own);
    const BlockPin* after = next == pins_.end() ? nullptr : &*next;
    const BlockPin* before = next == pins_.begin() ? nullptr : &*std::prev(next);
    const auto pins_it = [id](const BlockPin* other) {
      return other != nullptr && other->block == id;
    };
    const auto is_own = [&](const BlockPin* other) {
      return pins_it(other) && other->tenant == pin.tenant;
    };
    if (!is_own(before) && !is_own(after)) --tenant_pinned_[pin.tenant.value()];
    if (!pins_it(before) && !pins_it(after)) {
      Block& block = store_[id];
      const auto tier = static_cast<size_t>(block.tier());
      block.pinned = 0;
      --pinned_[tier];
      if (block.drains) --drained_and_pinned_[tier];
    }
    LetGo(op, id, pin.holder);
  }
}

// The block is about to leave the tree, and a pin ends as a whole.
void WindowBlockManager::EndPinsOf(OperationScope& op, BlockId id, RemovalReason removal) {
  while (store_[id].pinned)
    services_.pins->EndPinOfLeaving(op, FirstPin(id, kCommons)->pin, removal);
}

// --- Raw blocks ---

void WindowBlockManager::TakeRaw(OperationScope& op, SessionId owner, absl::Span<BlockHandle> out) {
  CountAllocated(op, out.size());
  for (BlockHandle& handle : out) {
    const BlockId id = TakeBlock(op, BlockState::kRaw);
    store_[id].refs = static_cast<uint32_t>(owner.value());
    handle = store_.handle(id);
  }
}

absl::Status WindowBlockManager::CheckRaw(TenantId tenant, SessionId owner,
                                          absl::Span<const BlockRef> blocks) {
  absl::Status status;
  size_t seen = 0;
  for (; seen < blocks.size(); ++seen) {
    status = CheckOneRaw(tenant, owner, blocks[seen]);
    if (!status.ok()) break;
    store_[blocks[seen].id].marked = 1;
  }
  for (size_t i = 0; i < seen; ++i) store_[blocks[i].id].marked = 0;
  return status;
}

absl::Status WindowBlockManager::CheckOneRaw(TenantId tenant, SessionId owner,
                                             const BlockRef& ref) const {
  const auto error = [&](Reason reason, std::string_view what) {
    return MakeError(reason,
                     absl::StrCat("block ", ref.id.value(), " (generation ", ref.generation.value(),
                                  ") of window ", WindowName(window()), " ", std::string(what)));
  };
  if (ref.id.value() >= store_.num_ids()) {
    return error(Reason::kUnknownBlock,
                 absl::StrCat("does not exist; ids end at ", store_.num_ids() - 1));
  }
  const Block& block = store_[ref.id];
  if (block.marked) return error(Reason::kDoubleFree, "is in the call twice");
  if (block.generation != ref.generation) {
    return error(Reason::kStaleHandle, "is not the block's current life");
  }
  if (block.state() == BlockState::kRaw && block.refs == owner.value()) return absl::OkStatus();
  // What another tenant does with the block is not for this one to know.
  if (tenant != kCommons && accounts_.owner(ref.id) != tenant) {
    return error(Reason::kStaleHandle, "is not the block's current life");
  }
  const bool only_drains =
      block.state() == BlockState::kPrivate && block.drains && drains_.of(ref.id) == block.refs;
  if (block.state() == BlockState::kFree || only_drains) {
    return error(Reason::kDoubleFree, "is free already");
  }
  return error(Reason::kForeignBlock, "does not belong to the session as a raw block");
}

absl::Status WindowBlockManager::CheckWritable(SessionId session,
                                               absl::Span<const Sequence* const> sequences,
                                               const BlockRef& ref) const {
  const auto error = [&](Reason reason, std::string_view what) {
    return MakeError(reason,
                     absl::StrCat("block ", ref.id.value(), " (generation ", ref.generation.value(),
                                  ") of window ", WindowName(window()), " ", std::string(what)));
  };
  if (ref.id.value() >= store_.num_ids()) return error(Reason::kUnknownBlock, "does not exist");
  const Block& block = store_[ref.id];
  if (block.generation != ref.generation || block.state() == BlockState::kFree) {
    return error(Reason::kStaleHandle, "is not in this life any more");
  }
  if (block.in_tree() || block.state() == BlockState::kAlias) {
    return error(Reason::kBlockFinalized, "is cached");
  }
  if (block.state() == BlockState::kRaw && block.refs == session.value()) return absl::OkStatus();
  absl::Status refusal = error(Reason::kForeignBlock, "belongs to nobody in the session");
  for (const Sequence* sequence : sequences) {
    const std::optional<uint32_t> entry = FindEntry(*sequence, ref.id);
    if (!entry.has_value()) continue;
    // What a failed copy took of its published blocks a sequence computes again.
    const uint32_t computed = tokens_per_block().BlockForToken(sequence->computed_tokens);
    if (*entry < std::min(BlocksOf(*sequence).published, computed)) {
      refusal = error(Reason::kBlockFinalized, "is committed");
    } else if (MustCopyTail(*sequence) && *entry + 1 == BlocksOf(*sequence).table.size()) {
      refusal = error(Reason::kForeignBlock, "is another sequence's tail");
    } else {
      return absl::OkStatus();
    }
  }
  return refusal;
}

// As CheckWritable has it.
void WindowBlockManager::HoldWritable(const Sequence& sequence, Session& session) {
  const SequenceBlocks& blocks = BlocksOf(sequence);
  const uint32_t computed = tokens_per_block().BlockForToken(sequence.computed_tokens);
  uint32_t end = static_cast<uint32_t>(blocks.table.size());
  if (MustCopyTail(sequence)) --end;
  for (uint32_t i = std::max(blocks.first, std::min(blocks.published, computed)); i < end; ++i) {
    const BlockId id = blocks.table[i].id;
    if (store_[id].state() == BlockState::kPrivate) HoldByDrain(id, sequence.tenant, session);
  }
}

void WindowBlockManager::FreeRaw(OperationScope& op, absl::Span<const BlockRef> blocks) {
  for (const BlockRef& ref : blocks) {
    Block& block = store_[ref.id];
    block.set_state(BlockState::kPrivate);  // While it drains it is nobody's to free.
    block.refs = 1;
    Release(op, ref.id, op.tenant);
  }
}

std::vector<BlockRef> WindowBlockManager::NextRawBlocks(SessionId owner, BlockId* next,
                                                        size_t max_blocks, uint32_t max_ids) const {
  std::vector<BlockRef> blocks;
  const uint32_t begin = next->value();
  const uint32_t end = begin + std::min(max_ids, store_.num_ids() - begin);
  uint32_t id = begin;
  for (; id < end && blocks.size() < max_blocks; ++id) {
    const Block& block = store_[BlockId{id}];
    if (block.state() == BlockState::kRaw && block.refs == owner.value()) {
      blocks.push_back({BlockId{id}, block.generation});
    }
  }
  *next = BlockId{id};
  return blocks;
}

// --- Numbers ---

void WindowBlockManager::CountLookup(OperationScope& op, uint32_t lookup_tokens,
                                     const Match& match) {
  if (!match.blocks.empty()) tree_.CountMatchEnd(match.blocks.back());
  uint64_t below = 0;
  for (size_t i = match.first; has_secondary() && i < match.blocks.size(); ++i) {
    if (store_[match.blocks[i]].tier() == Tier::kSecondary) below += tokens_per_block().value();
  }
  if (match.source != kNoBlock && store_[match.source].tier() == Tier::kSecondary) {
    below += match.source_tokens;
  }
  TenantCounters& counters = tenant_counters_[op.tenant.value()];
  counters.prefix_lookup_tokens += lookup_tokens;
  counters.prefix_hit_tokens[kPrimary] += match.tokens - below;
  counters.prefix_hit_tokens[kSecondary] += below;
}

void WindowBlockManager::UnfollowRemoved(OperationScope& op, BlockId id, RemovalReason reason) {
  Block& block = store_[id];
  block.followed = 0;
  // In a sliding window what is held may go, too, because something above it does.
  const bool makes_room =
      (reason == RemovalReason::kEvicted || reason == RemovalReason::kDisplaced) && block.refs == 0;
  if (makes_room) {
    lives_.MadeRoom(id, block.tier(), op.now);
  } else {
    lives_.Left(id, block.tier(), op.now);
  }
}

WindowStats WindowBlockManager::Stats() const {
  WindowStats stats;
  stats.window = window();
  stats.counters = counters_;
  stats.tenants = tenant_counters_;
  if (!accounts_.any()) stats.tenants.front().removed_blocks = commons_removed_;
  stats.lives = lives_.histograms();
  for (const TenantCounters& tenant : stats.tenants) AddTo(stats.counters, tenant);
  stats.holes = holes_;
  stats.pinned_blocks = pinned_blocks();
  stats.pin_budget_blocks = options_.pin_budget_blocks;
  stats.cached_by_priority = unheld_by_priority_;
  for (size_t t = 0; t < kNumTiers; ++t) {
    const uint32_t drained = drained_[t], pinned_too = drained_and_pinned_[t];
    stats.tiers[t] = {.capacity = options_.blocks[t],
                      .free = store_.free_slots(static_cast<Tier>(t)),
                      .cached = unheld_[t],
                      .active = held_[t] - pinned_[t] - (drained - pinned_too),
                      .pinned = pinned_[t] - pinned_too,
                      .in_flight = drained};
  }
  // A slot in flight counts as that and not as what it is besides. Those of drains are counted.
  const auto move = [&](SlotRef slot) {
    TierOccupancy& tier = stats.tiers[static_cast<size_t>(slot.tier)];
    const BlockId owner = store_.owner(slot);
    if (owner != kNoBlock && store_[owner].drains) return;
    if (owner == kNoBlock) {
      --tier.free;
    } else if (store_[owner].pinned) {
      --tier.pinned;
    } else if (store_[owner].refs != 0) {
      --tier.active;
    } else {
      --tier.cached;
      const Block& block = store_[owner];
      --stats.cached_by_priority[block.tier_value][block.priority_value];
    }
    ++tier.in_flight;
  };
  const std::vector<SlotRef> copying = services_.copies->SlotsInFlight(options_.index);
  for (const SlotRef slot : copying) {
    if (slot != SlotRef{Tier::kSecondary, spare_}) move(slot);
  }
  return stats;
}

void WindowBlockManager::AddUses(TenantId tenant, std::vector<TenantUsage::Use>* uses) const {
  for (size_t t = 0; t < kNumTiers; ++t) {
    if (options_.blocks[t] == 0) continue;
    const auto tier = static_cast<Tier>(t);
    TenantUsage::Use& use = uses->emplace_back();
    use.window = window();
    use.tier = tier;
    use.used_blocks = accounts_.any() ? accounts_.used(tier, tenant) : unheld_[t] + held_[t];
    use.cached_blocks = accounts_.any() ? accounts_.cached(tier, tenant) : unheld_[t];
    use.quota_blocks = accounts_.QuotaOf(tier, tenant);
  }
}

void WindowBlockManager::CheckAccounting() const {
  for (size_t t = 0; t < kNumTiers; ++t) {
    PAGODA_CHECK(
        store_.free_slots(static_cast<Tier>(t)) + unheld_[t] + held_[t] == options_.blocks[t],
        "rule 5: free + cached + active + pinned + in flight = capacity");
  }
}

}  // namespace pagoda
