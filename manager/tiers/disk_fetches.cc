#include "manager/tiers/disk_fetches.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"

namespace pagoda {
namespace {

// Fetches take at most this part (1/kFetchShare) of the tier that they fill.
constexpr uint32_t kFetchShare = 4;
constexpr uint32_t kMaxFetching = 256;

}  // namespace

Ticket DiskFetches::Fetch(OperationScope& op, absl::Span<const BlockId> blocks, absl::Time deadline,
                          uint32_t* fetched) {
  Job job{.deadline = deadline, .blocks = {}};
  Ticket last;
  for (const BlockId id : blocks) {
    if (!slots_.IsOnlyOnDisk(id)) continue;
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
  jobs_.push_back(std::move(job));
  return last;
}

Ticket DiskFetches::FetchOf(BlockId id) const {
  for (const Job& job : jobs_) {
    for (const Fetched& fetched : job.blocks) {
      if (fetched.block == store_.handle(id).ref() && !fetched.given_up) return fetched.ticket;
    }
  }
  return {};
}

// A slot of the tier above the disk, within the quota of the block's tenant.
std::optional<SlotIndex> DiskFetches::TakeSlot(OperationScope& op, BlockId id) {
  const Tier above = slots_.above_disk();
  const uint32_t most = std::clamp(slots_.capacity(above) / kFetchShare, 1u, kMaxFetching);
  if (fetching_ >= most) return std::nullopt;
  const TenantId owner = counts_.owner(id);
  if (slots_.free_slots(above) + slots_.duplicates(above) == 0 ||
      counts_.accounts().AtQuota(above, owner)) {
    const BlockId victim = candidates_.Victim(above, owner);
    if (victim == kNoBlock) return std::nullopt;
    const Generation life = store_[id].generation;
    moves_.GiveUp(op, victim,
                  above == kPrimaryTier ? RemovalReason::kEvicted : RemovalReason::kDisplaced);
    if (store_[id].generation != life || !slots_.IsOnlyOnDisk(id)) return std::nullopt;
  }
  return moves_.TakeSlot(above);
}

bool DiskFetches::OrderFetch(OperationScope& op, BlockId id, Job& job) {
  const std::optional<SlotIndex> memory = TakeSlot(op, id);
  if (!memory.has_value()) return false;
  const SlotRef to{slots_.above_disk(), *memory};
  counts_.CountInTransit(to.tier, +1);
  ++fetching_;
  const Ticket after = copies_.Overwrite(to);
  const SlotIndex file = store_[id].slot;
  candidates_.UnlistOnDisk(op, id);
  file_slots_.BeginRead(file);
  const Ticket ticket = services_.lanes->Add({.lane = Lane::kFetch,
                                              .window_index = options_.index,
                                              .source = slots_.FileSlot(file),
                                              .target = to,
                                              .after = {after}});
  job.blocks.push_back(
      {.ticket = ticket, .block = store_.handle(id).ref(), .file = file, .memory = *memory});
  fetch_bytes_ += options_.block_bytes;
  return true;
}

void DiskFetches::FetchEnded(OperationScope& op, Ticket ticket, const absl::Status& status) {
  for (auto job = jobs_.begin(); job != jobs_.end(); ++job) {
    const auto fetched = std::find_if(job->blocks.begin(), job->blocks.end(),
                                      [&](const Fetched& other) { return other.ticket == ticket; });
    if (fetched == job->blocks.end()) continue;
    using State = Fetched::State;
    // A cancelled fetch loses nothing.
    fetched->state = status.ok() ? State::kRead : State::kFailed;
    if (absl::IsCancelled(status)) GiveUp(*job, fetched - job->blocks.begin());
    const BlockRef block = fetched->block;
    file_slots_.EndRead(fetched->file);
    if (store_[block.id].generation == block.generation) candidates_.ListOnDisk(op, block.id);
    if (!status.ok() && !absl::IsCancelled(status)) {
      ++failed_fetches_;
      const Fetched lost = *fetched;
      GiveUp(*job, fetched - job->blocks.begin());
      LoseOnDisk(op, lost);
    }
    return Advance(op, job);
  }
}

// The first fetches of the job that have ended become blocks, or their slots become free.
void DiskFetches::Advance(OperationScope& op, std::list<Job>::iterator job) {
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
      if (fetched.state == State::kRead) ++late_fetches_;
      slots_.Release({slots_.above_disk(), fetched.memory});
      counts_.CountInTransit(slots_.above_disk(), -1);
    }
    --fetching_;
    services_.lanes->Close(Lane::kFetch, fetched.ticket);
    job->blocks.erase(job->blocks.begin() + static_cast<ptrdiff_t>(i));
  }
  if (job->blocks.empty()) jobs_.erase(job);
}

