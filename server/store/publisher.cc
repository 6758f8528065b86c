#include "server/store/publisher.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "absl/memory/memory.h"
#include "base/error.h"
#include "manager/accounts/tenants.h"
#include "manager/cache_lists.h"

namespace pagoda::server {
namespace {

// A prefix on its way to the store.
struct Entry {
  StoredPrompt prompt;
  size_t bytes = 0;
  uint32_t tries = 0;  // Tries without progress.
  absl::Time not_before = absl::InfinitePast();
};

StoredPrompt PromptOf(PublishablePrefix prefix) {
  // The exchange's session is the default tenant's, so the namespace's owner is charged.
  return {.name_space = std::move(prefix.name_space),
          .tokens = std::move(prefix.tokens),
          .extra_token_ids = std::move(prefix.extra_token_ids),
          .multimodal_items = std::move(prefix.multimodal_items),
          .keys = std::move(prefix.keys)};
}

}  // namespace

const char* PublishDropName(PublishDrop drop) {
  switch (drop) {
    case PublishDrop::kTenant:
      return "tenant";
    case PublishDrop::kGone:
      return "gone";
    case PublishDrop::kStore:
      return "store";
    case PublishDrop::kBudget:
      return "budget";
    case PublishDrop::kStopped:
      return "stopped";
  }
  return "unknown";
}

// The prefixes that wait, and the outcomes of those in flight. Thread-safe.
class StorePublisher::Queue {
 public:
  explicit Queue(const Options& options) : options_(options) {}

  // Whether a Tick has nothing to do: the store is away, or the budget is used up.
  bool is_pausing(absl::Time now) const {
    absl::MutexLock lock(&mutex_);
    return now < pause_until_;
  }
  // How many further prefixes can wait.
  uint32_t room() const {
    absl::MutexLock lock(&mutex_);
    if (waiting_bytes_ >= options_.max_waiting_bytes) return 0;
    return options_.max_waiting -
           static_cast<uint32_t>(std::min<size_t>(waiting_.size(), options_.max_waiting));
  }
  void Refuse(PublishDrop why) {
    absl::MutexLock lock(&mutex_);
    ++stats_.listed;
    Drop(why);
  }
  void Add(StoredPrompt prompt) {
    Entry entry{.prompt = std::move(prompt)};
    entry.bytes = BytesOf(entry.prompt);
    absl::MutexLock lock(&mutex_);
    ++stats_.listed;
    waiting_bytes_ += entry.bytes;
    waiting_.push_back(std::move(entry));
  }
  // The next prefix that may begin now, which is in flight from then on; null: none.
  std::shared_ptr<Entry> Next(absl::Time now) {
    absl::MutexLock lock(&mutex_);
    if (now < pause_until_ || stats_.in_flight >= (is_away() ? 1 : options_.max_in_flight)) {
      return nullptr;
    }
    const auto next = std::find_if(waiting_.begin(), waiting_.end(),
                                   [now](const Entry& entry) { return entry.not_before <= now; });
    if (next == waiting_.end()) return nullptr;
    auto entry = std::make_shared<Entry>(std::move(*next));
    waiting_.erase(next);
    waiting_bytes_ -= entry->bytes;
    ++stats_.in_flight;
    return entry;
  }
  void Ended(Entry entry, const PublishedPrefix& result) {
    const absl::Time now = options_.clock();
    absl::MutexLock lock(&mutex_);
    --stats_.in_flight;
    if (result.failed > 0) {
      ++stats_.failed_tries;
      ++entry.tries;
      if (result.blocks == 0) Pause(now, &store_failures_);
      if (stopped_) return Drop(PublishDrop::kStopped);
      if (entry.tries >= options_.max_tries) return Drop(PublishDrop::kStore);
      entry.not_before = now + Backoff(entry.tries);
      return Wait(std::move(entry), waiting_.end());
    }
    if (result.blocks > 0) store_failures_ = 0;
    if (result.skipped > 0) {
      ++stats_.short_tries;
      if (result.written > 0) {
        entry.tries = 0;
        budget_shortages_ = 0;
      } else {
        ++entry.tries;
      }
      Pause(now, &budget_shortages_);
      if (stopped_) return Drop(PublishDrop::kStopped);
      if (entry.tries >= options_.max_tries) return Drop(PublishDrop::kBudget);
      return Wait(std::move(entry), waiting_.begin());  // It keeps its place.
    }
    if (result.blocks == 0) return Drop(PublishDrop::kGone);
    budget_shortages_ = 0;
    ++stats_.published;
  }
  void Stop() {
    absl::MutexLock lock(&mutex_);
    stopped_ = true;
    while (!waiting_.empty()) {
      waiting_.pop_front();
      Drop(PublishDrop::kStopped);
    }
    waiting_bytes_ = 0;
  }
  PublisherStats stats() const {
    absl::MutexLock lock(&mutex_);
    PublisherStats stats = stats_;
    stats.waiting = waiting_.size();
    stats.is_store_away = is_away();
    return stats;
  }

