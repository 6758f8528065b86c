// Holding and releasing blocks; raw blocks; statistics.
#include "manager/window/window_block_manager.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/counted.h"
#include "base/error.h"
#include "pools/sizing.h"

namespace pagoda {
namespace {

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
  for (size_t t = 0; t < kMaxTiers; ++t) sum.prefix_hit_tokens += tenant.prefix_hit_tokens[t];
  for (size_t t = 1; t < kMaxTiers; ++t) sum.secondary_hit_tokens += tenant.prefix_hit_tokens[t];
}

uint64_t Sum(const std::vector<uint32_t>& blocks) {
  return std::accumulate(blocks.begin(), blocks.end(), uint64_t{0});
}

}  // namespace

uint32_t WindowBlockManager::NumIds(const Options& options) {
  const bool sliding = options.window != kFullAttention;
  uint32_t ids = 0;
  bool has_lower = false;
  for (size_t t = 0; t < kMaxTiers; ++t) {
    const auto& tier = options.tiers[t];
    ids += tier.on_disk ? tier.blocks : SlotsFor(static_cast<Tier>(t), tier.blocks);
    has_lower = has_lower || (t > 0 && options.tiers[t].blocks != 0);
  }
  if (sliding) ids += options.max_holes;
  // Each alias belongs to a primary slot: there are never more aliases than slots.
  if (sliding || has_lower) ids += options.tiers.front().blocks;
  return ids;
}

std::vector<uint32_t> WindowBlockManager::BlocksPerTier(const Options& options) {
  std::vector<uint32_t> blocks;
  for (size_t t = 0; t < options.num_tiers; ++t) blocks.push_back(options.tiers[t].blocks);
  return blocks;
}

WindowBlockManager::WindowBlockManager(const Options& options, Policies policies,
                                       const CoreServices& services)
    : options_(options),
      services_(services),
      store_({.tokens_per_block = options.tokens_per_block, .num_ids = NumIds(options)}),
      tree_(&store_, options.num_tiers),
      residency_({.window = options.window,
                  .index = options.index,
                  .tiers = options.tiers,
                  .block_bytes = options.block_bytes,
                  .publish_uses = options.publish_min_uses.value_or(0),
                  .tenants = options.tenants},
                 std::move(policies), services, &store_, &tree_, this),
      passed_(sliding() ? store_.num_ids() : 0),
      next_cut_off_(store_.num_ids()),
      tenant_pinned_(options.tenants->size()),
      tenant_counters_(options.tenants->size()),
      reuse_intervals_(options.reuse_sample),
      reuse_distances_({.capacity_blocks = Sum(BlocksPerTier(options)),
                        .max_samples = sliding() ? 0 : options.max_distance_samples,
                        .policy = options.policy}) {
  if (options.publish_min_uses.has_value()) {
    publish_queue_.emplace(*options.publish_min_uses, store_.num_ids());
  }
}

// --- Holding and releasing ---

void WindowBlockManager::Hold(OperationScope& op, BlockId id, TenantId tenant) {
  const bool is_first = residency_.Hold(op, id, tenant);
  if (is_first && store_[id].timed) expiries_.Stop(id);
  if (is_first) reuse_distances_.Held(tree_.hash(id));
}

void WindowBlockManager::EndHold(OperationScope& op, BlockId id, TenantId tenant) {
  switch (residency_.EndHold(op, id, tenant)) {
    case TierResidency::AfterHold::kEvictable:
      if (sliding() && passed_.IsPassed(id)) residency_.candidates().Passed(op, id);
      if (store_[id].timed) StartClock(op, id);
      if (store_[id].followed) reuse_intervals_.Released(id, op.now);
      if (reuse_distances_.Samples(tree_.hash(id)) && !IsCutOff(id)) {
        reuse_distances_.Released(tree_.hash(id));
      }
      return;
    case TierResidency::AfterHold::kFreed:
      ++counters_.freed_blocks;
      return;
    case TierResidency::AfterHold::kHeld:
    case TierResidency::AfterHold::kForgotten:
      return;
  }
}

