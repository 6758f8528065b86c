// Decides which prefixes of a cache are published to a store, and when.
#ifndef PAGODA_SERVER_STORE_PUBLISHER_H_
#define PAGODA_SERVER_STORE_PUBLISHER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/metric.h"
#include "events/tenant_id.h"
#include "manager/exchange/block_exchange.h"
#include "manager/shared_manager.h"

namespace pagoda::server {

// Why a listed prefix was not published.
enum class PublishDrop : uint8_t {
  kTenant,   // Its tenant may not publish.
  kGone,     // It had left the cache's memory, or the exchange was full.
  kStore,    // The store did not take it, in any try.
  kBudget,   // The budget of bytes was used up, in every try.
  kStopped,  // The publisher was stopped.
};
inline constexpr size_t kPublishDrops = 5;
const char* PublishDropName(PublishDrop drop);  // "tenant"

// Counts are of prefixes, since the publisher was made, unless a name says otherwise.
// listed = published + dropped (of all reasons) + waiting + in_flight.
struct PublisherStats {
  uint64_t listed = 0;
  uint64_t published = 0;
  uint64_t failed_tries = 0;
  uint64_t short_tries = 0;
  std::array<uint64_t, kPublishDrops> dropped = {};
  size_t waiting = 0;    // Not begun, or waiting for their next try.
  size_t in_flight = 0;  // Begun, and not ended.
  bool is_store_away = false;
  uint32_t queued_blocks = 0;
  uint64_t forgotten_blocks = 0;
};

// Without a label.
inline constexpr Metric<PublisherStats> kPublisherMetrics[] = {
    {&PublisherStats::listed, "pagoda_publisher_listed_prefixes_total", "listed_total",
     "Prefixes that the cache listed for the store."},
    {&PublisherStats::published, "pagoda_publisher_published_prefixes_total", "published_total",
     "Listed prefixes whose blocks in memory are all in the store."},
    {KindsOf<PublisherStats, &PublisherStats::dropped, PublishDropName>("reason"),
     "pagoda_publisher_dropped_prefixes_total", "dropped_total",
     "Listed prefixes given up, by reason. tenant: it may not publish; gone: it had left memory; "
     "store: the store did not take it in any try; budget: the budget of bytes was used up in "
     "every try; stopped: the daemon ended."},
    {&PublisherStats::waiting,
     "pagoda_publisher_prefixes",
     "waiting",
     "Listed prefixes by state: waiting, in_flight (they are being written).",
     {"state", "waiting"}},
    {&PublisherStats::in_flight,
     "pagoda_publisher_prefixes",
     "in_flight",
     "",
     {"state", "in_flight"}},
    {&PublisherStats::failed_tries, "pagoda_publisher_failed_tries_total", "failed_tries_total",
     "Writes of which the store did not take each block."},
    {&PublisherStats::short_tries, "pagoda_publisher_short_tries_total", "short_tries_total",
     "Writes that the budget of bytes cut off."},
    {&PublisherStats::queued_blocks, "pagoda_publisher_queued_blocks", "queued_blocks",
     "Blocks in the cache's list, before the publisher takes them."},
    {&PublisherStats::forgotten_blocks, "pagoda_publisher_forgotten_blocks_total",
     "forgotten_blocks_total", "Blocks that were forgotten because the cache's list was full."},
    {&PublisherStats::is_store_away, "pagoda_publisher_store_away", "store_away",
     "1 if the last write failed, so that the others wait."},
};
static_assert(EachFieldHasARow(kPublisherMetrics), "a field has no row");

// Takes the prefixes that the cache lists (ManagerOptions::publish_min_uses) and gives them to the
// exchange, a few at a time. Thread-safe.
//
// 1. Tick never waits for the store. It takes the core's lock as SharedManager::TakePublishable
//    does, for at most kMostTaken prefixes.
// 2. At most max_in_flight prefixes are in flight, and one while the store is away: it finds out
//    whether the store is back.
// 3. Prefixes that wait are bounded in number and bytes. At a bound it takes no more: the cache's
//    own list, which is of ids, grows to PublishQueue::kMaxBlocks and then forgets the oldest.
// 4. A prefix that the store did not take waits longer after each try, and is dropped after
//    max_tries. If the store took nothing of it, all prefixes wait. If the budget of bytes was used
//    up, all wait too; a try that wrote something does not count.
// 5. After Stop no publish begins. Publishes in flight end with the exchange.
class StorePublisher {
 public:
  struct Options {
    // The tenants whose blocks are published. An empty name: the default tenant, whose blocks
    // tenants share. No names: all tenants.
    std::vector<std::string> tenants = {};
    // Blocks gather for so long after the first one was listed, so that a prompt that grows is
    // published once.
    absl::Duration delay = absl::Milliseconds(200);
    uint32_t max_in_flight = 8;
    uint32_t max_waiting = 256;
    // The bytes of the waiting prompts. The last one can exceed it.
    size_t max_waiting_bytes = 16 << 20;
    // Publishes begin only while fewer fetches and publishes than this wait in the exchange.
    size_t max_exchange_waiting = 256;
    // The wait after a try: `first_retry`, doubled with each further try, at most `longest_retry`.
    absl::Duration first_retry = absl::Milliseconds(500);
    absl::Duration longest_retry = absl::Seconds(30);
    uint32_t max_tries = 8;
    std::function<absl::Time()> clock = SharedManager::Now;
  };
  static constexpr uint32_t kMostTaken = 32;

  // Both outlive the publisher. Errors: UNKNOWN_TENANT; INVALID_ARGUMENT (a limit of 0).
  static absl::StatusOr<std::unique_ptr<StorePublisher>> Create(SharedManager* manager,
                                                                BlockExchange* exchange,
                                                                Options options);
  // Calls Stop.
  ~StorePublisher();

  // Takes listed prefixes and begins publishes. For a timer, every few ten milliseconds.
  void Tick();
  // Waits for a Tick that runs, not for publishes. May be called again.
  void Stop();
  PublisherStats stats() const;

 private:
  class Queue;

  StorePublisher(SharedManager* manager, BlockExchange* exchange, Options options,
                 absl::flat_hash_set<TenantId> tenants);
  void Take(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(tick_mutex_);
  void Begin(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(tick_mutex_);

  SharedManager& manager_;
  BlockExchange& exchange_;
  const Options options_;
  const absl::flat_hash_set<TenantId> tenants_;  // Empty: all.
  const std::shared_ptr<Queue> queue_;           // Also owned by the publishes in flight.

  absl::Mutex tick_mutex_;  // Before the queue's own.
  bool stopped_ ABSL_GUARDED_BY(tick_mutex_) = false;
  // When the blocks in the cache's list have gathered; nullopt: the list was empty.
  std::optional<absl::Time> gathered_at_ ABSL_GUARDED_BY(tick_mutex_);
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_STORE_PUBLISHER_H_
