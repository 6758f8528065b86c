// The part of TierResidency that brings blocks from disk into memory.
#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/status/status.h"
#include "base/check.h"
#include "manager/tiers/tier_residency.h"

namespace pagoda {
namespace {

// Fetches take at most this part (1/kFetchShare) of the tier that they fill.
constexpr uint32_t kFetchShare = 4;
constexpr uint32_t kMaxFetching = 256;

}  // namespace

Ticket TierResidency::Fetch(OperationScope& op, absl::Span<const BlockId> blocks,
                            absl::Time deadline, uint32_t* fetched) {
  FetchJob job{.deadline = deadline, .blocks = {}};
  Ticket last;
  for (const BlockId id : blocks) {
    if (!IsOnlyOnDisk(id)) continue;
    // If another call has ordered the fetch, this one waits for it.
    const Ticket running = FetchOf(id);
    if (running != Ticket{}) {
      last = std::max(last, running);
      continue;
    }
    if (!OrderFetch(op, id, job)) break;
    last = std::max(last, job.blocks.back().ticket);
  }
  *fetched += static_cast<uint32_t>(job.blocks.size());
  if (job.blocks.empty()) return last;
  services_.deadlines->EndsAt(deadline);
  disk_.jobs.push_back(std::move(job));
  return last;
}

Ticket TierResidency::FetchOf(BlockId id) const {
  for (const FetchJob& job : disk_.jobs) {
    for (const Fetched& fetched : job.blocks) {
      if (fetched.block == store_.handle(id).ref() && !fetched.given_up) return fetched.ticket;
    }
  }
  return {};
}

// A slot of the tier above the disk, within the quota of the block's tenant.
std::optional<SlotIndex> TierResidency::TakeForFetch(OperationScope& op, BlockId id) {
  TierState& above = AboveDisk();
  const auto tier = static_cast<Tier>(disk_.above);
  const uint32_t most = std::clamp(above.capacity / kFetchShare, 1u, kMaxFetching);
  if (disk_.fetching >= most) return std::nullopt;
  const TenantId owner = accounts_.owner(id);
  if (above.slots.free() + above.duplicates.size() == 0 || accounts_.AtQuota(tier, owner)) {
    const BlockId victim = Victim(tier, owner);
    if (victim == kNoBlock) return std::nullopt;
    const Generation life = store_[id].generation;
    if (MoveDown(op, victim, Why::kSlotNeeded) == Offloaded::kNoSpace) {
      CountPassedOver(victim);
      exit_.Evict(op, victim,
                  disk_.above == kPrimary ? RemovalReason::kEvicted : RemovalReason::kDisplaced);
    }
    if (store_[id].generation != life || !IsOnlyOnDisk(id)) return std::nullopt;
  }
  return TakeSlot(tier);
}

bool TierResidency::OrderFetch(OperationScope& op, BlockId id, FetchJob& job) {
  const std::optional<SlotIndex> memory = TakeForFetch(op, id);
  if (!memory.has_value()) return false;
  const auto tier = static_cast<Tier>(disk_.above);
  ++AboveDisk().in_transit;
  ++disk_.fetching;
  Ticket after;
  if (!copies().idle()) {
    after = copies().LastTouch(options_.index, {tier, *memory});
    copies().Overwrite(options_.index, {tier, *memory});
  }
  const SlotIndex file = store_[id].slot;
  UnlistOnDisk(op, id);
  ++disk_.uses[file].reads;
  const Ticket ticket = services_.files->Give(Lane::kFetch, options_.index);
  services_.files->Order(FileOrder{.lane = Lane::kFetch,
                                   .ticket = ticket,
                                   .window_index = options_.index,
                                   .memory = {tier, *memory},
                                   .file = FileSlot(file),
                                   .after = after});
  job.blocks.push_back(
      {.ticket = ticket, .block = store_.handle(id).ref(), .file = file, .memory = *memory});
  disk_.stats.fetch_bytes += options_.block_bytes;
  return true;
}

void TierResidency::FetchEnded(OperationScope& op, Ticket ticket, const absl::Status& status) {
  for (auto job = disk_.jobs.begin(); job != disk_.jobs.end(); ++job) {
    const auto fetched = std::find_if(job->blocks.begin(), job->blocks.end(),
                                      [&](const Fetched& other) { return other.ticket == ticket; });
    if (fetched == job->blocks.end()) continue;
    using State = Fetched::State;
    // A cancelled fetch loses nothing.
    fetched->state = status.ok() ? State::kRead : State::kFailed;
    if (absl::IsCancelled(status)) GiveUp(*job, fetched - job->blocks.begin());
    const auto use = disk_.uses.find(fetched->file);
    --use->second.reads;
    const BlockRef block = fetched->block;
    EndFileUse(fetched->file);
    if (store_[block.id].generation == block.generation) ListOnDisk(op, block.id);
    if (!status.ok() && !absl::IsCancelled(status)) {
      ++disk_.stats.failed_fetches;
      const Fetched lost = *fetched;
      GiveUp(*job, fetched - job->blocks.begin());
      LoseOnDisk(op, lost);
    }
    return Advance(op, job);
  }
}

// The first fetches of the job that have ended become blocks, or their slots become free.
void TierResidency::Advance(OperationScope& op, std::list<FetchJob>::iterator job) {
  using State = Fetched::State;
  for (size_t i = 0; i < job->blocks.size();) {
    const Fetched& fetched = job->blocks[i];
    if (fetched.state == State::kRunning) {
      if (!fetched.given_up) break;
      ++i;  // Only its own slot waits for the disk.
      continue;
    }
    bool is_up = false;
    if (fetched.state == State::kRead && !fetched.given_up) {
      is_up = BringUp(op, fetched);
      // A sequence may have computed the block meanwhile. Then the blocks below can still come.
      if (!is_up && !IsInMemory(fetched.block)) GiveUp(*job, i);
    }
    if (!is_up) {
      if (fetched.state == State::kRead) ++disk_.stats.late_fetches;
      AboveDisk().slots.Release(fetched.memory);
      --AboveDisk().in_transit;
    }
    --disk_.fetching;
    services_.files->Close(Lane::kFetch, fetched.ticket);
    job->blocks.erase(job->blocks.begin() + static_cast<ptrdiff_t>(i));
  }
  if (job->blocks.empty()) disk_.jobs.erase(job);
}

// Nothing waits for the rest of the job from there on, and it becomes no blocks.
void TierResidency::GiveUp(FetchJob& job, size_t from) {
  for (size_t i = from; i < job.blocks.size(); ++i) {
    job.blocks[i].given_up = true;
    services_.files->Close(Lane::kFetch, job.blocks[i].ticket);
  }
}

bool TierResidency::IsInMemory(BlockRef block) const {
  return store_[block.id].generation == block.generation &&
         store_[block.id].state() == BlockState::kCached && !IsOnlyOnDisk(block.id);
}

// Makes the slot in memory the block's nearest copy. False if that is no longer possible.
bool TierResidency::BringUp(OperationScope& op, const Fetched& fetched) {
  const BlockId id = fetched.block.id;
  const Block& block = store_[id];
  const auto above = static_cast<Tier>(disk_.above), disk = static_cast<Tier>(disk_.tier);
  if (block.generation != fetched.block.generation || !IsOnlyOnDisk(id) ||
      block.slot != fetched.file || tree_.IsCutOff(id)) {
    return false;
  }
  const NodeRef parent = tree_.parent(id);
  const bool has_parent = !sliding() && !parent.is_root();
  if (has_parent && store_[parent.block()].tier() > above) return false;
  const TenantId owner = accounts_.owner(id);
  if (accounts_.AtQuota(above, owner)) return false;
  const bool evictable = block.refs == 0;
  if (evictable) UnlistOnDisk(op, id);
  // A child in its tier keeps the parent from being evicted.
  const bool parent_was_listed =
      has_parent && store_[parent.block()].refs == 0 && IsCandidate(parent.block());
  BlockFacts parent_facts = {};
  if (parent_was_listed) parent_facts = Facts(op, parent.block());
  ChangeTier(op, id, {above, fetched.memory}, OldSlot::kDuplicate);
  if (parent_was_listed && !IsCandidate(parent.block())) {
    policy(store_[parent.block()].tier(), parent.block()).Withdrawn(parent_facts);
  }
  --AboveDisk().in_transit;
  if (evictable) {
    CountEvictable(id, disk, -1);
    CountEvictable(id, above, +1);
    List(op, id);
  } else {
    MoveHeld(id, disk, above);
  }
  ++disk_.stats.fetches;
  return true;
}

// The bytes in the file are not the block's.
void TierResidency::LoseOnDisk(OperationScope& op, const Fetched& fetched) {
  const BlockId id = fetched.block.id;
  if (store_[id].generation != fetched.block.generation || CopyOnDisk(id) != fetched.file) return;
  if (IsOnDisk(store_[id].tier())) {
    exit_.Lose(op, id);
  } else {
    DropOnDisk(op, id);
  }
}

void TierResidency::ExpireFetches(OperationScope& op) {
  for (auto job = disk_.jobs.begin(); job != disk_.jobs.end();) {
    const auto next = std::next(job);
    if (job->deadline <= op.now) {
      GiveUp(*job, 0);
      Advance(op, job);
    } else {
      services_.deadlines->EndsAt(job->deadline);
    }
    job = next;
  }
}

}  // namespace pagoda