void WindowBlockManager::Release(OperationScope& op, BlockId id, TenantId tenant) {
  Session* session = op.deferring;
  if (session == nullptr) return EndHold(op, id, tenant);
  DeferRelease(id, tenant, *session);
}

void WindowBlockManager::HoldUntilStep(BlockId id, TenantId tenant, Session& session) {
  residency_.HoldAgain(id, tenant);
  DeferRelease(id, tenant, session);
}

// The deferred release takes over the hold.
void WindowBlockManager::DeferRelease(BlockId id, TenantId tenant, Session& session) {
  session.deferred.push_back({.step = session.step,
                              .window = static_cast<uint16_t>(options_.index),
                              .tenant = tenant,
                              .block = id});
  residency_.counts().AddDeferred(id);
}

void WindowBlockManager::EndDeferredRelease(OperationScope& op, BlockId id, TenantId tenant) {
  residency_.counts().RemoveDeferred(id);
  EndHold(op, id, tenant);
}

// --- Pins ---

uint32_t WindowBlockManager::pin_budget_blocks(TenantId tenant) const {
  if (tenant == kDefaultTenant) return options_.pin_budget_blocks;
  return static_cast<uint32_t>(options_.tenants->ShareOf(tenant, options_.pin_budget_blocks));
}

absl::Status WindowBlockManager::CheckPinBudget(TenantId tenant,
                                                absl::Span<const BlockId> blocks) const {
  uint64_t pinned = pinned_blocks(), own = pinned_blocks(tenant);
  for (const BlockId id : blocks) {
    if (!store_[id].pinned) ++pinned;
    if (tenant != kDefaultTenant && !IsPinnedBy(id, tenant)) ++own;
  }
  if (tenant != kDefaultTenant && own > pin_budget_blocks(tenant)) {
    return MakeError(Reason::kPinBudgetExceeded,
                     absl::StrCat("the tenant's pins would hold ", Counted(own, "block"),
                                  " in window ", WindowName(window()), "; its share is ",
                                  pin_budget_blocks(tenant), " of ", pin_budget_blocks()));
  }
  if (pinned > pin_budget_blocks()) {
    return MakeError(
        Reason::kPinBudgetExceeded,
        absl::StrCat("would pin ", Counted(pinned, "block"), " in window ", WindowName(window()),
                     "; at most ", pin_budget_blocks(), " are allowed"));
  }
  return absl::OkStatus();
}

WindowBlockManager::Need WindowBlockManager::PinNeed(absl::Span<const BlockId> blocks,
                                                     TenantId tenant) const {
  Need need{.available = QuotaLeft(tenant)};
  for (const BlockId id : blocks) {
    // A pin of the tenant's own block only turns cached into held, within its usage.
    if (accounts().owner(id) == tenant) continue;
    if (!accounts().Holds(id, tenant, store_[id].refs)) ++need.blocks;
  }
  return need;
}

void WindowBlockManager::Pin(OperationScope& op, const PinHold& pin,
                             absl::Span<const BlockId> blocks) {
  for (const BlockId id : blocks) {
    Hold(op, id, pin.holder);
    residency_.counts().MarkPinned(id);
    if (!IsPinnedBy(id, pin.tenant)) ++tenant_pinned_[pin.tenant.value()];
    pins_.insert({id, pin.tenant, pin.pin});
  }
  residency_.GiveUpAboveQuota(op, pin.holder);
}

// Last block first, as a sequence releases.
void WindowBlockManager::Unpin(OperationScope& op, const PinHold& pin,
                               absl::Span<const BlockId> blocks) {
  for (size_t i = blocks.size(); i-- > 0;) {
    const BlockId id = blocks[i];
    const auto own = pins_.find({id, pin.tenant, pin.pin});
    PAGODA_CHECK(own != pins_.end(), "rule 15: pins are counted");
    // Other pins of the block are its neighbours in the set.
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
    if (!pins_it(before) && !pins_it(after)) residency_.counts().UnmarkPinned(id);
    EndHold(op, id, pin.holder);
  }
}