// Nothing waits for the rest of the job from there on, and it becomes no blocks.
void DiskFetches::GiveUp(Job& job, size_t from) {
  for (size_t i = from; i < job.blocks.size(); ++i) {
    job.blocks[i].given_up = true;
    services_.lanes->Close(Lane::kFetch, job.blocks[i].ticket);
  }
}

bool DiskFetches::IsInMemory(BlockRef block) const {
  return store_[block.id].generation == block.generation &&
         store_[block.id].state() == BlockState::kCached && !slots_.IsOnlyOnDisk(block.id);
}

// Makes the slot in memory the block's nearest copy. False if that is no longer possible.
bool DiskFetches::BringUp(OperationScope& op, const Fetched& fetched) {
  const BlockId id = fetched.block.id;
  const Block& block = store_[id];
  const Tier above = slots_.above_disk(), disk = slots_.disk();
  if (block.generation != fetched.block.generation || !slots_.IsOnlyOnDisk(id) ||
      block.slot != fetched.file || tree_.IsCutOff(id)) {
    return false;
  }
  const NodeRef parent = tree_.parent(id);
  const bool has_parent = !options_.sliding() && !parent.is_root();
  if (has_parent && store_[parent.block()].tier() > above) return false;
  const TenantId owner = counts_.owner(id);
  if (counts_.accounts().AtQuota(above, owner)) return false;
  const bool evictable = block.refs == 0;
  if (evictable) candidates_.UnlistOnDisk(op, id);
  // A child in its tier keeps the parent from being evicted.
  const bool parent_was_listed =
      has_parent && store_[parent.block()].refs == 0 && candidates_.IsCandidate(parent.block());
  BlockFacts parent_facts = {};
  if (parent_was_listed) parent_facts = candidates_.Facts(op, parent.block());
  moves_.ChangeTier(op, id, {above, fetched.memory}, TierMoves::OldSlot::kDuplicate);
  if (parent_was_listed && !candidates_.IsCandidate(parent.block())) {
    candidates_.policy(store_[parent.block()].tier(), parent.block()).Withdrawn(parent_facts);
  }
  counts_.CountInTransit(above, -1);
  if (evictable) {
    counts_.MoveEvictable(id, disk, above);
    candidates_.List(op, id);
  } else {
    counts_.MoveHeld(id, disk, above);
  }
  ++fetched_;
  return true;
}

// The bytes in the file are not the block's.
void DiskFetches::LoseOnDisk(OperationScope& op, const Fetched& fetched) {
  const BlockId id = fetched.block.id;
  const bool is_same = store_[id].generation == fetched.block.generation;
  if (!is_same || slots_.CopyOnDisk(id) != fetched.file) return;
  if (slots_.IsOnDisk(store_[id].tier())) {
    exit_.Lose(op, id);
  } else {
    disk_copies_.Drop(op, id);
  }
}

void DiskFetches::ExpireFetches(OperationScope& op) {
  for (auto job = jobs_.begin(); job != jobs_.end();) {
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

void DiskFetches::AddStats(DiskTierStats* stats) const {
  stats->fetches = fetched_;
  stats->fetch_bytes = fetch_bytes_;
  stats->late_fetches = late_fetches_;
  stats->failed_fetches = failed_fetches_;
}

void DiskFetches::CheckInvariants() const {
  uint32_t fetching = 0;
  for (const Job& job : jobs_) fetching += static_cast<uint32_t>(job.blocks.size());
  PAGODA_CHECK(fetching == fetching_, "the fetches that have not ended are counted");
  counts_.CheckInTransit(slots_.above_disk(), fetching);
}

}  // namespace pagoda
