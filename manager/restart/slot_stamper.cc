#include "manager/restart/slot_stamper.h"

#include <sched.h>

#include <limits>
#include <optional>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/check.h"
#include "manager/restart/slot_checksum.h"

namespace pagoda {
namespace {

constexpr Ticket kNever{std::numeric_limits<uint64_t>::max()};

// When the worker has caught up, it sleeps for this long. Waking it would cost the caller, who
// holds the core's lock, more than the rest of Apply.
constexpr absl::Duration kRest = absl::Milliseconds(1);

}  // namespace

SlotStamper::SlotStamper(PoolSet* pools, StampSet* stamps, Options options)
    : pools_(pools),
      stamps_(stamps),
      options_(std::move(options)),
      next_deferred_(kNever),
      known_(stamps->num_windows()) {
  started_ = worker_.Start("pagoda-stamper", [this] { RunWorker(); });
}

void SlotStamper::Stop() {
  if (!worker_.joinable()) return;
  ends_.store(true, std::memory_order_relaxed);
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  worker_.Join();
}

// --- On the caller's thread ---

uint64_t SlotStamper::BytesOf(const SlotContent& content) {
  return sizeof(Item) + content.tokens.size() * sizeof(TokenId) +
         content.extras.size() * sizeof(TokenExtra) + content.name_space.cache_salt.size() +
         content.name_space.tenant.size();
}

SlotStamps* SlotStamper::StampsOf(const SlotChange& change) const {
  if (change.slot.slot == kNoSlot) return nullptr;
  SlotStamps* const stamps = stamps_->Find(change.window_index, change.slot.tier);
  PAGODA_CHECK(stamps != nullptr, "a slot that changes is one of a pool");
  return stamps;
}

SlotStamps::Version SlotStamper::Open(const SlotChange& change) {
  SlotStamps* const stamps = StampsOf(change);
  if (stamps == nullptr || change.found) return 0;
  const SlotStamps::Version version = stamps->Invalidate(change.slot.slot);
  AtStep(Step::kInvalidated, change);
  return version;
}

void SlotStamper::Apply(std::vector<SlotChange> changes) {
  Batch batch;
  batch.versions.reserve(changes.size());
  uint64_t contents = 0, content_bytes = 0;
  for (const SlotChange& change : changes) {
    batch.versions.push_back(Open(change));
    if (!change.content.has_value()) continue;
    ++contents;
    content_bytes += BytesOf(*change.content);
  }
  if (contents == 0) return;
  batch.changes = std::move(changes);
  batch.bytes = batch.changes.size() * (sizeof(SlotChange) + sizeof(SlotStamps::Version));
  const uint64_t bytes = batch.bytes + content_bytes;
  if (queued_bytes_.fetch_add(bytes, std::memory_order_relaxed) + bytes >
      options_.max_queued_bytes) {
    queued_bytes_.fetch_sub(bytes, std::memory_order_relaxed);
    dropped_.fetch_add(contents, std::memory_order_relaxed);
    return;
  }
  pending_.fetch_add(contents, std::memory_order_relaxed);
  absl::MutexLock lock(&mutex_);
  queue_.push_back(std::move(batch));
}

void SlotStamper::CopiesDone(Ticket completed) {
  absl::MutexLock lock(&mutex_);
  completed_ = completed;
}

void SlotStamper::Flush() {
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(this, &SlotStamper::Idle));
}

SlotStamper::Stats SlotStamper::stats() const {
  return {.stamped = stamped_.load(),
          .kept = kept_.load(),
          .outdated = outdated_.load(),
          .dropped = dropped_.load(),
          .orphaned = orphaned_.load(),
          .pending = pending_.load()};
}

// --- On the worker's thread ---

void SlotStamper::RunWorker() {
  // A woken worker waits for the processor, and does not take it from the caller. If the system
  // refuses this, the worker only competes more.
  const sched_param no_priority = {};
  sched_setscheduler(0, SCHED_BATCH, &no_priority);
  while (true) {
    std::vector<Batch> batches;
    Ticket completed;
    {
      absl::MutexLock lock(&mutex_);
      working_ = false;
      next_deferred_ = deferred_.empty() ? kNever : deferred_.begin()->first;
      mutex_.Await(absl::Condition(this, &SlotStamper::HasWorkOrEnds));
      if (stopping_) return;
      batches.swap(queue_);
      completed = completed_;
      working_ = true;
    }
    TakeDeferred(completed);
    for (Batch& batch : batches) Take(std::move(batch), completed);
    absl::SleepFor(kRest);
  }
}