// The block is about to leave the tree. Each of its pins ends as a whole.
void WindowBlockManager::EndPinsOf(OperationScope& op, BlockId id, RemovalReason removal) {
  while (store_[id].pinned)
    services_.pins->EndPinOfLeaving(op, FirstPin(id, kDefaultTenant)->pin, removal);
}

// --- Raw blocks ---

void WindowBlockManager::TakeRaw(OperationScope& op, SessionId owner, absl::Span<BlockHandle> out) {
  CountAllocated(op, out.size());
  const uint32_t free = residency_.slots().free_slots(Tier::kPrimary);
  if (out.size() > free) recorder().ExpectRemoved(out.size() - free);
  Take(op, BlockState::kRaw, out);
  for (const BlockHandle& handle : out) store_[handle.id].refs = LowBits(owner);
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
  if (ref.id.value() < store_.num_ids() && store_[ref.id].marked) {
    return BlockError(Reason::kDoubleFree, ref, "is named twice in the call");
  }
  if (absl::Status status = CheckCurrent(ref); !status.ok()) return status;
  const Block& block = store_[ref.id];
  if (block.state() == BlockState::kRaw && block.refs == LowBits(owner)) return absl::OkStatus();
  // A tenant must not learn what another one does with the block.
  if (tenant != kDefaultTenant && accounts().owner(ref.id) != tenant) {
    return BlockError(Reason::kStaleHandle, ref, "is a stale handle");
  }
  if (block.state() == BlockState::kFree || OnlyDeferred(ref.id)) {
    return BlockError(Reason::kDoubleFree, ref, "is free already");
  }
  return BlockError(Reason::kForeignBlock, ref, "does not belong to the session as a raw block");
}

void WindowBlockManager::HoldWritable(const Sequence& sequence, Session& session) {
  const SequenceBlocks& blocks = BlocksOf(sequence);
  // A sequence computes published blocks again if a failed copy took their bytes.
  const uint32_t computed = tokens_per_block().BlockForToken(sequence.computed_tokens);
  uint32_t end = static_cast<uint32_t>(blocks.table.size());
  if (MustCopyTail(sequence)) --end;  // Another sequence's tail.
  for (uint32_t i = std::max(blocks.first, std::min(blocks.published, computed)); i < end; ++i) {
    const BlockId id = blocks.table[i].id;
    if (store_[id].state() == BlockState::kPrivate) HoldUntilStep(id, sequence.tenant, session);
  }
}

void WindowBlockManager::FreeRaw(OperationScope& op, absl::Span<const BlockRef> blocks) {
  for (const BlockRef& ref : blocks) {
    Block& block = store_[ref.id];
    block.set_state(BlockState::kPrivate);  // No session can free it while its release is deferred.
    block.refs = 1;
    block.token_count = block.uses = 0;
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
    if (block.state() == BlockState::kRaw && block.refs == LowBits(owner)) {
      blocks.push_back({BlockId{id}, block.generation});
    }
  }
  *next = BlockId{id};
  return blocks;
}

// --- Statistics ---

void WindowBlockManager::UnfollowRemoved(OperationScope& op, BlockId id, RemovalReason reason) {
  Block& block = store_[id];
  block.followed = 0;
  // In a sliding window a held block can leave too, because a block above it leaves.
  const bool was_evicted =
      (reason == RemovalReason::kEvicted || reason == RemovalReason::kDisplaced) && block.refs == 0;
  if (was_evicted) {
    reuse_intervals_.Evicted(id, block.tier(), op.now);
  } else {
    reuse_intervals_.Left(id, block.tier(), op.now);
  }
}

WindowStats WindowBlockManager::Stats() const {
  WindowStats stats;
  stats.window = window();
  stats.counters = counters_;
  stats.tenants = tenant_counters_;
  if (!accounts().any()) stats.tenants.front().removed_blocks = default_tenant_removed_;
  stats.reuse_intervals = reuse_intervals_.histograms();
  stats.reuse_distances = reuse_distances_.counts();
  for (const TenantCounters& tenant : stats.tenants) AddTo(stats.counters, tenant);
  stats.holes = holes_;
  stats.pin_budget_blocks = options_.pin_budget_blocks;
  residency_.AddStats(&stats);
  return stats;
}

}  // namespace pagoda