 private:
  bool is_away() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return store_failures_ > 0; }
  void Drop(PublishDrop why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    ++stats_.dropped[static_cast<size_t>(why)];
  }
  void Wait(Entry entry, std::deque<Entry>::iterator place) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    waiting_bytes_ += entry.bytes;
    waiting_.insert(place, std::move(entry));
  }
  absl::Duration Backoff(uint32_t tries) const {
    constexpr uint32_t kMostDoublings = 30;
    const auto doublings = std::min(tries - 1, kMostDoublings);
    return std::min(options_.longest_retry, options_.first_retry * (int64_t{1} << doublings));
  }
  // All wait, longer each time in a row. Publishes that began together count once.
  void Pause(absl::Time now, uint32_t* in_a_row) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (now < pause_until_) return;
    ++*in_a_row;
    pause_until_ = now + Backoff(*in_a_row);
  }

  const Options options_;
  mutable absl::Mutex mutex_;
  std::deque<Entry> waiting_ ABSL_GUARDED_BY(mutex_);
  size_t waiting_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Time pause_until_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  uint32_t store_failures_ ABSL_GUARDED_BY(mutex_) = 0;    // In a row.
  uint32_t budget_shortages_ ABSL_GUARDED_BY(mutex_) = 0;  // In a row, with nothing written.
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  PublisherStats stats_ ABSL_GUARDED_BY(mutex_);
};

absl::StatusOr<std::unique_ptr<StorePublisher>> StorePublisher::Create(SharedManager* manager,
                                                                       BlockExchange* exchange,
                                                                       Options options) {
  if (options.max_in_flight == 0 || options.max_waiting == 0 || options.max_tries == 0 ||
      options.first_retry <= absl::ZeroDuration()) {
    return InvalidArgument(
        "a publisher's max_in_flight, max_waiting, max_tries and first_retry "
        "are positive");
  }
  absl::flat_hash_set<TenantId> tenants;
  for (const std::string& name : options.tenants) {
    if (name.empty()) {
      tenants.insert(kDefaultTenant);
      continue;
    }
    const absl::StatusOr<TenantId> tenant = manager->tenants().Find(name);
    if (!tenant.ok()) return tenant.status();
    tenants.insert(*tenant);
  }
  return absl::WrapUnique(
      new StorePublisher(manager, exchange, std::move(options), std::move(tenants)));
}

StorePublisher::StorePublisher(SharedManager* manager, BlockExchange* exchange, Options options,
                               absl::flat_hash_set<TenantId> tenants)
    : manager_(*manager),
      exchange_(*exchange),
      options_(std::move(options)),
      tenants_(std::move(tenants)),
      queue_(std::make_shared<Queue>(options_)) {}

StorePublisher::~StorePublisher() { Stop(); }

void StorePublisher::Tick() {
  absl::MutexLock tick(&tick_mutex_);
  if (stopped_) return;
  const absl::Time now = options_.clock();
  if (queue_->is_pausing(now)) return;
  Take(now);
  Begin(now);
}

void StorePublisher::Take(absl::Time now) {
  const uint32_t room = std::min(queue_->room(), kMostTaken);
  if (room == 0) return;
  const uint32_t queued =
      manager_.Read([](const BlockManager& core) { return core.lists().publishable().queued; });
  if (queued == 0) {
    gathered_at_.reset();
    return;
  }
  if (!gathered_at_.has_value()) gathered_at_ = now + options_.delay;
  if (now < *gathered_at_) return;
  for (uint32_t taken = 0; taken < room && queue_->room() > 0; ++taken) {
    std::vector<PublishablePrefix> prefix = manager_.TakePublishable(1);
    if (prefix.empty()) {
      gathered_at_.reset();
      return;
    }
    if (!tenants_.empty() && !tenants_.contains(prefix.front().owner)) {
      queue_->Refuse(PublishDrop::kTenant);
    } else {
      queue_->Add(PromptOf(std::move(prefix.front())));
    }
  }
}

void StorePublisher::Begin(absl::Time now) {
  while (exchange_.stats().waiting < options_.max_exchange_waiting) {
    std::shared_ptr<Entry> entry = queue_->Next(now);
    if (entry == nullptr) return;
    StoredPrompt prompt = entry->prompt;
    exchange_.Publish(std::move(prompt), [queue = queue_, entry](const PublishedPrefix& result) {
      queue->Ended(std::move(*entry), result);
    });
  }
}

void StorePublisher::Stop() {
  absl::MutexLock tick(&tick_mutex_);
  stopped_ = true;
  queue_->Stop();
}

PublisherStats StorePublisher::stats() const {
  PublisherStats stats = queue_->stats();
  const PublishableBlocks blocks =
      manager_.Read([](const BlockManager& core) { return core.lists().publishable(); });
  stats.queued_blocks = blocks.queued;
  stats.forgotten_blocks = blocks.forgotten;
  return stats;
}

}  // namespace pagoda::server