void SlotStamper::TakeDeferred(Ticket completed) {
  const auto end = deferred_.upper_bound(completed);
  for (auto it = deferred_.begin(); it != end && !ends_.load(std::memory_order_relaxed);
       it = deferred_.erase(it)) {
    Stamp(std::move(it->second));
  }
}

void SlotStamper::Take(Batch batch, Ticket completed) {
  for (size_t i = 0; i < batch.changes.size(); ++i) {
    if (ends_.load(std::memory_order_relaxed)) return;
    SlotChange& change = batch.changes[i];
    if (!change.content.has_value()) continue;
    const uint64_t bytes = BytesOf(*change.content);
    Take({.change = std::move(change), .version = batch.versions[i], .bytes = bytes}, completed);
  }
  queued_bytes_.fetch_sub(batch.bytes, std::memory_order_relaxed);
}

void SlotStamper::Take(Item item, Ticket completed) {
  if (item.change.found && LearnFromStamp(item)) return Ended(item, kept_);
  if (!Learn(item)) return Ended(item, orphaned_);
  if (item.change.slot.slot == kNoSlot) return Ended(item, kept_);
  if (item.change.found) return Ended(item, outdated_);
  if (item.change.ready <= completed) return Stamp(std::move(item));
  const Ticket ready = item.change.ready;
  deferred_.emplace(ready, std::move(item));
}

// Makes the digest of the content, and remembers it for the block's children. Returns whether it
// could.
bool SlotStamper::Learn(Item& item) {
  const SlotContent& content = *item.change.content;
  absl::flat_hash_map<BlockId, Known>& known = known_[item.change.window_index];
  if (content.parent.id == kNoBlock) {
    item.parent = digester_.OfNamespace(content.name_space);
  } else {
    const auto parent = known.find(content.parent.id);
    if (parent == known.end() || parent->second.generation != content.parent.generation) {
      // The digest of an earlier generation is not the parent of this block's children.
      known.erase(content.block.id);
      return false;
    }
    item.parent = parent->second.digest;
  }
  item.digest = digester_.OfBlock(item.parent, content.key());
  known[content.block.id] = {content.block.generation, item.digest};
  return true;
}

// Returns whether the slot still has the stamp with which it was found.
bool SlotStamper::LearnFromStamp(const Item& item) {
  const SlotStamps* const stamps = StampsOf(item.change);
  if (stamps == nullptr) return false;
  const absl::StatusOr<std::optional<SlotStamp>> stamp = stamps->Read(item.change.slot.slot);
  if (!stamp.ok() || !stamp->has_value()) return false;
  // Later contents of the slot are behind this one in the queue.
  const SlotContent& content = *item.change.content;
  PAGODA_CHECK((*stamp)->tokens == content.tokens, "what was found has the content of its stamp");
  known_[item.change.window_index][content.block.id] = {content.block.generation, (*stamp)->digest};
  return true;
}

void SlotStamper::Stamp(Item item) {
  SlotChange& change = item.change;
  SlotStamps& stamps = *StampsOf(change);
  const SlotIndex slot = change.slot.slot;
  if (!stamps.IsOpen(slot, item.version)) return Ended(item, outdated_);
  AtStep(Step::kBeforeChecksum, change);
  const uint64_t bytes_checksum = ChecksumSlot(*pools_, change.window_index, change.slot);
  SlotContent& content = *change.content;
  const SlotStamp stamp = {.digest = item.digest,
                           .parent = item.parent,
                           .name_space = content.parent.id == kNoBlock
                                             ? std::optional(content.name_space)
                                             : std::nullopt,
                           .bytes_checksum = bytes_checksum,
                           .priority = content.priority,
                           .tokens = std::move(content.tokens),
                           .extras = std::move(content.extras),
                           .keyed = content.keyed};
  if (!stamps.WriteBody(slot, item.version, stamp)) {
    return Ended(item, stamps.IsOpen(slot, item.version) ? dropped_ : outdated_);
  }
  AtStep(Step::kBodyWritten, change);
  stamps.WriteChecksum(slot);
  AtStep(Step::kBeforePublish, change);
  if (!stamps.Publish(slot, item.version)) return Ended(item, outdated_);
  AtStep(Step::kPublished, change);
  Ended(item, stamped_);
}

void SlotStamper::Ended(const Item& item, std::atomic<uint64_t>& counter) {
  queued_bytes_.fetch_sub(item.bytes, std::memory_order_relaxed);
  pending_.fetch_sub(1, std::memory_order_relaxed);
  counter.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace pagoda
